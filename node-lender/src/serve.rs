//! What a lender answers, and what it says by itself: a thread for each connection, and one more for notices.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::link::{Ended, Frame, Inbound, Link, Reply};
use crate::session::{Attached, Borrower, NotNow, count};
use crate::shelf::Found;
use crate::unwanted::Unwanted;
use crate::wire::{self, Channel, DATA_ITEM, EXCLUSIVE, Hello, Kind, NOTICE_MAX, PAGE, PUT_MAX, PageId};

/// Notices wait so long for others.
const TELL_DELAY: Duration = Duration::from_millis(50);
/// Of a thread, which has all that is large elsewhere.
const STACK: usize = 256 << 10;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
pub enum NotServed {
    /// Its session has no room for it.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// The kernel makes no more threads.
    #[error("there is no thread to serve it: {0}")]
    NoThread(#[from] io::Error),
}

/// A connection whose handshake is over, and that is part of no session yet.
pub struct Newcomer {
    /// Whose it is.
    pub borrower: Arc<Borrower>,
    /// What it wants.
    pub hello: Hello,
    /// What is sent on it.
    pub link: Arc<Link>,
    /// What it sends.
    pub inbound: Inbound,
}

impl Newcomer {
    /// Serves it on threads of its own until it ends, or says why not: then nothing of its session has changed.
    pub fn start(self, refused: impl FnOnce(NotServed) + Send + 'static) -> Result<(), NotServed> {
        let name = match self.link.channel {
            Channel::Get => "get",
            Channel::Put => "put",
            Channel::Lane => "lane",
        };
        start_thread(name, move || self.serve().unwrap_or_else(refused))?;
        Ok(())
    }

    fn serve(mut self) -> Result<(), NotServed> {
        let notifier = match self.link.channel {
            Channel::Get => Some(Notifier::start(&self.borrower, &self.link)?),
            Channel::Put | Channel::Lane => None,
        };
        let attached = self.borrower.attach(Arc::clone(&self.link), &self.hello)?;
        let notifier = notifier; // so it ends before the connection is part of its session no more
        let ended = match &notifier {
            Some(notifier) => serve_get_channel(&attached, &mut self.inbound, notifier),
            None if self.link.channel == Channel::Put => serve_puts(&self.borrower, &mut self.inbound),
            None => serve_lane(&self.borrower, &self.link, &mut self.inbound),
        };
        if let Err(why) = ended {
            note(&self.borrower, &self.link, &why);
        }
        Ok(())
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)
}

fn note(borrower: &Borrower, link: &Link, why: &Ended) {
    if let Ended::Malformed(why) = why {
        link.set_vital();
        count(&borrower.counts.bad_frames, 1);
        tracing::warn!(borrower = borrower.name, %why, "connection closed");
    } else {
        tracing::debug!(borrower = borrower.name, %why, "connection ended");
    }
}

/// A thread that tells the borrower what it has not asked. It ends with this, and the connection with either.
struct Notifier {
    borrower: Arc<Borrower>,
    link: Arc<Link>,
    begin: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// One that waits until it is told to begin.
    fn start(borrower: &Arc<Borrower>, link: &Arc<Link>) -> io::Result<Self> {
        let (begin, begun) = mpsc::channel::<()>();
        let (whom, on) = (Arc::clone(borrower), Arc::clone(link));
        let thread = start_thread("notices", move || {
            if begun.recv().is_err() {
                return; // the connection has become part of no session
            }
            if let Err(why) = tell(&whom, &on) {
                tracing::debug!(borrower = whom.name, %why, "notices ended");
                on.shut();
            }
        })?;
        let (borrower, link) = (Arc::clone(borrower), Arc::clone(link));
        Ok(Self { borrower, link, begin: Some(begin), thread: Some(thread) })
    }

    fn begin(&self) {
        let _ = self.begin.as_ref().map(|begin| begin.send(())); // it is there until this goes
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.link.shut();
        self.begin = None;
        self.borrower.tell.wake();
        let _ = self.thread.take().map(JoinHandle::join); // if it has panicked, that is in the log
    }
}

fn serve_get_channel(attached: &Attached, inbound: &mut Inbound, notifier: &Notifier) -> Result<(), Ended> {
    let Attached { borrower, link, resumed } = attached;
    let (bytes, linger_ms, hold) = borrower.granted();
    link.grant(bytes, linger_ms, *resumed, hold)?;
    borrower.tell.ring(); // what has gone meanwhile
    notifier.begin();
    serve_lane(borrower, link, inbound)
}

/// Tells the borrower its grant when that has changed, and which pages are gone.
fn tell(borrower: &Borrower, link: &Link) -> Result<(), Ended> {
    while !link.is_shut() {
        borrower.tell.hear(|| link.is_shut());
        if borrower.take_grant_due() {
            let (bytes, linger_ms, hold) = borrower.granted();
            link.grant(bytes, linger_ms, false, hold)?;
        }
        borrower.tell.pause(TELL_DELAY, || link.is_shut());
        while send_evicted(borrower, link)? > 0 {}
    }
    Err(Ended::Shut)
}

/// Tells it some of what has gone; of how many pages by name.
fn send_evicted(borrower: &Borrower, link: &Link) -> Result<usize, Ended> {
    let mut sending = link.sending()?;
    let (before, named) = what_has_gone(borrower, &mut sending.out.told, link.limits.notices.into());
    if let Some(version) = before {
        sending.send(Kind::EvictedBefore, 0, 0, 0, &version.to_le_bytes())?;
    }
    if !named.is_empty() {
        let mut metadata = Vec::new();
        named.iter().for_each(|page| page.write(&mut metadata));
        sending.send(Kind::Evicted, 0, named.len(), 0, &metadata)?;
        count(&borrower.counts.notices, named.len());
    }
    Ok(named.len())
}

fn what_has_gone(borrower: &Borrower, told: &mut u64, most: usize) -> (Option<u64>, Vec<PageId>) {
    let mut shelf = borrower.shelf_mut();
    let before = shelf.notices.before(told).then(|| shelf.lowest());
    (before, shelf.notices.take(most))
}

/// Frames of the GET channel or of another lane, which `wire::expect` tells apart.
fn serve_lane(borrower: &Borrower, link: &Link, inbound: &mut Inbound) -> Result<(), Ended> {
    let (mut frame, mut reply, mut unwanted) = (Frame::new(), Reply::new(), Unwanted::default());
    loop {
        unwanted.drop_until(borrower, || inbound.has_come());
        inbound.frame(&mut frame)?;
        match frame.expected.kind {
            Kind::Get => serve_get(borrower, link, &frame, &mut reply)?,
            Kind::Ping => link.send(Kind::Pong, 0, frame.expected.id, &[])?,
            Kind::Forget => unwanted.add(borrower, wire::forget_items(&frame.metadata)),
            Kind::Resize => borrower.resize(wire::number(&frame.metadata)),
            other => unreachable!("{other:?} is not expected on a lane"),
        }
    }
}

fn serve_get(borrower: &Borrower, link: &Link, frame: &Frame, reply: &mut Reply) -> Result<(), Ended> {
    link.set_vital();
    let metadata = usize::from(frame.expected.count) * DATA_ITEM;
    let LookedUp { hits, copied, taken } = look_up(borrower, frame, reply);
    bury(borrower, &taken); // looking made a page there, so nobody else would notice
    let header = wire::frame(Kind::Data, 0, frame.expected.count.into(), frame.expected.id, metadata, hits * PAGE);
    link.sending()?.send_reply(reply.finish(header, metadata, hits), metadata)?;
    reply.shrink();
    if !copied.is_empty() {
        let mut shelf = borrower.shelf_mut();
        copied.iter().for_each(|page| shelf.give_back(page));
    }
    Ok(())
}

fn bury(borrower: &Borrower, taken: &[PageId]) {
    if taken.is_empty() {
        return;
    }
    let mut shelf = borrower.shelf_mut();
    for page in taken {
        shelf.bury(page);
    }
    drop(shelf);
    borrower.tell.ring();
}

/// What became of the pages that were asked for.
#[derive(Default)]
struct LookedUp {
    /// How many are here.
    hits: usize,
    /// These, if they are to go.
    copied: Vec<PageId>,
    /// The kernel has these.
    taken: Vec<PageId>,
}

/// Copies what is here into the reply.
fn look_up(borrower: &Borrower, frame: &Frame, reply: &mut Reply) -> LookedUp {
    let asked = usize::from(frame.expected.count);
    let parts = reply.prepare(asked * DATA_ITEM, asked);
    let (mut found, exclusive) = (LookedUp::default(), frame.expected.flags & EXCLUSIVE != 0);
    let mut pages = parts.pages.chunks_exact_mut(PAGE);
    let mut room = pages.next();
    let shelf = borrower.shelf();
    for (page, item) in wire::get_items(&frame.metadata).zip(parts.items.chunks_exact_mut(DATA_ITEM)) {
        item.fill(0);
        let to = room
            .as_deref_mut()
            .and_then(|room| room.try_into().ok())
            .expect("there is room for each that is asked for");
        match shelf.get(&page, to) {
            Found::Here(tag) => {
                item[..8].copy_from_slice(&page.version.to_le_bytes());
                item[8..].copy_from_slice(&tag);
                found.hits += 1;
                if exclusive {
                    found.copied.push(page);
                }
                room = pages.next();
            }
            Found::Taken => found.taken.push(page),
            Found::Nothing => (),
        }
    }
    drop(shelf);
    count(&borrower.counts.gets, 1);
    count(&borrower.counts.hits, found.hits);
    count(&borrower.counts.misses, asked - found.hits);
    found
}

fn serve_puts(borrower: &Borrower, inbound: &mut Inbound) -> Result<(), Ended> {
    let (mut frame, mut pages) = (Frame::new(), vec![0; usize::from(PUT_MAX) * PAGE]);
    let get = borrower.get().ok_or(Ended::Shut)?; // which ends no later than this
    loop {
        inbound.frame(&mut frame)?;
        // Pages come no faster than the borrower learns which have gone for them.
        while borrower.shelf().notices.untold() >= NOTICE_MAX.into() {
            send_evicted(borrower, &get)?;
        }
        wire::put_items(&frame.metadata).for_each(|(page, _)| borrower.saw_version(page.version));
        let pages = &mut pages[..frame.expected.pages];
        inbound.pages(pages)?;
        let kept = keep(borrower, &frame, pages);
        get.send(Kind::PutAck, frame.expected.count.into(), frame.expected.id, &kept.to_le_bytes())?;
    }
}

/// Keeps pages; a bit for each that is here now.
fn keep(borrower: &Borrower, frame: &Frame, pages: &[u8]) -> u64 {
    let mut shelf = borrower.shelf_mut();
    let pages = pages.chunks_exact(PAGE).map(|page| page.try_into().expect("the size is a page's"));
    let kept = shelf.put_all(wire::put_items(&frame.metadata).zip(pages));
    if let Err(error) = shelf.settle() {
        tracing::warn!(borrower = borrower.name, %error, "pages stay with the kernel as used");
    }
    let untold = shelf.notices.untold();
    drop(shelf);
    if untold > 0 {
        borrower.tell.ring();
    }
    let stored = kept.count_ones() as usize;
    count(&borrower.counts.puts, stored);
    count(&borrower.counts.puts_refused, usize::from(frame.expected.count) - stored);
    kept
}
