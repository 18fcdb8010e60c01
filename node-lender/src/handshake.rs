//! The lender's half of the handshake, Noise_IK_25519_AESGCM_SHA256: messages of fixed size, and nothing else.
//!
//! [`Met::read`] takes message 1 and [`Met::answer`] makes message 2. Message 1 may be a repetition of an old one, so
//! nothing comes of it until [`Asked::prove`] has seen message 3.

use snow::{Builder, HandshakeState, Keypair};

use crate::identity::{Identity, Own};
use crate::seal::Keys;
use crate::wire::{self, FEATURE_CLEAR, FEATURES, HEAD, HELLO, Hello, Malformed, Message, PROLOGUE, TAG, Verdict};

const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";

fn builder<'a>() -> Builder<'a> {
    Builder::new(PATTERN.parse().expect("this is a pattern"))
}

/// A key pair; ends the process when the kernel gives no random numbers.
pub(crate) fn draw() -> Keypair {
    builder().generate_keypair().expect("the kernel has random numbers")
}

/// Why there is no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Message 1 cannot be read with this lender's key.
    #[error("message 1 is for another lender")]
    Identity,
    /// What it carries is none.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Who has sent a message 1, or said what somebody once sent.
pub struct Met {
    noise: HandshakeState,
    /// Who it was.
    pub peer: Identity,
    /// What it wants.
    pub hello: Hello,
}

impl Met {
    /// Reads message 1, without its head.
    pub fn read(own: &Own, message: &[u8; wire::MESSAGE_1]) -> Result<Self, Refused> {
        let mut noise = builder()
            .prologue(PROLOGUE)
            .and_then(|builder| builder.local_private_key(&*own.secret))
            .and_then(Builder::build_responder)
            .expect("pattern and key fit each other");
        let mut hello = [0; HELLO];
        let read = noise.read_message(message, &mut hello).map_err(|_| Refused::Identity)?;
        debug_assert_eq!(read, HELLO);
        let peer = noise.get_remote_static().and_then(|point| point.try_into().ok()).ok_or(Refused::Identity)?;
        Ok(Self { peer: Identity(peer), hello: Hello::parse(&hello)?, noise })
    }

    /// Message 2 with its head, and whom it was said to if it is a welcome. A borrower whose limits are none is not
    /// welcome.
    pub fn answer(mut self, verdict: Verdict) -> (Vec<u8>, Verdict, Asked) {
        let verdict = match verdict {
            Verdict::Welcome if !self.hello.limits.valid() => Verdict::Limits,
            other => other,
        };
        let features = self.hello.features & FEATURES;
        let mut message = wire::head(Message::Second, 0).to_vec();
        message.resize(HEAD + wire::MESSAGE_2, 0);
        let answer = wire::answer(features, verdict);
        let written = self.noise.write_message(&answer, &mut message[HEAD..]).expect("the message has its size");
        debug_assert_eq!(written, wire::MESSAGE_2);
        let keys = Keys::new(&mut self.noise.dangerously_get_raw_split());
        (message, verdict, Asked { keys, clear: features & FEATURE_CLEAR != 0 })
    }
}

/// Who was told that it is welcome, and has yet to prove that it is there now.
pub struct Asked {
    keys: Keys,
    clear: bool,
}

impl Asked {
    /// Reads message 3; gives the keys of the connection.
    pub fn prove(mut self, message: &[u8; HEAD + TAG]) -> Result<Keys, Malformed> {
        let (head, tag) = message.split_first_chunk::<HEAD>().expect("it is longer");
        if *head != wire::head(Message::Third, 0) {
            return Err(Malformed::Head);
        }
        self.keys.receive.open(head, &mut [], tag.try_into().expect("so much is left"))?;
        Ok(self.keys.clear_if(self.clear))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::seal::Sealer;
    use crate::wire::{MOST, POINT};

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
    }

    /// cacophony's vector, which the module's self-test and its model in Python have, too.
    #[test]
    fn noise_computes_what_others_do() {
        let responder = bytes("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893");
        let responders_fresh = bytes("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b");
        let first = bytes(
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444e417bc55c7a8166c993356c1be41ef67818a292426f30\
             1556c7f26b21d25ddb097153891a9a956cff47b83e63ad8d701c1342c209cff1ca5ecd43402762ac249e3bd3a4c0a145fe07cb5dae28ea\
             13a3",
        );
        let second = bytes(
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843af2ccf9972e22afc67aeafcd25162f7f98c363b7762e3e\
             4cb7d272e39f27a5",
        );
        let mut other = builder()
            .prologue(b"John Galt")
            .unwrap()
            .local_private_key(&responder)
            .unwrap()
            .fixed_ephemeral_key_for_testing_only(&responders_fresh)
            .build_responder()
            .unwrap();
        let mut text = [0; 64];
        let read = other.read_message(&first, &mut text).unwrap();
        assert_eq!(&text[..read], b"Ludwig von Mises");
        let mut message = [0; 128];
        let written = other.write_message(b"Murray Rothbard", &mut message).unwrap();
        assert_eq!(&message[..written], second);
        let hash = bytes("669c8640d9e42a3cda2f232f78597ceefb01daa6e3df81181ccce6fc6b5026bf");
        assert_eq!(other.get_handshake_hash(), hash);
        let (borrower, lender) = other.dangerously_get_raw_split();
        for (key, text, wire) in [
            (borrower, &b"F. A. Hayek"[..], "66acfc92e3197de166809e6d4d5d003dcc819a84bc3522ca53c9d9"),
            (lender, b"Carl Menger", "71f89aa6533a6de70b0826864dd75f60806ee40170c16290189eb3"),
        ] {
            let mut sealed = text.to_vec();
            let tag = Sealer::new(&key).seal(b"", &mut sealed);
            assert_eq!([sealed, tag.to_vec()].concat(), bytes(wire));
        }
    }

    /// A borrower's half, as far as tests need one.
    pub(crate) struct Borrower {
        noise: HandshakeState,
    }

    impl Borrower {
        pub(crate) fn new(own: &Own, lender: &Identity) -> Self {
            let noise = builder()
                .prologue(PROLOGUE)
                .unwrap()
                .local_private_key(&*own.secret)
                .unwrap()
                .remote_public_key(&lender.0)
                .unwrap()
                .build_initiator()
                .unwrap();
            Self { noise }
        }

        pub(crate) fn first(&mut self, hello: &[u8; HELLO]) -> [u8; wire::MESSAGE_1] {
            let mut message = [0; wire::MESSAGE_1];
            assert_eq!(self.noise.write_message(hello, &mut message).unwrap(), wire::MESSAGE_1);
            message
        }

        pub(crate) fn third(mut self, second: &[u8]) -> ([u8; HEAD + TAG], Verdict) {
            let mut answer = [0; wire::ANSWER];
            self.noise.read_message(&second[HEAD..], &mut answer).unwrap();
            let (borrower, _) = self.noise.dangerously_get_raw_split();
            let head = wire::head(Message::Third, 0);
            let mut third = [0; HEAD + TAG];
            third[..HEAD].copy_from_slice(&head);
            third[HEAD..].copy_from_slice(&Sealer::new(&borrower).seal(&head, &mut []));
            let verdict = if answer[8] == 0 { Verdict::Welcome } else { Verdict::Limits };
            (third, verdict)
        }
    }

    pub(crate) fn hello(limits: wire::Limits) -> [u8; HELLO] {
        let mut hello = [0; HELLO];
        hello[0] = 1;
        hello[41] = limits.lanes;
        for (place, limit) in [(42, limits.get), (44, limits.put), (46, limits.notices)] {
            hello[place..place + 2].copy_from_slice(&limit.to_le_bytes());
        }
        hello
    }

    #[test]
    fn a_borrower_is_who_it_says_and_there_now() {
        let (lender, own) = (Own::draw(), Own::draw());
        let mut borrower = Borrower::new(&own, &lender.identity);
        let first = borrower.first(&hello(MOST));
        let met = Met::read(&lender, &first).unwrap();
        assert_eq!((met.peer, met.hello.session, met.hello.limits), (own.identity, 1, MOST));
        let (second, verdict, asked) = met.answer(Verdict::Welcome);
        assert_eq!(verdict, Verdict::Welcome);
        let (third, _) = borrower.third(&second);
        assert!(asked.prove(&third).is_ok());
        // the same message 1 again: message 3 of the first time proves nothing
        let (_, _, asked) = Met::read(&lender, &first).unwrap().answer(Verdict::Welcome);
        assert_eq!(asked.prove(&third).err(), Some(Malformed::Forged));
    }

    #[test]
    fn message_for_another_lender_is_refused() {
        let (lender, own) = (Own::draw(), Own::draw());
        let first = Borrower::new(&own, &Own::draw().identity).first(&hello(MOST));
        assert_eq!(Met::read(&lender, &first).err(), Some(Refused::Identity));
        for point in [[0; POINT], std::array::from_fn(|n| u8::from(n == 0))] {
            let mut first = Borrower::new(&own, &lender.identity).first(&hello(MOST));
            first[..POINT].copy_from_slice(&point); // of low order
            assert_eq!(Met::read(&lender, &first).err(), Some(Refused::Identity));
        }
    }

    static LENDER: LazyLock<Own> = LazyLock::new(Own::draw);

    proptest! {
        /// Of any bytes in the size of message 1 nothing comes.
        #[test]
        fn any_message_is_refused(bytes in prop::collection::vec(any::<u8>(), wire::MESSAGE_1)) {
            let message = bytes.try_into().unwrap();
            prop_assert_eq!(Met::read(&LENDER, &message).err(), Some(Refused::Identity));
        }

        /// A true message 1 is read, whatever its hello is, and with any bit of it changed it is not.
        #[test]
        fn an_altered_message_is_refused(
            text in prop::collection::vec(any::<u8>(), HELLO),
            bit in 0..wire::MESSAGE_1 * 8,
        ) {
            let text = text.try_into().unwrap();
            let mut message = Borrower::new(&Own::draw(), &LENDER.identity).first(&text);
            let hello = Hello::parse(&text).map_err(Refused::from);
            prop_assert_eq!(Met::read(&LENDER, &message).map(|met| met.hello), hello);
            message[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Met::read(&LENDER, &message).err(), Some(Refused::Identity));
        }
    }

    #[test]
    fn limits_that_are_none_are_not_welcome() {
        let (lender, own) = (Own::draw(), Own::draw());
        let first = Borrower::new(&own, &lender.identity).first(&hello(wire::Limits { put: 65, ..MOST }));
        let (_, verdict, _) = Met::read(&lender, &first).unwrap().answer(Verdict::Welcome);
        assert_eq!(verdict, Verdict::Limits);
    }
}
