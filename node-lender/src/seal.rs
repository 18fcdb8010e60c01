//! The keys of a connection: each frame's metadata sealed, or with the feature *clear* authenticated only.
//!
//! A direction has a key and a counter of its own. The key is renewed before each frame whose number is a multiple of
//! [`REKEY_FRAMES`]; the counter goes on.

use aes_gcm::aead::{Aead, AeadInPlace, KeyInit, Nonce, Payload};
use aes_gcm::{Aes256Gcm, Tag};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::wire::{Malformed, REKEY_FRAMES, TAG};

/// Bytes of a connection's key.
pub const KEY: usize = 32;

/// One direction of a connection.
pub struct Sealer {
    aead: Aes256Gcm,
    count: u64,
    clear: Option<Zeroizing<[u8; TAG]>>,
}

impl Sealer {
    /// The first key of a direction, whose frames are numbered from 0.
    pub fn new(key: &[u8; KEY]) -> Self {
        Self { aead: Aes256Gcm::new(key.into()), count: 0, clear: None }
    }

    /// From now on only authenticates, under a key that is derived at once.
    pub fn clear(mut self) -> Self {
        self.clear = Some(self.renew());
        self
    }

    /// Seals metadata in place; the header counts as well. The tag goes behind them.
    pub fn seal(&mut self, header: &[u8], metadata: &mut [u8]) -> [u8; TAG] {
        let number = self.next();
        match &self.clear {
            Some(key) => authenticate(key, number, header, metadata),
            None => self
                .aead
                .encrypt_in_place_detached(&nonce(number), header, metadata)
                .expect("metadata are shorter than what GCM can seal")
                .into(),
        }
    }

    /// Opens in place what was sealed.
    pub fn open(&mut self, header: &[u8], metadata: &mut [u8], tag: &[u8; TAG]) -> Result<(), Malformed> {
        let number = self.next();
        let opened = match &self.clear {
            Some(key) => bool::from(authenticate(key, number, header, metadata).ct_eq(tag)),
            None => self.aead.decrypt_in_place_detached(&nonce(number), header, metadata, Tag::from_slice(tag)).is_ok(),
        };
        if opened { Ok(()) } else { Err(Malformed::Forged) }
    }

    fn next(&mut self) -> u64 {
        if self.count > 0 && self.count % REKEY_FRAMES == 0 {
            let behind = self.renew();
            self.clear = self.clear.take().map(|_| behind);
        }
        self.count += 1;
        self.count - 1
    }

    /// Noise's REKEY; gives what follows the next key where that comes from.
    fn renew(&mut self) -> Zeroizing<[u8; TAG]> {
        let text = Payload { msg: &[0; KEY + TAG], aad: &[] };
        let fresh = Zeroizing::new(self.aead.encrypt(&nonce(u64::MAX), text).expect("48 bytes can be sealed"));
        self.aead = Aes256Gcm::new_from_slice(&fresh[..KEY]).expect("the size is a key's");
        Zeroizing::new(fresh[KEY..KEY + TAG].try_into().expect("there are as many bytes"))
    }
}

fn nonce(number: u64) -> Nonce<Aes256Gcm> {
    let mut nonce = Nonce::<Aes256Gcm>::default();
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// SipHash-2-4 with 128 bits over counter, header and metadata.
fn authenticate(key: &[u8; TAG], number: u64, header: &[u8], metadata: &[u8]) -> [u8; TAG] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(&number.to_le_bytes());
    hasher.write(header);
    hasher.write(metadata);
    hasher.finish128().as_bytes()
}

/// The keys that a handshake ends with: for what the borrower sends, and for what the lender sends.
pub struct Keys {
    /// Opens what the borrower sends.
    pub receive: Sealer,
    /// Seals what the lender sends.
    pub send: Sealer,
}

impl Keys {
    /// From the two halves of Noise's split, which are erased.
    pub fn new((borrower, lender): &mut ([u8; KEY], [u8; KEY])) -> Self {
        let keys = Self { receive: Sealer::new(borrower), send: Sealer::new(lender) };
        borrower.zeroize();
        lender.zeroize();
        keys
    }

    /// With the feature *clear*, if it was agreed on.
    pub fn clear_if(self, clear: bool) -> Self {
        if clear { Self { receive: self.receive.clear(), send: self.send.clear() } } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(clear: bool) -> (Sealer, Sealer) {
        let both = [Sealer::new(&[7; KEY]), Sealer::new(&[7; KEY])];
        let [one, other] = both.map(|sealer| if clear { sealer.clear() } else { sealer });
        (one, other)
    }

    #[test]
    fn halves_are_erased() {
        let mut split = ([1; KEY], [2; KEY]);
        drop(Keys::new(&mut split));
        assert_eq!(split, ([0; KEY], [0; KEY]));
    }

    #[test]
    fn frames_open_in_order_across_renewed_keys() {
        for clear in [false, true] {
            let (mut send, mut receive) = pair(clear);
            for number in 0..2 * REKEY_FRAMES + 3 {
                let mut metadata = number.to_le_bytes();
                let tag = send.seal(b"header", &mut metadata);
                assert_eq!(metadata == number.to_le_bytes(), clear);
                receive.open(b"header", &mut metadata, &tag).unwrap();
                assert_eq!(metadata, number.to_le_bytes());
            }
        }
    }

    #[test]
    fn whatever_is_altered_left_out_or_repeated_does_not_open() {
        for clear in [false, true] {
            let sealed = || {
                let (mut send, receive) = pair(clear);
                let mut metadata = *b"metadata";
                let tag = send.seal(b"header", &mut metadata);
                (send, receive, metadata, tag)
            };
            let (_, mut receive, mut metadata, tag) = sealed();
            assert_eq!(receive.open(b"Header", &mut metadata, &tag), Err(Malformed::Forged));
            let (_, mut receive, mut metadata, tag) = sealed();
            metadata[3] ^= 1;
            assert_eq!(receive.open(b"header", &mut metadata, &tag), Err(Malformed::Forged));
            let (_, mut receive, mut metadata, mut tag) = sealed();
            tag[15] ^= 0x80;
            assert_eq!(receive.open(b"header", &mut metadata, &tag), Err(Malformed::Forged));
            let (mut send, mut receive, _, _) = sealed();
            let tag = send.seal(b"header", &mut []);
            assert_eq!(receive.open(b"header", &mut [], &tag), Err(Malformed::Forged));
            let (_, mut receive, metadata, tag) = sealed();
            receive.open(b"header", &mut metadata.clone(), &tag).unwrap();
            assert_eq!(receive.open(b"header", &mut metadata.clone(), &tag), Err(Malformed::Forged));
        }
    }

    /// The appendix of SipHash's reference implementation: key 00 to 0f, text 00 to 0e, of which eight are the counter.
    #[test]
    fn tag_is_siphash_with_128_bits() {
        let key: [u8; TAG] = std::array::from_fn(|n| n as u8);
        let text: [u8; 15] = std::array::from_fn(|n| n as u8);
        let number = u64::from_le_bytes(text[..8].try_into().unwrap());
        let expected = [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(authenticate(&key, number, &text[8..11], &text[11..]), expected);
    }
}
