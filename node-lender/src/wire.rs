//! The bytes of protocol 3: `kernel-module/PROTOCOL.md` in Rust, as `kernel-module/uapi/wire.h` is it in C.
//!
//! Little-endian, fixed layouts. Everything here is pure: a parser takes an array of the size that the protocol says and
//! cannot fail for want of bytes; what a number may be is checked where it is read.

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of an authentication tag.
pub const TAG: usize = 16;
/// Bytes of a point of curve25519.
pub const POINT: usize = 32;
/// The first four bytes of each message of the handshake: "TIDE".
pub const MAGIC: u32 = 0x4544_4954;
/// The version that is spoken here, and the only one.
pub const VERSION: u16 = 3;
/// What the handshake's hash begins with.
pub const PROLOGUE: &[u8] = b"tidepool 3";
/// Frames of a direction after which its key is renewed.
pub const REKEY_FRAMES: u64 = 16384;
/// Feature bit: metadata are authenticated, not encrypted.
pub const FEATURE_CLEAR: u64 = 1;
/// The features that are had here.
pub const FEATURES: u64 = FEATURE_CLEAR;

/// Pages that a `GET` names at most.
pub const GET_MAX: u16 = 512;
/// Pages that a `PUT` carries at most.
pub const PUT_MAX: u16 = 64;
/// Entries of an `EVICTED` or a `FORGET` at most.
pub const NOTICE_MAX: u16 = 128;
/// Connections of a session that carry requests, its GET channel included.
pub const LANES_MAX: u8 = 4;

/// Bytes of a message's head, of the hello and of the answer.
pub const HEAD: usize = 8;
/// See [`HEAD`].
pub const HELLO: usize = 48;
/// See [`HEAD`].
pub const ANSWER: usize = 16;
/// Bytes of message 1 after its head: ephemeral point, sealed identity, sealed hello.
pub const MESSAGE_1: usize = POINT + POINT + TAG + HELLO + TAG;
/// Bytes of message 2 after its head: ephemeral point, sealed answer.
pub const MESSAGE_2: usize = POINT + ANSWER + TAG;
/// Bytes of a frame's header.
pub const FRAME: usize = 16;

/// What a peer sent is not of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A head that is of another message, protocol or version.
    #[error("no message of the handshake of version {VERSION}")]
    Head,
    /// There is no such channel.
    #[error("channel {0}: there are 0, 1 and 2")]
    Channel(u8),
    /// No session has this number.
    #[error("a session with number 0: it is drawn, and never 0")]
    Session,
    /// There is no such frame, or not on this channel.
    #[error("a frame of type {0} does not belong here")]
    Type(u8),
    /// More than was agreed on, or none where some are needed.
    #[error("a frame of type {kind} that counts {count}: {most} at most")]
    Count {
        /// Its type.
        kind: u8,
        /// What it counts.
        count: u16,
        /// What it may count.
        most: u16,
    },
    /// The length is not what type and count imply.
    #[error("a frame of type {kind} with {length} bytes where {implied} are implied")]
    Length {
        /// Its type.
        kind: u8,
        /// What it says.
        length: u32,
        /// What it should say.
        implied: u32,
    },
    /// A tag that is another one: somebody altered, left out or repeated something.
    #[error("what came does not verify")]
    Forged,
}

/// Takes fields off the front of bytes whose size was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().expect("sizes are those of the layout");
        self.0 = rest;
        *first
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// The messages of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Message {
    /// Borrower: who it is and what it wants.
    First = 1,
    /// Lender: whether it may.
    Second = 2,
    /// Borrower: message 1 was no repetition.
    Third = 3,
    /// Lender, in the clear: there is no handshake.
    Rejection = 4,
}

/// The head of a message.
pub fn head(message: Message, code: u8) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&MAGIC.to_le_bytes());
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[6] = message as u8;
    head[7] = code;
    head
}

/// Why there is no handshake, said in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reject {
    /// No such version is spoken here.
    Version = 1,
    /// Message 1 is not for this lender.
    Identity = 2,
}

/// The whole of a rejection: its head, and which versions are spoken here.
pub fn rejection(why: Reject) -> [u8; HEAD + 8] {
    let mut message = [0; HEAD + 8];
    message[..HEAD].copy_from_slice(&head(Message::Rejection, why as u8));
    message[HEAD..HEAD + 2].copy_from_slice(&VERSION.to_le_bytes());
    message[HEAD + 2..HEAD + 4].copy_from_slice(&VERSION.to_le_bytes());
    message
}

/// What a peer takes at once, of each at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of a session that carry requests.
    pub lanes: u8,
    /// Pages that a `GET` names.
    pub get: u16,
    /// Pages that a `PUT` carries.
    pub put: u16,
    /// Entries of an `EVICTED` or a `FORGET`.
    pub notices: u16,
}

/// What is taken here.
pub const MOST: Limits = Limits { lanes: LANES_MAX, get: GET_MAX, put: PUT_MAX, notices: NOTICE_MAX };

impl Limits {
    fn parse(from: &mut Fields) -> Self {
        Self { lanes: from.u8(), get: from.u16(), put: from.u16(), notices: from.u16() }
    }

    /// Whether each is one that the protocol has.
    pub fn valid(&self) -> bool {
        self.lanes >= 1
            && (1..=GET_MAX).contains(&self.get)
            && (1..=PUT_MAX).contains(&self.put)
            && (1..=NOTICE_MAX).contains(&self.notices)
    }

    /// What both keep to: the lesser of each.
    pub fn agree(&self, peer: &Self) -> Self {
        Self {
            lanes: self.lanes.min(peer.lanes),
            get: self.get.min(peer.get),
            put: self.put.min(peer.put),
            notices: self.notices.min(peer.notices),
        }
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Requests, replies, acknowledgements, notices: the first lane.
    Get,
    /// `PUT` frames only, borrower to lender.
    Put,
    /// A further lane: requests and replies, pings and pongs.
    Lane,
}

/// What message 1 carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Drawn by the borrower, never 0; on PUT and LANE that of the GET channel.
    pub session: u64,
    /// A former session that it would like to go on with, or 0.
    pub resume: u64,
    /// The newest version that it has given to a page.
    pub version: u64,
    /// Bytes that it would like to borrow.
    pub size: u64,
    /// Features that it would like.
    pub features: u64,
    /// What the connection is for.
    pub channel: Channel,
    /// What it takes at once, valid or not.
    pub limits: Limits,
}

impl Hello {
    /// Reads one; it is an error when there is no such channel, or session.
    pub fn parse(bytes: &[u8; HELLO]) -> Result<Self, Malformed> {
        let mut from = Fields(bytes);
        let (session, resume, version, size, features) = (from.u64(), from.u64(), from.u64(), from.u64(), from.u64());
        let channel = match from.u8() {
            0 => Channel::Get,
            1 => Channel::Put,
            2 => Channel::Lane,
            other => return Err(Malformed::Channel(other)),
        };
        if session == 0 {
            return Err(Malformed::Session);
        }
        Ok(Self { session, resume, version, size, features, channel, limits: Limits::parse(&mut from) })
    }
}

/// Whether a borrower is welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// It is.
    Welcome = 0,
    /// No borrower has this identity.
    Unknown = 1,
    /// One has, and may not connect now.
    Disabled = 2,
    /// Its limits are none.
    Limits = 3,
}

/// What message 2 carries: the features that both have, the verdict, and what is taken here at once.
pub fn answer(features: u64, verdict: Verdict) -> [u8; ANSWER] {
    let mut bytes = [0; ANSWER];
    bytes[..8].copy_from_slice(&features.to_le_bytes());
    bytes[8] = verdict as u8;
    bytes[9] = MOST.lanes;
    bytes[10..12].copy_from_slice(&MOST.get.to_le_bytes());
    bytes[12..14].copy_from_slice(&MOST.put.to_le_bytes());
    bytes[14..16].copy_from_slice(&MOST.notices.to_le_bytes());
    bytes
}

/// The frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Borrower: a file, and pages of it.
    Get = 1,
    /// Lender: what of these is here.
    Data,
    /// Borrower: pages.
    Put,
    /// Lender: which of these are kept.
    PutAck,
    /// Lender: pages that it has dropped.
    Evicted,
    /// Borrower: ranges that are of no use any more.
    Forget,
    /// Borrower: its `id` comes back.
    Ping,
    /// Lender: it does.
    Pong,
    /// Lender: what the borrower may count on.
    Grant,
    /// Borrower: bytes that it would like.
    Resize,
    /// Lender: nothing older than a version is here.
    EvictedBefore,
}

/// Flag of a `GET`: drop what you send.
pub const EXCLUSIVE: u8 = 1;
/// Flag of the first `GRANT`: the former session goes on.
pub const RESUMED: u8 = 1;
/// Flag of any `GRANT`: put nothing until one comes without it.
pub const HOLD: u8 = 2;

/// Bytes of an item: of a `GET`, `DATA`, `PUT`, `EVICTED`, `FORGET`.
pub const GET_ITEM: usize = 16;
/// See [`GET_ITEM`].
pub const DATA_ITEM: usize = 8 + TAG;
/// See [`GET_ITEM`].
pub const PUT_ITEM: usize = 24 + TAG;
/// See [`GET_ITEM`].
pub const EVICTED_ITEM: usize = 24;
/// See [`GET_ITEM`].
pub const FORGET_ITEM: usize = 32;

/// A frame that a borrower may send, checked: so many bytes of metadata follow, and so many of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Which one.
    pub kind: Kind,
    /// What it counts.
    pub count: u16,
    /// Its flags.
    pub flags: u8,
    /// Its number.
    pub id: u64,
    /// Bytes of metadata, without the tag.
    pub metadata: usize,
    /// Bytes of pages behind the tag.
    pub pages: usize,
}

/// Reads the header of a frame that came on a channel; `limits` are those that were agreed on.
///
/// A `GET` and a `PUT` name one page at least. What the length says must be what type and count imply.
pub fn expect(header: &[u8; FRAME], channel: Channel, limits: &Limits) -> Result<Expected, Malformed> {
    let mut from = Fields(header);
    let (length, type_, flags, count, id) = (from.u32(), from.u8(), from.u8(), from.u16(), from.u64());
    let (kind, least, most, fixed, each, pages) = match (channel, type_) {
        (Channel::Get | Channel::Lane, 1) => (Kind::Get, 1, limits.get, 8, GET_ITEM, 0),
        (Channel::Put, 3) => (Kind::Put, 1, limits.put, 0, PUT_ITEM, PAGE),
        (Channel::Get, 6) => (Kind::Forget, 0, limits.notices, 0, FORGET_ITEM, 0),
        (Channel::Get | Channel::Lane, 7) => (Kind::Ping, 0, 0, 0, 0, 0),
        (Channel::Get, 10) => (Kind::Resize, 0, 0, 8, 0, 0),
        _ => return Err(Malformed::Type(type_)),
    };
    if !(least..=most).contains(&count) {
        return Err(Malformed::Count { kind: type_, count, most });
    }
    let metadata = fixed + usize::from(count) * each;
    let pages = usize::from(count) * pages;
    let implied = (metadata + TAG + pages) as u32;
    if length != implied {
        return Err(Malformed::Length { kind: type_, length, implied });
    }
    Ok(Expected { kind, count, flags, id, metadata, pages })
}

/// The header of a frame with so many bytes of metadata and of pages.
pub fn frame(kind: Kind, flags: u8, count: usize, id: u64, metadata: usize, pages: usize) -> [u8; FRAME] {
    let mut header = [0; FRAME];
    header[..4].copy_from_slice(&((metadata + TAG + pages) as u32).to_le_bytes());
    header[4] = kind as u8;
    header[5] = flags;
    header[6..8].copy_from_slice(&(count as u16).to_le_bytes());
    header[8..].copy_from_slice(&id.to_le_bytes());
    header
}

/// What a borrower calls a page, and which version of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageId {
    /// Which file; drawn at random by the borrower.
    pub file: u64,
    /// Which of its pages.
    pub index: u64,
    /// Which version of that.
    pub version: u64,
}

impl PageId {
    fn parse(from: &mut Fields) -> Self {
        Self { file: from.u64(), index: from.u64(), version: from.u64() }
    }

    /// As an `EVICTED` has it.
    pub fn write(&self, to: &mut Vec<u8>) {
        for word in [self.file, self.index, self.version] {
            to.extend(word.to_le_bytes());
        }
    }
}

/// The pages that a `GET`'s metadata name.
pub fn get_items(metadata: &[u8]) -> impl Iterator<Item = PageId> + '_ {
    let (file, items) = metadata.split_at(8);
    let file = Fields(file).u64();
    items.chunks_exact(GET_ITEM).map(move |item| {
        let mut from = Fields(item);
        PageId { file, index: from.u64(), version: from.u64() }
    })
}

/// The pages that a `PUT`'s metadata name, with their tags.
pub fn put_items(metadata: &[u8]) -> impl Iterator<Item = (PageId, [u8; TAG])> + Clone + '_ {
    metadata.chunks_exact(PUT_ITEM).map(|item| {
        let mut from = Fields(item);
        (PageId::parse(&mut from), from.bytes())
    })
}

/// What a borrower has no use for any more: pages of a range, older than a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Of which file.
    pub file: u64,
    /// The first page.
    pub first: u64,
    /// The last page, which belongs to it.
    pub last: u64,
    /// Only versions below this one.
    pub before: u64,
}

/// The ranges that a `FORGET`'s metadata name.
pub fn forget_items(metadata: &[u8]) -> impl Iterator<Item = Range> + '_ {
    metadata.chunks_exact(FORGET_ITEM).map(|item| {
        let mut from = Fields(item);
        Range { file: from.u64(), first: from.u64(), last: from.u64(), before: from.u64() }
    })
}

/// The one number that a `RESIZE`'s metadata are.
pub fn number(metadata: &[u8]) -> u64 {
    Fields(metadata).u64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seal::{KEY, Sealer};

    const CHANNELS: [Channel; 3] = [Channel::Get, Channel::Put, Channel::Lane];
    /// The largest frame that there is: a full `PUT`.
    const LARGEST: usize = PUT_MAX as usize * (PUT_ITEM + PAGE);

    fn header(length: u32, kind: u8, count: u16) -> [u8; FRAME] {
        let mut header = frame(Kind::Ping, 0, count.into(), 9, 0, 0);
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = kind;
        header
    }

    /// Metadata as the other end has them: sealed, and opened again.
    fn carried(words: &[u64]) -> Vec<u8> {
        let mut metadata: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let [mut send, mut receive] = [(); 2].map(|()| Sealer::new(&[7; KEY]));
        let tag = send.seal(b"header", &mut metadata);
        receive.open(b"header", &mut metadata, &tag).unwrap();
        metadata
    }

    proptest! {
        /// Whatever comes, no frame is expected that is larger than the protocol has or counts more than was agreed on.
        #[test]
        fn any_header_is_bounded(bytes: [u8; FRAME], which in 0..3usize, get in 1..=GET_MAX, put in 1..=PUT_MAX) {
            let limits = Limits { get, put, ..MOST };
            if let Ok(expected) = expect(&bytes, CHANNELS[which], &limits) {
                prop_assert!(expected.metadata + expected.pages <= LARGEST);
                prop_assert!(expected.kind != Kind::Get || (1..=get).contains(&expected.count));
                prop_assert!(expected.kind != Kind::Put || (1..=put).contains(&expected.count));
            }
        }

        /// A header with the length that type and count imply is understood, and with any other it is not.
        #[test]
        fn length_is_what_the_count_implies(count in 1..=GET_MAX, off in 1u32..5000) {
            let implied = 8 + u32::from(count) * 16 + 16;
            let expected = expect(&header(implied, 1, count), Channel::Lane, &MOST).unwrap();
            prop_assert_eq!((expected.kind, expected.count, expected.id), (Kind::Get, count, 9));
            for length in [implied + off, implied.wrapping_sub(off)] {
                prop_assert!(expect(&header(length, 1, count), Channel::Lane, &MOST).is_err());
            }
        }

        /// Of what a borrower seals, whatever it is, each item is read word by word, and as many as its bytes are.
        #[test]
        fn items_are_the_words_that_came(words in prop::collection::vec(any::<u64>(), 5..=5 * NOTICE_MAX as usize)) {
            let metadata = carried(&words);
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let whole = |each| &words[..words.len() / each * each];
            let asked: Vec<_> = get_items(&metadata).flat_map(|page| [page.file, page.index, page.version]).collect();
            prop_assert_eq!(asked, words[1..].chunks_exact(2).flat_map(|item| [words[0], item[0], item[1]]).collect::<Vec<_>>());
            let put = put_items(&metadata);
            let put = put.flat_map(|(id, tag)| [id.file, id.index, id.version, word(&tag[..8]), word(&tag[8..])]);
            prop_assert_eq!(put.collect::<Vec<_>>(), whole(PUT_ITEM / 8));
            let forgotten = forget_items(&metadata).flat_map(|range| [range.file, range.first, range.last, range.before]);
            prop_assert_eq!(forgotten.collect::<Vec<_>>(), whole(FORGET_ITEM / 8));
            prop_assert_eq!(number(&metadata), words[0]);
        }

        /// A hello of any bytes is read or refused, and limits that pass are in the protocol's range.
        #[test]
        fn any_hello_is_read(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform16(any::<u8>())) {
            let mut whole = [0; HELLO];
            whole[..32].copy_from_slice(&bytes);
            whole[32..].copy_from_slice(&more);
            if let Ok(hello) = Hello::parse(&whole) {
                prop_assert_ne!(hello.session, 0);
                let agreed = hello.limits.agree(&MOST);
                prop_assert!(!hello.limits.valid() || agreed.valid() && agreed.lanes <= LANES_MAX);
            }
        }
    }

    #[test]
    fn a_session_has_a_number() {
        for channel in 0..3 {
            let mut hello = [0; HELLO];
            hello[40] = channel;
            assert_eq!(Hello::parse(&hello), Err(Malformed::Session));
            hello[7] = 1;
            assert!(Hello::parse(&hello).is_ok());
        }
    }

    #[test]
    fn a_channel_carries_its_own_frames_alone() {
        let length = |fixed: u32| fixed + TAG as u32;
        let allowed = |channel| {
            let frames = [(length(24), 1), (length(PUT_ITEM as u32 + PAGE as u32), 3), (length(32), 6)];
            let named = frames.map(|(length, kind)| expect(&header(length, kind, 1), channel, &MOST).is_ok());
            let bare = [(length(0), 7), (length(8), 10)];
            let bare = bare.map(|(length, kind)| expect(&header(length, kind, 0), channel, &MOST).is_ok());
            (named, bare)
        };
        assert_eq!(allowed(Channel::Get), ([true, false, true], [true, true]));
        assert_eq!(allowed(Channel::Put), ([false, true, false], [false, false]));
        assert_eq!(allowed(Channel::Lane), ([true, false, false], [true, false]));
    }

    #[test]
    fn nothing_is_asked_for_or_put_in_vain() {
        assert!(expect(&header(8 + TAG as u32, 1, 0), Channel::Get, &MOST).is_err());
        assert!(expect(&header(TAG as u32, 3, 0), Channel::Put, &MOST).is_err());
        assert!(expect(&header(TAG as u32, 6, 0), Channel::Get, &MOST).is_ok());
    }
}
