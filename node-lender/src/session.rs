//! What there is with each borrower, connected or not.
//!
//! A session has two connections or, with lanes, more. One that has lost these lingers: its pages stay for a while, and a
//! borrower that comes back in time finds them. They are dropped when it does not, or when it comes back without what it
//! knew of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::bell::Bell;
use crate::budget::Budget;
use crate::identity::Identity;
use crate::link::Link;
use crate::shelf::Shelf;
use crate::wire::{Channel, Hello, LANES_MAX, PAGE};

/// How long the connections of before have to end for the new one.
const TAKEOVER: Duration = Duration::from_secs(2);

/// What all borrowers are told, and none may have more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Bytes that are lent at most.
    pub max_lend: u64,
    /// How long a session is kept that has no connection.
    pub linger: Duration,
    /// Nobody is to put any pages now.
    pub hold: bool,
}

/// What one borrower may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes at most.
    pub quota: u64,
    /// Whether it may connect.
    pub enabled: bool,
}

/// What is counted of a borrower.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests.
    pub gets: AtomicU64,
    /// Pages that were asked for and here.
    pub hits: AtomicU64,
    /// Pages that were asked for and not here.
    pub misses: AtomicU64,
    /// Pages that were kept.
    pub puts: AtomicU64,
    /// Pages that were not kept.
    pub puts_refused: AtomicU64,
    /// Pages that it was told are gone, by name.
    pub notices: AtomicU64,
    /// Frames that were none, or not the borrower's.
    pub bad_frames: AtomicU64,
    /// Sessions that went on.
    pub resumes: AtomicU64,
}

/// Adds to a count.
pub fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

struct State {
    terms: Terms,
    allowance: Allowance,
    get: Option<Arc<Link>>,
    put: Option<Arc<Link>>,
    lanes: [Option<Arc<Link>>; LANES_MAX as usize - 1],
    /// 0: none that could go on.
    session: u64,
    /// In the hello of the GET channel, which the others name.
    offered: u64,
    /// Of the GET channel, or the last that there was.
    ordinal: u64,
    /// Somebody waits to be the GET channel.
    taking: bool,
    wanted: u64,
    granted: u64,
    lost_at: Duration,
}

impl State {
    fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.get.iter().chain(&self.put).chain(self.lanes.iter().flatten())
    }

    fn is_idle(&self) -> bool {
        self.links().next().is_none()
    }

    fn shut(&self) {
        self.links().for_each(|link| link.shut());
    }

    fn grant(&self) -> u64 {
        self.wanted.min(self.allowance.quota).min(self.terms.max_lend) / PAGE as u64 * PAGE as u64
    }
}

/// One borrower: whoever has its identity.
pub struct Borrower {
    /// What its pairing is called.
    pub name: String,
    /// Who it is.
    pub identity: Identity,
    /// What is counted.
    pub counts: Counts,
    /// Somebody should tell it its grant, or which pages are gone.
    pub tell: Bell,
    /// Its grant has changed.
    grant_due: AtomicBool,
    /// As in its allowance: asked in the handshake, which waits for nobody.
    enabled: AtomicBool,
    budget: Arc<Budget>,
    state: Mutex<State>,
    /// The newest version that it has put in this session, kept or not.
    newest: AtomicU64,
    shelf: RwLock<Shelf>,
    /// A connection has ended.
    parted: Condvar,
}

/// Why a connection is not taken on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// The borrower may not connect any more.
    #[error("the borrower is not enabled")]
    Disabled,
    /// Another connection came later, or is just being taken on.
    #[error("a later connection has been taken on")]
    Late,
    /// The connections of before do not end.
    #[error("the former connections are still there")]
    Busy,
    /// It names no GET channel that is here, or there is no room beside it.
    #[error("no session with that number, or no room in it")]
    NoRoom,
}

/// A new connection, for as long as it is served: then it is no part of its session any more.
pub struct Attached {
    /// Whose it is.
    pub borrower: Arc<Borrower>,
    /// Itself.
    pub link: Arc<Link>,
    /// It goes on with the former session's pages.
    pub resumed: bool,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.borrower.detach(&self.link);
    }
}

fn boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock").into()
}

fn secret() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Memory takes time to be given back, for which nobody is to wait.
fn unmap(shelf: Shelf) {
    if shelf.pages() > 0 {
        let _ = thread::Builder::new().name("unmap".to_owned()).spawn(move || drop(shelf)); // without a thread it is done here
    }
}

impl Borrower {
    /// One without a session.
    pub fn new(name: String, identity: Identity, allowance: Allowance, terms: Terms, budget: Arc<Budget>) -> Self {
        let state = State {
            terms,
            allowance,
            get: None,
            put: None,
            lanes: [const { None }; LANES_MAX as usize - 1],
            session: 0,
            offered: 0,
            ordinal: 0,
            taking: false,
            wanted: 0,
            granted: 0,
            lost_at: Duration::ZERO,
        };
        Self {
            name,
            identity,
            counts: Counts::default(),
            tell: Bell::default(),
            grant_due: AtomicBool::new(false),
            enabled: AtomicBool::new(allowance.enabled),
            state: Mutex::new(state),
            newest: AtomicU64::new(0),
            shelf: RwLock::new(Shelf::new(Arc::clone(&budget), secret())),
            budget,
            parted: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Its pages, to be read.
    pub fn shelf(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read().expect("nobody panics with it")
    }

    /// Its pages, to be changed.
    pub fn shelf_mut(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write().expect("nobody panics with it")
    }

    /// Whether it may connect.
    pub fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// What it is granted, how long it lingers in milliseconds, and whether it is to put nothing.
    pub fn granted(&self) -> (u64, u64, bool) {
        let state = self.state();
        (state.granted, state.terms.linger.as_millis() as u64, state.terms.hold)
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.state().links().count()
    }

    /// Whether a former session waits for it.
    pub fn lingers(&self) -> bool {
        let state = self.state();
        state.session != 0 && state.is_idle()
    }

    /// Whether the grant has changed since this was asked last.
    pub fn take_grant_due(&self) -> bool {
        self.grant_due.swap(false, Ordering::Relaxed)
    }

    /// What versions it has put: see [`State::resumes`].
    pub fn saw_version(&self, version: u64) {
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    /// It would like another size.
    pub fn resize(&self, wanted: u64) {
        let mut state = self.state();
        state.wanted = wanted;
        self.regrant(&mut state);
    }

    /// What it may have, and on which terms, has been set. Waits for no borrower.
    pub fn set(&self, allowance: Allowance, terms: Terms) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.allowance, allowance);
        let changed = before != allowance || state.terms != terms;
        state.terms = terms;
        self.enabled.store(allowance.enabled, Ordering::Relaxed);
        if before.enabled && !allowance.enabled {
            self.renounce_session(&mut state);
        } else if changed && state.session != 0 {
            self.regrant(&mut state);
        }
    }

    /// The session ends, and does not go on when the borrower comes back.
    pub fn renounce(&self) {
        let mut state = self.state();
        state.allowance.enabled = false;
        self.enabled.store(false, Ordering::Relaxed);
        self.renounce_session(&mut state);
    }

    fn renounce_session(&self, state: &mut State) {
        state.session = 0;
        state.shut();
        if state.is_idle() {
            self.drop_session(state);
        }
    }

    fn regrant(&self, state: &mut State) {
        self.fit(state);
        self.grant_due.store(true, Ordering::Relaxed);
        self.tell.ring();
    }

    fn fit(&self, state: &mut State) {
        state.granted = state.grant();
        let mut shelf = self.shelf_mut();
        shelf.resize(state.granted);
        shelf.held = state.terms.hold;
    }

    /// Nobody is connected.
    fn drop_session(&self, state: &mut State) {
        state.session = 0;
        state.granted = 0;
        let fresh = Shelf::new(Arc::clone(&self.budget), secret());
        let former = std::mem::replace(&mut *self.shelf_mut(), fresh);
        unmap(former);
    }

    /// Drops the oldest pages until there are no more than so many, and than it may have. Others have their `turn` meanwhile.
    pub fn trim(&self, pages: usize, mut turn: impl FnMut()) {
        let mut dropped = false;
        while self.shelf_mut().trim(pages) {
            dropped = true;
            turn();
        }
        if dropped {
            self.tell.ring();
        }
    }

    /// Packs its pages, likewise.
    pub fn pack(&self, mut turn: impl FnMut()) {
        while self.shelf_mut().pack() {
            turn();
        }
    }

    /// Since when a session waits for its borrower, if one does.
    pub fn lingers_since(&self) -> Option<Duration> {
        let state = self.state();
        (state.session != 0 && state.is_idle() && !state.taking).then_some(state.lost_at)
    }

    /// Ends the session if it has lingered for long enough.
    pub fn look(&self) {
        let mut state = self.state();
        let over = boottime().saturating_sub(state.lost_at) >= state.terms.linger;
        if state.session != 0 && state.is_idle() && !state.taking && over {
            tracing::info!(borrower = self.name, "did not come back: its pages are dropped");
            self.drop_session(&mut state);
        }
    }

    /// Takes a connection on, whose handshake is over.
    pub fn attach(self: &Arc<Self>, link: Arc<Link>, hello: &Hello) -> Result<Attached, NotNow> {
        match link.channel {
            Channel::Get => self.attach_get(link, hello),
            Channel::Put | Channel::Lane => self.attach_more(link, hello),
        }
    }

    /// Begins a session, or goes on with one. Takes over from connections that there are: the borrower has given them up.
    fn attach_get(self: &Arc<Self>, link: Arc<Link>, hello: &Hello) -> Result<Attached, NotNow> {
        self.claim(&link)?;
        let _claim = Claim(self);
        self.wait_until_idle();
        self.begin(link, hello)
    }

    /// Whoever comes is the newest, and the only one who waits. One whose last message was held up until another had come
    /// is as good as gone.
    fn claim(&self, link: &Link) -> Result<(), NotNow> {
        let mut state = self.state();
        if !state.allowance.enabled {
            return Err(NotNow::Disabled);
        }
        if state.taking || link.ordinal < state.ordinal {
            return Err(NotNow::Late);
        }
        state.taking = true;
        state.shut();
        Ok(())
    }

    fn wait_until_idle(&self) {
        let waited = self.parted.wait_timeout_while(self.state(), TAKEOVER, |state| !state.is_idle());
        drop(waited.expect("nobody panics with it"));
    }

    fn begin(self: &Arc<Self>, link: Arc<Link>, hello: &Hello) -> Result<Attached, NotNow> {
        let mut state = self.state();
        if !state.allowance.enabled {
            return Err(NotNow::Disabled);
        }
        if !state.is_idle() {
            return Err(NotNow::Busy);
        }
        let resumed = self.resumes(&state, hello);
        if resumed {
            count(&self.counts.resumes, 1);
        } else {
            self.drop_session(&mut state);
            state.session = hello.session;
            self.newest.store(0, Ordering::Relaxed);
        }
        state.offered = hello.session;
        state.ordinal = link.ordinal;
        state.wanted = hello.size;
        self.fit(&mut state);
        self.grant_due.store(false, Ordering::Relaxed); // the first frame says it
        state.get = Some(Arc::clone(&link));
        let what = if resumed { "resumed" } else { "connected" };
        tracing::info!(borrower = self.name, granted_mib = state.granted >> 20, what);
        Ok(Attached { borrower: Arc::clone(self), link, resumed })
    }

    /// May a session go on? Not if its borrower is one that has gone back in time: what it knows is of before, and its next
    /// versions have been given already.
    fn resumes(&self, state: &State, hello: &Hello) -> bool {
        state.session != 0 && hello.resume == state.session && hello.version >= self.newest.load(Ordering::Relaxed)
    }

    /// Completes a session, or adds a lane to it.
    fn attach_more(self: &Arc<Self>, link: Arc<Link>, hello: &Hello) -> Result<Attached, NotNow> {
        let mut state = self.state();
        let lanes = state.get.as_ref().filter(|_| hello.session == state.offered).ok_or(NotNow::NoRoom)?.limits.lanes;
        let place = match link.channel {
            Channel::Put => &mut state.put,
            _ => {
                let room = usize::from(lanes) - 1;
                state.lanes[..room].iter_mut().find(|lane| lane.is_none()).ok_or(NotNow::NoRoom)?
            }
        };
        if place.is_some() {
            return Err(NotNow::NoRoom);
        }
        *place = Some(Arc::clone(&link));
        Ok(Attached { borrower: Arc::clone(self), link, resumed: false })
    }

    /// The limits of the session that a connection names: those of its GET channel.
    pub fn limits(&self, session: u64) -> Option<crate::wire::Limits> {
        let state = self.state();
        state.get.as_ref().filter(|_| state.offered == session).map(|get| get.limits)
    }

    /// The GET channel, if there is one.
    pub fn get(&self) -> Option<Arc<Link>> {
        self.state().get.clone()
    }

    /// The others end, too, but for a lane that was not used; after the last the session lingers.
    fn detach(&self, link: &Arc<Link>) {
        link.shut();
        let mut state = self.state();
        let State { get, put, lanes, .. } = &mut *state;
        for place in [get, put].into_iter().chain(lanes) {
            place.take_if(|here| Arc::ptr_eq(here, link));
        }
        if link.is_vital() {
            state.shut();
        }
        if state.is_idle() {
            state.lost_at = boottime();
            if state.session == 0 || !state.allowance.enabled {
                self.drop_session(&mut state);
            }
        }
        drop(state);
        self.parted.notify_all();
    }
}

/// Somebody waits to be the GET channel for as long as this is kept.
struct Claim<'a>(&'a Borrower);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.state().taking = false;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::shelf::NOTE_COST;
    use crate::wire::{PageId, TAG};

    const EACH: u64 = (PAGE + NOTE_COST) as u64;

    pub(crate) fn borrower(pages: u64) -> Arc<Borrower> {
        let budget = Arc::<Budget>::default();
        budget.set(pages);
        let terms = Terms { max_lend: u64::MAX, linger: Duration::ZERO, hold: false };
        let allowance = Allowance { quota: u64::MAX, enabled: true };
        let borrower = Borrower::new("one".to_owned(), Identity([0; 32]), allowance, terms, budget);
        let mut shelf = borrower.shelf_mut();
        shelf.resize(pages * EACH);
        (1..=pages).for_each(|n| assert!(shelf.put(PageId { file: 1, index: n, version: n }, [0; TAG], &[1; PAGE])));
        drop(shelf);
        Arc::new(borrower)
    }

    #[test]
    fn a_smaller_size_is_taken_at_once_and_pages_go_later() {
        let borrower = borrower(2000);
        borrower.resize(PAGE as u64 * 100);
        assert_eq!((borrower.granted().0, borrower.shelf().pages()), (PAGE as u64 * 100, 2000));
        borrower.trim(usize::MAX, || ());
        assert_eq!(borrower.shelf().pages(), PAGE * 100 / EACH as usize);
    }

    #[test]
    fn a_handshake_waits_for_no_borrower() {
        let (borrower, (said, heard)) = (borrower(1), mpsc::channel());
        let (_state, _shelf) = (borrower.state(), borrower.shelf_mut());
        let asked = Arc::clone(&borrower);
        std::thread::spawn(move || said.send(asked.enabled()));
        assert_eq!(heard.recv_timeout(Duration::from_secs(5)), Ok(true));
    }
}
