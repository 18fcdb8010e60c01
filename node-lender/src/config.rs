//! The configuration: a TOML file, read at the start and again when the control socket says so.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::identity::Identity;
use crate::node::Memory;
use crate::session::{Allowance, Terms};
use crate::shelf::NOTE_COST;
use crate::wire::PAGE;

/// Borrowers at most: each has threads' worth of work and some megabytes of buffers.
pub const BORROWERS_MAX: usize = 64;
const LINGER_MAX: u64 = 3600;
/// That of a namespace, and that of a guest in it.
const NAME_MAX: usize = 127;

/// Bytes, written as a number or as Kubernetes writes quantities: `512Mi`, `32Gi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    fn parse(text: &str) -> Option<Self> {
        let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("", 0)];
        let (digits, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()?.checked_mul(1 << shift).map(Self)).flatten()
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Bytes;
            fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
                to.write_str("bytes, as a number or with a unit: \"512Mi\", \"32Gi\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Bytes, E> {
                Bytes::parse(value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        from.deserialize_any(Either)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
        match units.iter().find(|(shift, _)| self.0 > 0 && self.0 % (1 << shift) == 0) {
            Some((shift, unit)) => write!(to, "{}{unit}", self.0 >> shift),
            None => write!(to, "{}", self.0),
        }
    }
}

/// Who may borrow, and how much.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BorrowerConfig {
    /// Its identity.
    pub identity: Identity,
    /// Bytes at most.
    pub quota: Bytes,
    /// Whether it may connect.
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl BorrowerConfig {
    /// What it may have.
    pub fn allowance(&self) -> Allowance {
        Allowance { quota: self.quota.0, enabled: self.enabled }
    }
}

/// All of it. What a field means is in `README.md`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where borrowers connect. Not changed by a reload.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where Prometheus scrapes. Not changed by a reload.
    pub metrics: Option<SocketAddr>,
    /// The control socket. Not changed by a reload.
    pub control: Option<PathBuf>,
    /// Bytes that are lent at most, what is remembered of pages included.
    pub max_lend: Bytes,
    /// Bytes that stay available on the node beside what is lent.
    pub reserve: Bytes,
    /// Seconds that a session is kept that has no connection.
    #[serde(default = "default_linger")]
    pub linger_seconds: u64,
    /// Nobody is to put any pages now.
    #[serde(default)]
    pub hold: bool,
    /// Who may borrow, by a name for logs and metrics.
    #[serde(default)]
    pub borrowers: BTreeMap<String, BorrowerConfig>,
}

fn yes() -> bool {
    true
}

fn default_listen() -> SocketAddr {
    "[::]:7470".parse().expect("this is an address")
}

fn default_linger() -> u64 {
    60
}

/// What is wrong with a configuration: field, value, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

impl Wrong {
    /// The node does not say what it has.
    pub fn of_node(error: &std::io::Error) -> Self {
        Self(format!("the node's memory is not known: {error}"))
    }
}

/// What is wrong with a text, with the line that has it: whoever asked for it reads one line.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    let before = error.span().and_then(|span| Some((text.get(..span.start)?, text.get(span)?)));
    match before.filter(|(_, there)| !there.contains('\n')) {
        None => message, // about a table as a whole
        Some((before, _)) => {
            let number = before.matches('\n').count();
            let line = text.lines().nth(number).unwrap_or_default().trim();
            format!("line {}: {line}: {message}", number + 1)
        }
    }
}

impl Config {
    /// Reads a file; the error names it.
    pub fn read(path: &Path, node: &Memory) -> Result<Self, Wrong> {
        let at = |what: String| Wrong(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        Self::parse(&text, node).map_err(|Wrong(what)| at(what))
    }

    /// Reads and checks its text for a node.
    pub fn parse(text: &str, node: &Memory) -> Result<Self, Wrong> {
        let config: Self = toml::from_str(text).map_err(|error| Wrong(in_one_line(text, &error)))?;
        config.check(node)?;
        Ok(config)
    }

    fn check(&self, node: &Memory) -> Result<(), Wrong> {
        let wrong = |what: String| Err(Wrong(what));
        if self.reserve.0 >= node.total {
            let (reserve, total) = (self.reserve, Bytes(node.total));
            return wrong(format!("reserve: {reserve}: the node has {total}; reserve less than that"));
        }
        if self.max_lend.0 < (PAGE + NOTE_COST) as u64 || self.max_lend.0 > node.total - self.reserve.0 {
            let most = Bytes(node.total - self.reserve.0);
            return wrong(format!(
                "max_lend: {}: one page at least, and {most} at most: memory less reserve",
                self.max_lend
            ));
        }
        if self.linger_seconds > LINGER_MAX {
            return wrong(format!("linger_seconds: {}: {LINGER_MAX} at most", self.linger_seconds));
        }
        if self.borrowers.len() > BORROWERS_MAX {
            return wrong(format!("borrowers: {}: {BORROWERS_MAX} at most", self.borrowers.len()));
        }
        let mut names = BTreeMap::new();
        for (name, borrower) in &self.borrowers {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
            if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(plain) {
                return wrong(format!("borrowers.{name:?}: a name has 1 to {NAME_MAX} letters, digits, and - _ . /"));
            }
            if let Some(other) = names.insert(borrower.identity, name) {
                return wrong(format!("borrowers.{name}.identity: {other} has it already; each needs its own"));
            }
        }
        Ok(())
    }

    /// What all borrowers are told.
    pub fn terms(&self) -> Terms {
        Terms { max_lend: self.max_lend.0, linger: Duration::from_secs(self.linger_seconds), hold: self.hold }
    }

    /// How many pages are lent at most.
    pub fn pages(&self) -> u64 {
        self.max_lend.0 / (PAGE + NOTE_COST) as u64
    }

    /// What an administrator should know though it is no error: a reason and what to do.
    pub fn conditions(&self, node: &Memory, limit: Option<u64>) -> Vec<Condition> {
        let mut conditions = Vec::new();
        if node.swap > 0 {
            let message = "the node has swap: a page that is put may be swapped out before the kernel may drop it; \
                           set memory.swap.max of this lender's cgroup to 0";
            conditions.push(Condition { reason: "NodeHasSwap", message: message.to_owned() });
        }
        match limit {
            Some(limit) if limit < self.max_lend.0 => conditions.push(Condition {
                reason: "LimitBelowMaxLend",
                message: format!(
                    "the cgroup's limit is {}, max_lend {}: no more than the limit is lent; raise it, or lower max_lend",
                    Bytes(limit),
                    self.max_lend
                ),
            }),
            None => conditions.push(Condition {
                reason: "NoLimit",
                message: "no memory limit is set for this lender's cgroup: set one a little above max_lend".to_owned(),
            }),
            Some(_) => (),
        }
        conditions
    }
}

/// See [`Config::conditions`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Condition {
    /// One word.
    pub reason: &'static str,
    /// What it means and what to do.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const KEYS: [&str; 7] = ["max_lend", "reserve", "linger_seconds", "hold", "borrowers", "quota", "'é'"];
    const VALUES: [&str; 12] =
        ["'1Gi'", "'64Gi'", "0", "-1", "1e3", "3601", "true", "'é", "[1", "{}", "{a = {quota = 1}}", "\"\"\"\n"];

    const NODE: Memory = Memory { total: 64 << 30, available: 32 << 30, swap: 0 };
    const ID: &str = "x25519:0000000000000000000000000000000000000000000000000000000000000001";

    fn wrong(text: &str) -> String {
        Config::parse(text, &NODE).unwrap_err().to_string()
    }

    /// What is read keeps to what a node can do; what is not is refused in one line.
    fn is_sound(text: &str) -> bool {
        match Config::parse(text, &NODE) {
            Ok(config) => config.max_lend.0 + config.reserve.0 <= NODE.total && config.linger_seconds <= LINGER_MAX,
            Err(Wrong(what)) => !what.is_empty() && what.lines().count() == 1,
        }
    }

    proptest! {
        /// Any text is read or refused, and so is any that nearly is a configuration.
        #[test]
        fn any_text_is_read_or_refused(text: String, lines in prop::collection::vec((select(&KEYS), select(&VALUES)), 0..6)) {
            let nearly: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            prop_assert!(is_sound(&text), "{}", text);
            prop_assert!(is_sound(&nearly), "{}", nearly);
            prop_assert!(is_sound(&format!("max_lend = '1Gi'\nreserve = 0\n{text}")), "{}", text);
            prop_assert!(is_sound(&format!("max_lend = '1Gi'\nreserve = 0\n{nearly}")), "{}", nearly);
        }
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = format!(
            "listen = '127.0.0.1:7471'\nmetrics = '[::1]:9470'\ncontrol = '/run/x.sock'\nmax_lend = '32Gi'\nreserve = '8Gi'\n\
             linger_seconds = 5\nhold = true\n[borrowers.web]\nidentity = '{ID}'\nquota = 4096\nenabled = false\n"
        );
        let config = Config::parse(&text, &NODE).unwrap();
        assert_eq!((config.max_lend, config.reserve), (Bytes(32 << 30), Bytes(8 << 30)));
        assert_eq!(config.terms(), Terms { max_lend: 32 << 30, linger: Duration::from_secs(5), hold: true });
        assert_eq!(config.borrowers["web"].allowance(), Allowance { quota: 4096, enabled: false });
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config = Config::parse("max_lend = '1Gi'\nreserve = 0", &NODE).unwrap();
        assert_eq!((config.listen.port(), config.linger_seconds, config.hold), (7470, 60, false));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_right() {
        let base = "max_lend = '1Gi'\nreserve = '1Gi'\n";
        let borrower =
            |name: &str, identity: &str| format!("[borrowers.{name}]\nidentity = '{identity}'\nquota = '1Gi'\n");
        for (text, named) in [
            ("max_lend = '1Gi'\nreserve = '64Gi'".to_owned(), "reserve: 64Gi: the node has 64Gi"),
            ("max_lend = '57Gi'\nreserve = '8Gi'".to_owned(), "max_lend: 57Gi: one page at least, and 56Gi at most"),
            ("max_lend = 0\nreserve = '8Gi'".to_owned(), "max_lend: 0:"),
            (
                "reserve = 0\nmax_lend = '1GB'".to_owned(),
                "line 2: max_lend = '1GB': invalid value: string \"1GB\", expected",
            ),
            ("max_lend = '1Gi'\nreserve = 0\nhold = maybe".to_owned(), "line 3: hold = maybe: "),
            ("max_lend = -1\nreserve = 0".to_owned(), "-1"),
            (format!("{base}linger_seconds = 3601"), "linger_seconds: 3601: 3600 at most"),
            (format!("{base}lend_max = 3"), "unknown field `lend_max`"),
            (base[..17].to_owned(), "missing field `reserve`"),
            (format!("{base}{}", borrower("a", "x25519:12")), "\"x25519:12\" is no identity"),
            (format!("{base}{}", borrower("'a\"b'", ID)), "a name has 1 to 127 letters"),
            (format!("{base}{}{}", borrower("a", ID), borrower("b", ID)), "borrowers.b.identity: a has it already"),
        ] {
            let wrong = wrong(&text);
            assert!(wrong.contains(named) && wrong.lines().count() == 1, "{wrong}");
        }
    }

    #[test]
    fn more_borrowers_than_there_may_be_are_refused() {
        let borrower = |n| format!("[borrowers.b{n}]\nidentity = 'x25519:{n:064}'\nquota = '1Gi'\n");
        let text: String = (0..65).map(borrower).collect();
        assert!(wrong(&format!("max_lend = '1Gi'\nreserve = 0\n{text}")).contains("borrowers: 65: 64 at most"));
    }

    #[test]
    fn an_administrator_is_told_what_is_no_error() {
        let config = Config::parse("max_lend = '2Gi'\nreserve = 0", &NODE).unwrap();
        let reasons =
            |node: &Memory, limit| config.conditions(node, limit).iter().map(|c| c.reason).collect::<Vec<_>>();
        assert!(reasons(&NODE, Some(3 << 30)).is_empty());
        assert_eq!(reasons(&NODE, Some(1 << 30)), ["LimitBelowMaxLend"]);
        assert_eq!(reasons(&Memory { swap: 1, ..NODE }, None), ["NodeHasSwap", "NoLimit"]);
    }
}
