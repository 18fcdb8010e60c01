//! A connection after the handshake: frames in both directions, by absolute deadlines.
//!
//! One thread reads, [`Inbound`]; any may send, by the [`Link`]. Whoever [`Link::shut`]s it ends both at once, without waiting
//! for anybody. It is closed by a reset, so that the kernel keeps nothing for a peer that is gone.
//!
//! Whoever reads or writes waits in the socket itself, for [`AT_ONCE`] at most: so a frame that comes whole takes one call,
//! and so does one that goes. Only what takes longer is done with an eye on the clock.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::seal::{Keys, Sealer};
use crate::wire::{self, Channel, Expected, FRAME, HOLD, Kind, Limits, Malformed, PAGE, RESUMED, TAG};

/// What has begun to come or go must be through by then,
const FRAME_TIME: Duration = Duration::from_secs(5);
/// and a millisecond later for so many bytes of it.
const SLOWEST: u64 = 64;
/// One call that reads or writes waits so long at most, which is less than any frame has.
const AT_ONCE: Duration = Duration::from_secs(2);
/// A borrower pings each second.
const SILENCE: Duration = Duration::from_secs(15);
/// Read at once: what a frame has beside pages, most of the time.
const AHEAD: usize = 4096;
const USER_TIMEOUT: Duration = Duration::from_secs(8);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// What came is none of the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The connection itself, or the peer's clock.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The borrower puts before it was granted anything.
    #[error("pages come before the first grant has gone")]
    Early,
    /// It was shut from this side.
    #[error("the connection was shut")]
    Shut,
}

/// What a frame has of time for so many bytes.
fn time_of(bytes: usize) -> Duration {
    Duration::from_millis(bytes as u64 / SLOWEST)
}

/// A call that waits no longer, or was disturbed, and may be made again.
fn is_brief(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn late() -> Ended {
    io::Error::from(ErrorKind::TimedOut).into()
}

/// What both directions share.
struct Socket {
    stream: TcpStream,
    shut: AtomicBool,
}

impl Socket {
    fn shut(&self) {
        if !self.shut.swap(true, Ordering::AcqRel) {
            let _ = self.stream.shutdown(Shutdown::Both); // whose peer has gone already need not be
        }
    }

    fn check(&self) -> Result<(), Ended> {
        if self.shut.load(Ordering::Acquire) { Err(Ended::Shut) } else { Ok(()) }
    }

    /// Why it ended: what a call says after it was shut is of no interest.
    fn ended(&self, error: io::Error) -> Ended {
        self.check().err().unwrap_or(Ended::Io(error))
    }

    /// Waits until there is something to read, the end included; false when there is nothing until then.
    fn comes_by(&self, until: Option<Instant>) -> io::Result<bool> {
        let mut wanted = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut wanted, until.map(milliseconds)) {
                Err(Errno::EINTR) => (),
                polled => return Ok(polled? > 0),
            }
        }
    }
}

/// Until then, and no less.
fn milliseconds(until: Instant) -> PollTimeout {
    let left = until.saturating_duration_since(Instant::now());
    let whole = left.as_nanos().div_ceil(1_000_000);
    whole.try_into().unwrap_or(PollTimeout::MAX)
}

/// A frame that came. Its metadata are authentic, whatever they say.
pub struct Frame {
    /// What its header says.
    pub expected: Expected,
    /// Its items.
    pub metadata: Vec<u8>,
}

impl Frame {
    /// Room for the frames that come.
    pub fn new() -> Self {
        let expected = Expected { kind: Kind::Ping, count: 0, flags: 0, id: 0, metadata: 0, pages: 0 };
        Self { expected, metadata: Vec::new() }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

struct Incoming(Arc<Socket>);

impl Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&self.0.stream).read(to)
    }
}

/// What a connection's own thread reads.
pub struct Inbound {
    read: BufReader<Incoming>,
    sealer: Sealer,
    channel: Channel,
    limits: Limits,
    /// What the present frame has of its time: the clock stands still while nobody reads.
    left: Duration,
}

impl Inbound {
    fn socket(&self) -> &Socket {
        &self.read.get_ref().0
    }

    /// Whether something has come that was not read yet, if only the end.
    pub fn has_come(&self) -> bool {
        !self.read.buffer().is_empty() || self.socket().comes_by(Some(Instant::now())).unwrap_or(true)
    }

    /// The next frame, without its pages. A borrower that says nothing for 15 s is gone, but for the PUT channel.
    pub fn frame(&mut self, frame: &mut Frame) -> Result<(), Ended> {
        self.socket().check()?;
        self.begun()?;
        self.left = FRAME_TIME;
        let mut header = [0; FRAME];
        self.fill(&mut header)?;
        let expected = wire::expect(&header, self.channel, &self.limits)?;
        self.left += time_of(expected.metadata + TAG + expected.pages);
        frame.metadata.resize(expected.metadata + TAG, 0);
        self.fill(&mut frame.metadata)?;
        let (metadata, tag) = frame.metadata.split_at_mut(expected.metadata);
        self.sealer.open(&header, metadata, (&*tag).try_into().expect("so much is left"))?;
        frame.metadata.truncate(expected.metadata);
        frame.expected = expected;
        Ok(())
    }

    /// Waits for its first bytes.
    fn begun(&mut self) -> Result<(), Ended> {
        while self.read.buffer().is_empty() {
            match self.read.fill_buf() {
                Ok([]) => return Err(self.socket().ended(ErrorKind::UnexpectedEof.into())),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_long()?,
                Err(error) => return Err(self.socket().ended(error)),
            }
        }
        Ok(())
    }

    /// Goes on waiting for a frame: the peer has said nothing for as long as one call waits.
    fn wait_long(&self) -> Result<(), Ended> {
        let until = (self.channel != Channel::Put).then(|| Instant::now() + (SILENCE - AT_ONCE));
        if self.socket().comes_by(until)? { Ok(()) } else { Err(late()) }
    }

    /// The pages that follow.
    pub fn pages(&mut self, pages: &mut [u8]) -> Result<(), Ended> {
        self.fill(pages)
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<(), Ended> {
        if to.len() <= self.read.buffer().len() {
            return Ok(self.read.read_exact(to)?);
        }
        let begin = Instant::now();
        let filled = self.fill_by(begin + self.left, to);
        self.left = self.left.saturating_sub(begin.elapsed());
        filled
    }

    fn fill_by(&mut self, until: Instant, mut to: &mut [u8]) -> Result<(), Ended> {
        while !to.is_empty() {
            self.may_read(until)?;
            match self.read.read(to) {
                Ok(0) => return Err(self.socket().ended(ErrorKind::UnexpectedEof.into())),
                Ok(count) => to = &mut to[count..],
                Err(error) if is_brief(&error) => (),
                Err(error) => return Err(self.socket().ended(error)),
            }
        }
        Ok(())
    }

    /// A call that reads now waits no longer than until then.
    fn may_read(&self, until: Instant) -> Result<(), Ended> {
        self.socket().check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        let waits_in_time = left >= AT_ONCE || !self.read.buffer().is_empty();
        if waits_in_time || self.socket().comes_by(Some(until))? { Ok(()) } else { Err(late()) }
    }
}

/// What is sent on a connection, in order.
pub struct Outbound {
    sealer: Sealer,
    greeted: bool,
    /// How many notices the last `EVICTED_BEFORE` stood for.
    pub told: u64,
    /// Where frames without pages are put together.
    room: Vec<u8>,
}

/// See the module.
pub struct Link {
    /// What it is for.
    pub channel: Channel,
    /// What both ends keep to.
    pub limits: Limits,
    /// Its number among all connections that were accepted.
    pub ordinal: u64,
    /// Whether its end is that of the session: a lane's only once it was used.
    vital: AtomicBool,
    socket: Arc<Socket>,
    /// Who is the next to send: whoever has just sent comes after those that wait.
    turn: Mutex<()>,
    out: Mutex<Outbound>,
}

impl Link {
    /// What there is of a connection once the handshake is over.
    pub fn new(
        stream: TcpStream,
        keys: Keys,
        channel: Channel,
        limits: Limits,
        ordinal: u64,
    ) -> io::Result<(Self, Inbound)> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(AT_ONCE))?;
        stream.set_write_timeout(Some(AT_ONCE))?;
        tune(&stream);
        let socket = Arc::new(Socket { stream, shut: AtomicBool::new(false) });
        let read = BufReader::with_capacity(AHEAD, Incoming(Arc::clone(&socket)));
        let inbound = Inbound { read, sealer: keys.receive, channel, limits, left: FRAME_TIME };
        let greeted = channel != Channel::Get; // else with its grant
        let out = Mutex::new(Outbound { sealer: keys.send, greeted, told: 0, room: Vec::new() });
        let vital = AtomicBool::new(channel != Channel::Lane);
        Ok((Self { channel, limits, ordinal, vital, socket, turn: Mutex::new(()), out }, inbound))
    }

    /// Ends it.
    pub fn shut(&self) {
        self.socket.shut();
    }

    /// Whether it was.
    pub fn is_shut(&self) -> bool {
        self.socket.check().is_err()
    }

    /// Whether its end is that of the session.
    pub fn is_vital(&self) -> bool {
        self.vital.load(Ordering::Relaxed)
    }

    /// From now on it is.
    pub fn set_vital(&self) {
        self.vital.store(true, Ordering::Relaxed);
    }

    /// The right to send several frames in a row. Waits for those that others send, of which each has its time.
    pub fn sending(&self) -> Result<Sending<'_>, Ended> {
        let turn = self.turn.lock().expect("nobody panics with it");
        let out = self.out.lock().expect("nobody panics with it");
        drop(turn);
        self.socket.check()?;
        Ok(Sending { link: self, out })
    }

    /// Sends one frame without pages.
    pub fn send(&self, kind: Kind, count: usize, id: u64, metadata: &[u8]) -> Result<(), Ended> {
        self.sending()?.send(kind, 0, count, id, metadata)
    }

    /// Sends a `GRANT`, which comes before any other frame; the first says whether the session was resumed.
    pub fn grant(&self, bytes: u64, linger_ms: u64, resumed: bool, hold: bool) -> Result<(), Ended> {
        let mut sending = self.sending()?;
        let first = !std::mem::replace(&mut sending.out.greeted, true);
        let flags = if first && resumed { RESUMED } else { 0 } | if hold { HOLD } else { 0 };
        let mut metadata = [0; 16];
        metadata[..8].copy_from_slice(&bytes.to_le_bytes());
        metadata[8..].copy_from_slice(&linger_ms.to_le_bytes());
        sending.send(Kind::Grant, flags, 0, 0, &metadata)
    }

    /// Writes a frame, which has so much of time from now on. What is not through at once is written with an eye on the clock.
    fn write(&self, frame: &[u8]) -> Result<(), Ended> {
        match (&self.socket.stream).write(frame) {
            Ok(count) if count == frame.len() => Ok(()),
            Ok(count) => self.write_rest(frame, count),
            Err(error) if is_brief(&error) => self.write_rest(frame, 0),
            Err(error) => Err(self.socket.ended(error)),
        }
    }

    /// One call has waited for so long as it may: the time that is left is less by that.
    fn write_rest(&self, frame: &[u8], done: usize) -> Result<(), Ended> {
        let until = Instant::now() + (FRAME_TIME - AT_ONCE) + time_of(frame.len());
        let written = self.write_by(until, &frame[done..]);
        self.socket.stream.set_write_timeout(Some(AT_ONCE))?;
        written
    }

    fn write_by(&self, until: Instant, mut rest: &[u8]) -> Result<(), Ended> {
        while !rest.is_empty() {
            self.socket.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            self.socket.stream.set_write_timeout(Some(left))?;
            match (&self.socket.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_brief(&error) => (),
                Err(error) => return Err(self.socket.ended(error)),
            }
        }
        Ok(())
    }
}

/// See [`Link::sending`].
pub struct Sending<'a> {
    link: &'a Link,
    /// What is sent on.
    pub out: MutexGuard<'a, Outbound>,
}

impl Sending<'_> {
    /// Sends a frame without pages.
    pub fn send(&mut self, kind: Kind, flags: u8, count: usize, id: u64, metadata: &[u8]) -> Result<(), Ended> {
        let header = wire::frame(kind, flags, count, id, metadata.len(), 0);
        let mut frame = std::mem::take(&mut self.out.room);
        frame.clear();
        for part in [&header, metadata, &[0; TAG]] {
            frame.extend_from_slice(part);
        }
        let sent = self.send_reply(&mut frame, metadata.len());
        self.out.room = frame;
        sent
    }

    /// Sends a reply that lies in one piece: header, so many bytes of metadata, room for the tag, pages.
    pub fn send_reply(&mut self, frame: &mut [u8], metadata: usize) -> Result<(), Ended> {
        if !self.out.greeted {
            return Err(Ended::Early);
        }
        let (header, rest) = frame.split_at_mut(FRAME);
        let (metadata, rest) = rest.split_at_mut(metadata);
        let tag = self.out.sealer.seal(header, metadata);
        rest[..TAG].copy_from_slice(&tag);
        let sent = self.link.write(frame);
        if sent.is_err() {
            self.link.shut(); // half of it may have gone
        }
        sent
    }
}

/// Room for a reply of at most so many items, in the layout that [`Sending::send_reply`] takes.
#[derive(Default)]
pub struct Reply(Vec<u8>);

/// What a reply's buffer keeps from one to the next: a large read-ahead's.
const KEPT: usize = 160 * PAGE;

impl Reply {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for so many bytes of metadata and so many pages.
    pub fn prepare(&mut self, metadata: usize, pages: usize) -> ReplyParts<'_> {
        let need = FRAME + metadata + TAG + pages * PAGE;
        if self.0.len() < need {
            self.0.resize(need, 0);
        }
        let (before, pages) = self.0.split_at_mut(FRAME + metadata + TAG);
        ReplyParts { items: &mut before[FRAME..FRAME + metadata], pages }
    }

    /// The frame as it is to be sent.
    pub fn finish(&mut self, header: [u8; FRAME], metadata: usize, hits: usize) -> &mut [u8] {
        self.0[..FRAME].copy_from_slice(&header);
        &mut self.0[..FRAME + metadata + TAG + hits * PAGE]
    }

    /// Gives back what only a large reply takes.
    pub fn shrink(&mut self) {
        if self.0.len() > KEPT {
            self.0 = Vec::new();
        }
    }
}

/// See [`Reply::prepare`].
#[derive(Default)]
pub struct ReplyParts<'a> {
    /// The items.
    pub items: &'a mut [u8],
    /// The pages.
    pub pages: &'a mut [u8],
}

/// For small frames, and for a peer that may be gone. What cannot be set is as the kernel has it.
fn tune(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    let tuned = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_linger(Some(Duration::ZERO)))
        .and_then(|()| socket.set_keepalive(true))
        .and_then(|()| socket.set_tcp_user_timeout(Some(USER_TIMEOUT)));
    if let Err(error) = tuned {
        tracing::debug!(%error, "a connection is as the kernel made it");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::seal::KEY;
    use crate::wire::{GET_ITEM, MOST, PUT_ITEM};

    const KEYS: ([u8; KEY], [u8; KEY]) = ([1; KEY], [2; KEY]);
    const SOON: Duration = Duration::from_millis(100);

    /// A connection: the peer's end, and this one.
    fn connected(channel: Channel) -> (TcpStream, Link, Inbound) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let (link, inbound) = Link::new(stream, Keys::new(&mut KEYS.clone()), channel, MOST, 1).unwrap();
        (peer, link, inbound)
    }

    /// A frame as the peer sends it, without pages.
    fn sealed(sealer: &mut Sealer, kind: Kind, count: usize, metadata: usize, pages: usize) -> Vec<u8> {
        let (header, mut metadata) = (wire::frame(kind, 0, count, 7, metadata, pages), vec![3; metadata]);
        let tag = sealer.seal(&header, &mut metadata);
        [&header[..], &metadata, &tag].concat()
    }

    fn get(sealer: &mut Sealer) -> Vec<u8> {
        sealed(sealer, Kind::Get, 1, 8 + GET_ITEM, 0)
    }

    fn put(sealer: &mut Sealer) -> Vec<u8> {
        sealed(sealer, Kind::Put, 1, PUT_ITEM, PAGE)
    }

    fn peers() -> Sealer {
        Sealer::new(&KEYS.0)
    }

    /// Byte by byte until the other end has gone.
    fn trickle(mut peer: TcpStream, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            if peer.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(pause);
        }
    }

    fn is_late(ended: &Result<(), Ended>) -> bool {
        matches!(ended, Err(Ended::Io(error)) if error.kind() == ErrorKind::TimedOut)
    }

    /// Whether a frame's time was over, and no more.
    fn is_in_time(begin: Instant, bytes: usize) -> bool {
        let time = FRAME_TIME + time_of(bytes);
        (time..time + Duration::from_secs(2)).contains(&begin.elapsed())
    }

    #[test]
    fn a_frame_that_trickles_has_its_time_and_no_more() {
        let (peer, link, mut inbound) = connected(Channel::Get);
        thread::scope(|scope| {
            scope.spawn(|| trickle(peer, &get(&mut peers()), Duration::from_millis(150)));
            let begin = Instant::now();
            assert!(is_late(&inbound.frame(&mut Frame::new())));
            assert!(is_in_time(begin, 8 + GET_ITEM + TAG), "{:?}", begin.elapsed());
            drop((link, inbound)); // so the peer ends, too
        });
    }

    #[test]
    fn pages_that_trickle_have_their_time_and_no_more() {
        let (mut peer, link, mut inbound) = connected(Channel::Put);
        peer.write_all(&put(&mut peers())).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| trickle(peer, &[0; PAGE], Duration::from_millis(2)));
            let begin = Instant::now();
            inbound.frame(&mut Frame::new()).unwrap();
            assert!(is_late(&inbound.pages(&mut [0; PAGE])));
            assert!(is_in_time(begin, PUT_ITEM + TAG + PAGE), "{:?}", begin.elapsed());
            drop((link, inbound)); // so the peer ends, too
        });
    }

    /// The clock stands still while nobody reads, as when pages wait for notices to be sent.
    #[test]
    fn pages_have_their_time_though_nobody_read_for_a_while() {
        let (mut peer, _link, mut inbound) = connected(Channel::Put);
        peer.write_all(&put(&mut peers())[..FRAME]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(3));
                peer.write_all(&put(&mut peers())[FRAME..]).unwrap();
                thread::sleep(Duration::from_secs(4));
                peer.write_all(&[9; PAGE]).unwrap();
            });
            inbound.frame(&mut Frame::new()).unwrap();
            thread::sleep(Duration::from_secs(3));
            let mut page = [0; PAGE];
            inbound.pages(&mut page).unwrap();
            assert_eq!(page, [9; PAGE]);
        });
    }

    /// Room for hardly anything that is under way.
    fn narrow(peer: &TcpStream, link: &Link) {
        socket2::SockRef::from(peer).set_recv_buffer_size(4096).unwrap();
        socket2::SockRef::from(&link.socket.stream).set_send_buffer_size(4096).unwrap();
    }

    #[test]
    fn a_reply_that_is_taken_in_sips_has_its_time_and_no_more() {
        let (mut peer, link, _inbound) = connected(Channel::Lane);
        narrow(&peer, &link);
        let mut frame = vec![0; 40 * PAGE];
        thread::scope(|scope| {
            scope.spawn(move || {
                while peer.read(&mut [0; 512]).is_ok_and(|count| count > 0) {
                    thread::sleep(SOON);
                }
            });
            let begin = Instant::now();
            let sent = link.sending().unwrap().send_reply(&mut frame, 0);
            assert!(is_late(&sent), "{sent:?}");
            assert!(is_in_time(begin, frame.len()), "{:?}", begin.elapsed());
            assert!(matches!(link.sending().map(drop), Err(Ended::Shut)));
        });
    }

    /// For longer than one call waits: afterwards all is as before, in both directions.
    #[test]
    fn a_pause_within_its_time_harms_no_frame() {
        let (mut peer, link, mut inbound) = connected(Channel::Lane);
        narrow(&peer, &link);
        let (mut sealer, mut opener, pause) = (peers(), Sealer::new(&KEYS.1), AT_ONCE + Duration::from_secs(1));
        let mut frame = vec![0; 16 * PAGE];
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..2 {
                    let bytes = get(&mut sealer);
                    peer.write_all(&bytes[..40]).unwrap();
                    thread::sleep(pause);
                    peer.write_all(&bytes[40..]).unwrap();
                    let mut reply = vec![1; 16 * PAGE];
                    peer.read_exact(&mut reply).unwrap();
                    let tag = reply[FRAME..FRAME + TAG].try_into().unwrap();
                    opener.open(&reply[..FRAME], &mut [], &tag).unwrap();
                }
            });
            for _ in 0..2 {
                let mut asked = Frame::new();
                thread::scope(|scope| {
                    scope.spawn(|| link.sending().unwrap().send_reply(&mut frame, 0).unwrap());
                    inbound.frame(&mut asked).unwrap();
                });
                assert_eq!((asked.expected.kind, asked.metadata), (Kind::Get, vec![3; 8 + GET_ITEM]));
            }
        });
        let waits = [link.socket.stream.read_timeout(), link.socket.stream.write_timeout()];
        assert_eq!(waits.map(Result::unwrap), [Some(AT_ONCE); 2]);
    }

    #[test]
    fn who_reads_who_sends_and_who_waits_to_send_end_when_it_is_shut() {
        let (_peer, link, mut inbound) = connected(Channel::Lane);
        let mut frame = vec![0; 4096 * PAGE];
        let begin = Instant::now();
        thread::scope(|scope| {
            let sends = scope.spawn(|| link.sending().unwrap().send_reply(&mut frame, 0));
            thread::sleep(SOON);
            let waits = scope.spawn(|| link.send(Kind::Pong, 0, 1, &[]));
            let reads = scope.spawn(|| inbound.frame(&mut Frame::new()));
            thread::sleep(SOON);
            assert!(!sends.is_finished() && !waits.is_finished() && !reads.is_finished());
            link.shut();
            for ended in [sends, waits, reads].map(|thread| thread.join().unwrap()) {
                assert!(matches!(ended, Err(Ended::Shut)), "{ended:?}");
            }
        });
        assert!(begin.elapsed() < FRAME_TIME);
    }

    #[test]
    fn what_has_come_before_it_was_shut_is_not_served() {
        let (mut peer, link, mut inbound) = connected(Channel::Get);
        let mut sealer = peers();
        peer.write_all(&[get(&mut sealer), get(&mut sealer)].concat()).unwrap();
        inbound.frame(&mut Frame::new()).unwrap();
        link.shut();
        assert!(matches!(inbound.frame(&mut Frame::new()), Err(Ended::Shut)));
    }

    #[test]
    fn it_is_known_whether_something_has_come() {
        let (mut peer, _link, mut inbound) = connected(Channel::Get);
        let mut sealer = peers();
        assert!(!inbound.has_come());
        peer.write_all(&[get(&mut sealer), get(&mut sealer)].concat()).unwrap();
        for _ in 0..2 {
            assert!(inbound.has_come());
            inbound.frame(&mut Frame::new()).unwrap();
        }
        assert!(!inbound.has_come());
        drop(peer);
        assert!(inbound.has_come());
    }

    /// Whoever sends again and again lets others between.
    #[test]
    fn who_waits_to_send_comes_before_who_has_just_sent() {
        let (mut peer, link, _inbound) = connected(Channel::Lane);
        thread::scope(|scope| {
            scope.spawn(move || io::copy(&mut peer, &mut io::sink()));
            let one = scope.spawn(|| (0..).take_while(|_| link.send(Kind::Pong, 0, 1, &[]).is_ok()).count());
            for _ in 0..100 {
                link.send(Kind::Pong, 0, 2, &[]).unwrap();
            }
            link.shut();
            let others = one.join().unwrap();
            assert!(others < 100_000, "{others}");
        });
    }
}
