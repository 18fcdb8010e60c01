//! A connection after the handshake: frames in both directions, by absolute deadlines.
//!
//! One task reads, [`Inbound`]; any may send, by the [`Link`]. Whoever [`Link::shut`]s it ends both at once, without waiting
//! for anybody. It is closed by a reset, so that the kernel keeps nothing for a peer that is gone.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::seal::{Keys, Sealer};
use crate::wire::{self, Channel, Expected, FRAME, HOLD, Kind, Limits, Malformed, PAGE, RESUMED, TAG};

/// What has begun to come or go must be through by then,
const FRAME_TIME: Duration = Duration::from_secs(5);
/// and a millisecond later for so many bytes of it.
const SLOWEST: u64 = 64;
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

/// When something of so many bytes must be through that begins now.
fn deadline(bytes: usize) -> Instant {
    Instant::now() + FRAME_TIME + time_of(bytes)
}

fn time_of(bytes: usize) -> Duration {
    Duration::from_millis(bytes as u64 / SLOWEST)
}

async fn by<T>(
    until: Option<Instant>,
    shut: &CancellationToken,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Ended> {
    let late = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    if shut.is_cancelled() {
        return Err(Ended::Shut);
    }
    // What is ready at once, as most of the time, need not wait for anything: to enter and leave two lists costs more.
    tokio::select! {
        biased;
        done = work => Ok(done?),
        () = shut.cancelled() => Err(Ended::Shut),
        () = late => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// A frame that came. Its metadata are authentic, whatever they say.
pub struct Frame {
    /// What its header says.
    pub expected: Expected,
    /// Its items.
    pub metadata: Vec<u8>,
}

/// What a connection's own task reads.
pub struct Inbound {
    read: BufReader<OwnedReadHalf>,
    sealer: Sealer,
    channel: Channel,
    limits: Limits,
    shut: CancellationToken,
    /// When the peer has been silent for too long, and when it was shut: asked for each frame, and entered once.
    silent: Pin<Box<Sleep>>,
    shutting: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What the pages of the present frame have of its time: the clock stands still while nobody reads.
    left: Duration,
}

impl Inbound {
    /// The next frame, without its pages. A borrower that says nothing for 15 s is gone, but for the PUT channel.
    pub async fn frame(&mut self) -> Result<Frame, Ended> {
        self.begun().await?;
        let begun = deadline(0);
        let mut header = [0; FRAME];
        by(Some(begun), &self.shut, self.read.read_exact(&mut header)).await?;
        let expected = wire::expect(&header, self.channel, &self.limits)?;
        let mut metadata = vec![0; expected.metadata + TAG];
        let until = begun + time_of(metadata.len() + expected.pages);
        by(Some(until), &self.shut, self.read.read_exact(&mut metadata)).await?;
        let tag = metadata.split_off(expected.metadata).try_into().expect("so much is left");
        self.sealer.open(&header, &mut metadata, &tag)?;
        self.left = until.saturating_duration_since(Instant::now());
        Ok(Frame { expected, metadata })
    }

    /// Waits for its first bytes.
    async fn begun(&mut self) -> Result<(), Ended> {
        if self.shut.is_cancelled() {
            return Err(Ended::Shut);
        }
        self.silent.as_mut().reset(Instant::now() + SILENCE);
        tokio::select! {
            biased;
            done = self.read.fill_buf() => Ok(done.map(drop)?),
            () = &mut self.shutting => Err(Ended::Shut),
            () = &mut self.silent, if self.channel != Channel::Put => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    /// The pages that follow.
    pub async fn pages(&mut self, pages: &mut [u8]) -> Result<(), Ended> {
        by(Some(Instant::now() + self.left), &self.shut, self.read.read_exact(pages)).await?;
        Ok(())
    }
}

/// What is sent on a connection, in order.
pub struct Outbound {
    write: OwnedWriteHalf,
    sealer: Sealer,
    greeted: bool,
    /// How many notices the last `EVICTED_BEFORE` stood for.
    pub told: u64,
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
    shut: CancellationToken,
    out: Mutex<Outbound>,
}

impl Link {
    /// What there is of a connection once the handshake is over.
    pub fn new(stream: TcpStream, keys: Keys, channel: Channel, limits: Limits, ordinal: u64) -> (Self, Inbound) {
        tune(&stream);
        let (read, write) = stream.into_split();
        let shut = CancellationToken::new();
        let read = BufReader::with_capacity(AHEAD, read);
        let silent = Box::pin(tokio::time::sleep(SILENCE));
        let shutting = Box::pin(shut.clone().cancelled_owned());
        let inbound = Inbound {
            read,
            sealer: keys.receive,
            channel,
            limits,
            shut: shut.clone(),
            silent,
            shutting,
            left: FRAME_TIME,
        };
        let greeted = channel != Channel::Get; // else with its grant
        let out = Mutex::new(Outbound { write, sealer: keys.send, greeted, told: 0 });
        let vital = AtomicBool::new(channel != Channel::Lane);
        (Self { channel, limits, ordinal, vital, shut, out }, inbound)
    }

    /// Ends it.
    pub fn shut(&self) {
        self.shut.cancel();
    }

    /// Whether its end is that of the session.
    pub fn is_vital(&self) -> bool {
        self.vital.load(Ordering::Relaxed)
    }

    /// From now on it is.
    pub fn set_vital(&self) {
        self.vital.store(true, Ordering::Relaxed);
    }

    /// The right to send several frames in a row.
    pub async fn sending(&self) -> Result<Sending<'_>, Ended> {
        if self.shut.is_cancelled() {
            return Err(Ended::Shut);
        }
        tokio::select! {
            biased;
            out = self.out.lock() => Ok(Sending { link: self, out }),
            () = self.shut.cancelled() => Err(Ended::Shut),
        }
    }

    /// Sends one frame without pages.
    pub async fn send(&self, kind: Kind, count: usize, id: u64, metadata: &[u8]) -> Result<(), Ended> {
        self.sending().await?.send(kind, 0, count, id, metadata).await
    }

    /// Sends a `GRANT`, which comes before any other frame; the first says whether the session was resumed.
    pub async fn grant(&self, bytes: u64, linger_ms: u64, resumed: bool, hold: bool) -> Result<(), Ended> {
        let mut sending = self.sending().await?;
        let first = !std::mem::replace(&mut sending.out.greeted, true);
        let flags = if first && resumed { RESUMED } else { 0 } | if hold { HOLD } else { 0 };
        let metadata = [bytes.to_le_bytes(), linger_ms.to_le_bytes()].concat();
        sending.send(Kind::Grant, flags, 0, 0, &metadata).await
    }
}

/// See [`Link::sending`].
pub struct Sending<'a> {
    link: &'a Link,
    /// What is sent on.
    pub out: tokio::sync::MutexGuard<'a, Outbound>,
}

impl Sending<'_> {
    /// Sends a frame without pages.
    pub async fn send(&mut self, kind: Kind, flags: u8, count: usize, id: u64, metadata: &[u8]) -> Result<(), Ended> {
        let header = wire::frame(kind, flags, count, id, metadata.len(), 0);
        let mut frame = [&header, metadata, &[0; TAG]].concat();
        self.seal_and_send(&mut frame, metadata.len()).await
    }

    /// Sends a reply that lies in one piece: header, so many bytes of metadata, room for the tag, pages.
    pub async fn send_reply(&mut self, frame: &mut [u8], metadata: usize) -> Result<(), Ended> {
        self.seal_and_send(frame, metadata).await
    }

    async fn seal_and_send(&mut self, frame: &mut [u8], metadata: usize) -> Result<(), Ended> {
        if !self.out.greeted {
            return Err(Ended::Early);
        }
        let (header, rest) = frame.split_at_mut(FRAME);
        let (metadata, rest) = rest.split_at_mut(metadata);
        let tag = self.out.sealer.seal(header, metadata);
        rest[..TAG].copy_from_slice(&tag);
        let sent = by(Some(deadline(frame.len())), &self.link.shut, self.out.write.write_all(frame)).await;
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
