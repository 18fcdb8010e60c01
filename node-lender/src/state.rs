//! What the lender tells those who run it: one picture, as JSON on the control socket and as metrics for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::config::Condition;
use crate::identity::Identity;
use crate::lender::Lender;
use crate::node;
use crate::session::Borrower;

/// The whole picture.
#[derive(Debug, Serialize)]
pub struct State {
    /// What borrowers are configured with; another one after each start.
    pub identity: Identity,
    /// Bytes that are lent at most.
    pub max_lend_bytes: u64,
    /// The memory limit of its cgroup, if there is one.
    pub limit_bytes: Option<u64>,
    /// Bytes that are lent, what is remembered of pages included.
    pub lent_bytes: u64,
    /// Whether the node has memory to lend beyond its reserve.
    pub spare: bool,
    /// Nobody is to put any pages now.
    pub hold: bool,
    /// Connections that were refused.
    pub rejected: u64,
    /// Connections that are in the handshake.
    pub strangers: usize,
    /// What an administrator should know.
    pub conditions: Vec<Condition>,
    /// Each borrower.
    pub borrowers: Vec<BorrowerState>,
}

/// What there is with one borrower.
#[derive(Debug, Serialize)]
pub struct BorrowerState {
    /// What its pairing is called.
    pub name: String,
    /// Who it is.
    pub identity: Identity,
    /// `Connected`, `Lingering`, `Listening` or `Disabled`.
    pub state: &'static str,
    /// Bytes that it may use.
    pub granted_bytes: u64,
    /// Pages of it that are here, as far as is known.
    pub lent_pages: usize,
    /// Connections, of which a session has two or more.
    pub connections: usize,
    /// Pages that it has not been told of yet that they are gone.
    pub untold: usize,
    /// Pages that the kernel has taken in this session.
    pub reclaimed: u64,
    /// Requests.
    pub gets: u64,
    /// Pages that were asked for and here.
    pub get_hits: u64,
    /// Pages that were asked for and not here.
    pub get_misses: u64,
    /// Pages that were kept.
    pub puts: u64,
    /// Pages that were not kept.
    pub puts_refused: u64,
    /// Pages that it was told are gone, by name.
    pub notices_sent: u64,
    /// Frames that were none, or not the borrower's.
    pub bad_frames: u64,
    /// Sessions that went on after their connections had ended.
    pub resumes: u64,
}

impl BorrowerState {
    fn of(borrower: &Borrower) -> Self {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (granted_bytes, ..) = borrower.granted();
        let connections = borrower.connections();
        let state = match (borrower.enabled(), connections, borrower.lingers()) {
            (false, ..) => "Disabled",
            (true, 0, true) => "Lingering",
            (true, 0, false) => "Listening",
            (true, ..) => "Connected",
        };
        let (counts, shelf) = (&borrower.counts, borrower.shelf());
        Self {
            name: borrower.name.clone(),
            identity: borrower.identity,
            state,
            granted_bytes,
            lent_pages: shelf.pages(),
            connections,
            untold: shelf.notices.untold(),
            reclaimed: shelf.taken,
            gets: count(&counts.gets),
            get_hits: count(&counts.hits),
            get_misses: count(&counts.misses),
            puts: count(&counts.puts),
            puts_refused: count(&counts.puts_refused),
            notices_sent: count(&counts.notices),
            bad_frames: count(&counts.bad_frames),
            resumes: count(&counts.resumes),
        }
    }
}

impl State {
    /// As it is now.
    pub fn of(lender: &Lender) -> Self {
        let config = lender.config();
        Self {
            identity: lender.identity(),
            max_lend_bytes: config.max_lend.0,
            limit_bytes: node::memory_limit(),
            lent_bytes: lender.lent_bytes(),
            spare: !lender.budget.closed(),
            hold: config.hold,
            rejected: lender.rejected(),
            strangers: lender.strangers(),
            conditions: lender.conditions(),
            borrowers: lender.borrowers().iter().map(|borrower| BorrowerState::of(borrower)).collect(),
        }
    }

    /// In Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut registry = Registry::with_prefix("tidepool_node_lender");
        let gauges: [(&str, &str, u64); 4] = [
            ("max_lend_bytes", "Bytes that are lent at most", self.max_lend_bytes),
            ("lent_bytes", "Bytes that are lent, what is remembered of pages included", self.lent_bytes),
            ("spare", "1 while the node has memory to lend beyond its reserve", self.spare.into()),
            ("strangers", "Connections in the handshake", self.strangers as u64),
        ];
        for (name, help, value) in gauges {
            registry.register(name, help, gauge(value));
        }
        registry.register("rejected", "Connections that were refused", counter(self.rejected));
        self.register_borrowers(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text can be written to a string");
        text
    }

    fn register_borrowers(&self, registry: &mut Registry) {
        type Value = fn(&BorrowerState) -> u64;
        let gauges: [(&str, &str, Value); 4] = [
            ("granted_bytes", "Bytes that the borrower may use", |one| one.granted_bytes),
            ("lent_pages", "Pages of the borrower that are here", |one| one.lent_pages as u64),
            ("connections", "Connections of the borrower", |one| one.connections as u64),
            ("untold_pages", "Pages of whose loss the borrower is to be told", |one| one.untold as u64),
        ];
        for (name, help, value) in gauges {
            let family = Family::<Label, Gauge<i64>>::default();
            for one in &self.borrowers {
                family.get_or_create(&Label::of(one)).set(value(one) as i64);
            }
            registry.register(name, help, family);
        }
        let counters: [(&str, &str, Value); 8] = [
            ("gets", "Requests", |one| one.gets),
            ("get_hits", "Pages that were asked for and here", |one| one.get_hits),
            ("get_misses", "Pages that were asked for and not here", |one| one.get_misses),
            ("puts", "Pages that were kept", |one| one.puts),
            ("puts_refused", "Pages that were not kept", |one| one.puts_refused),
            ("notices_sent", "Pages that the borrower was told are gone, by name", |one| one.notices_sent),
            ("bad_frames", "Frames that were none, or not the borrower's", |one| one.bad_frames),
            ("resumes", "Sessions that went on after their connections had ended", |one| one.resumes),
        ];
        for (name, help, value) in counters {
            let family = Family::<Label, Counter>::default();
            for one in &self.borrowers {
                family.get_or_create(&Label::of(one)).inc_by(value(one));
            }
            registry.register(name, help, family);
        }
    }
}

fn gauge(value: u64) -> Gauge<i64> {
    let gauge = Gauge::default();
    gauge.set(value as i64);
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    borrower: String,
}

impl Label {
    fn of(one: &BorrowerState) -> Self {
        Self { borrower: one.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::node::Memory;

    #[test]
    fn metrics_and_state_are_one_picture() {
        let id = Identity([7; 32]);
        let text = format!("max_lend = '1Mi'\nreserve = 0\n[borrowers.web]\nidentity = '{id}'\nquota = 4096\n");
        let lender = Lender::new(Config::parse(&text, &Memory::read().unwrap()).unwrap());
        let state = State::of(&lender);
        assert_eq!((state.borrowers[0].state, state.max_lend_bytes), ("Listening", 1 << 20));
        let metrics = state.metrics();
        assert!(metrics.contains("tidepool_node_lender_max_lend_bytes 1048576\n"), "{metrics}");
        assert!(metrics.contains("tidepool_node_lender_puts_total{borrower=\"web\"} 0\n"), "{metrics}");
        assert!(metrics.ends_with("# EOF\n"));
    }
}
