//! Who a peer is: the public half of a key pair of curve25519, written as `x25519:` and 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::handshake;
use crate::wire::POINT;

const KIND: &str = "x25519:";

/// A peer's public point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; POINT]);

/// Text that is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no identity: write {KIND} and 64 lowercase hexadecimal digits")]
pub struct NoIdentity(String);

impl FromStr for Identity {
    type Err = NoIdentity;

    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        let digits = text.strip_prefix(KIND).unwrap_or_default();
        let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 2 * POINT || !digits.as_bytes().iter().all(hexadecimal) {
            return Err(NoIdentity(text.to_owned()));
        }
        let byte = |place: usize| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).expect("these are digits");
        Ok(Self(std::array::from_fn(byte)))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(KIND)?;
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// This lender's own key pair. The secret half is drawn anew at each start and written nowhere.
///
/// This copy is erased when it is dropped. Copies that the Noise library makes for each handshake are not, and nothing is
/// locked in memory: what keeps them in is that the process cannot be read or dumped, and runs without swap.
pub struct Own {
    /// What borrowers are configured with.
    pub identity: Identity,
    /// The secret half.
    pub(crate) secret: Zeroizing<[u8; POINT]>,
}

impl Own {
    /// Draws one.
    pub fn draw() -> Self {
        let drawn = handshake::draw();
        let secret = Zeroizing::new(drawn.private);
        let array = |bytes: &[u8]| bytes.try_into().expect("a point has 32 bytes");
        Self { identity: Identity(array(&drawn.public)), secret: Zeroizing::new(array(&secret)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_written_as_it_is_read() {
        let own = Own::draw();
        assert_eq!(own.identity.to_string().parse(), Ok(own.identity));
        assert_ne!(own.identity, Own::draw().identity);
    }

    #[test]
    fn anything_else_is_refused_with_what_is_right() {
        let digits = "0".repeat(64);
        for text in ["", "x25519:", &digits, &format!("p256:{digits}"), &format!("x25519:{}A", &digits[1..])] {
            let refused = text.parse::<Identity>().unwrap_err();
            assert!(refused.to_string().contains(text) && refused.to_string().contains("64 lowercase"));
        }
    }
}
