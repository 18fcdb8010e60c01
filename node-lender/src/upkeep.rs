//! What the lender does from time to time, beside what it is asked: one thread, for as long as it lives.
//!
//! What takes long is done in steps, so that nobody waits for it, nor the next look at the node.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::lender::Lender;
use crate::node::{self, Memory};
use crate::session::Borrower;

/// Between two looks,
const LOOK: Duration = Duration::from_millis(100);
/// and while nothing is lent.
const REST: Duration = Duration::from_secs(1);
/// And while the kernel takes pages.
const SOON: Duration = Duration::from_millis(10);
/// For each page that the kernel takes so many more go at once: whoever wants memory is slower while it takes them.
const AHEAD: u128 = 4;
/// For others, between two steps of long work.
const TURN: Duration = Duration::from_micros(50);
/// Notes are put right for so long at a time,
const STINT: Duration = Duration::from_millis(1);
/// and then somebody who waits for memory has the processor for so many times as long.
const REPRIEVE: u32 = 4;
/// Between two looks at all pages when the kernel has not said that it took any.
const SWEEP: Duration = Duration::from_secs(10);
/// And no more than this when it took others' again and again.
const VAIN: Duration = Duration::from_secs(2);
/// Pages that who lingers gives at once for others.
const GIVEN: usize = 4096;

/// Looks after the node's memory, sessions that linger, pages that the kernel has taken, and those that are too many.
pub fn look_after(lender: &Lender) {
    let now = Instant::now();
    let mut looks =
        Looks { lender, sweeps: Sweeps::new(now), taken: node::taken_back(), last: now, next: now, follows: false };
    loop {
        looks.rest(looks.next);
        looks.sweep();
        tidy(lender, || looks.rest(Instant::now() + TURN));
    }
}

struct Looks<'a> {
    lender: &'a Lender,
    sweeps: Sweeps,
    /// Pages that the kernel had taken of everybody at the last look.
    taken: Option<u64>,
    last: Instant,
    next: Instant,
    /// The kernel took pages that are lent since the look before.
    follows: bool,
}

impl Looks<'_> {
    /// Others go on, and what is due meanwhile is looked at.
    fn rest(&mut self, until: Instant) {
        while self.next <= until {
            sleep(self.next.saturating_duration_since(Instant::now()));
            self.look();
        }
        sleep(until.saturating_duration_since(Instant::now()));
    }

    fn look(&mut self) {
        look_at_node(self.lender);
        let borrowers = self.lender.borrowers();
        for borrower in &borrowers {
            borrower.look();
            borrower.shelf().cool();
        }
        let lends = self.lender.budget.used() > 0;
        self.follows = lends && self.follow(&borrowers);
        self.last = Instant::now();
        self.next = self.last
            + match (lends, self.follows) {
                (true, true) => SOON,
                (true, false) => LOOK,
                (false, _) => REST,
            };
    }

    /// If the kernel takes pages that are lent, lets more of the oldest go at once, before it wants them; whether it does.
    fn follow(&mut self, borrowers: &[Arc<Borrower>]) -> bool {
        let taken = node::taken_back();
        let more = taken.zip(self.taken).map_or(0, |(now, before)| now.saturating_sub(before));
        self.taken = taken;
        if more == 0 {
            return false;
        }
        let whose = borrowers.iter().filter(|borrower| borrower.shelf().oldest_is_taken()).collect::<Vec<_>>();
        let each = ahead(more, self.last.elapsed()) / whose.len().max(1);
        whose.iter().for_each(|borrower| borrower.shelf().let_go(each));
        !whose.is_empty()
    }

    /// Notes what has gone, a row at a time, and has the borrowers told; not while somebody wants memory in a hurry.
    fn sweep(&mut self) {
        let begin = Instant::now();
        let hurry = self.follows && begin - self.sweeps.last < VAIN;
        if hurry || self.lender.budget.used() == 0 || !self.sweeps.due(self.taken, begin) {
            return;
        }
        let gone = self.lender.borrowers().iter().map(|borrower| self.sweep_one(borrower)).sum();
        self.sweeps.done(gone, Instant::now());
    }

    fn sweep_one(&mut self, borrower: &Borrower) -> usize {
        let (mut gone, mut begin) = (0, Instant::now());
        let rows = borrower.shelf().rows();
        for row in 0..rows {
            if borrower.shelf().has_holes(row) {
                gone += borrower.shelf_mut().sweep(row);
            }
            let worked = begin.elapsed();
            if worked >= STINT {
                self.rest(begin + worked * (1 + REPRIEVE));
                begin = Instant::now();
            }
        }
        if gone > 0 {
            borrower.tell.ring();
        }
        gone
    }
}

/// How many pages the kernel will want until the next look, which is soon, if it has taken so many since the last one. It
/// could want some more by then, as it need not take them one by one.
fn ahead(taken: u64, since: Duration) -> usize {
    let wanted = u128::from(taken) * AHEAD * SOON.as_micros() / since.max(SOON).as_micros();
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// When to look at all pages: soon after the kernel has taken some of anybody's, and less often when they were others'.
struct Sweeps {
    taken: Option<u64>,
    last: Instant,
    pause: Duration,
}

impl Sweeps {
    fn new(now: Instant) -> Self {
        Self { taken: None, last: now, pause: LOOK }
    }

    /// Whether it is time; `taken` is what the kernel has taken of everybody by now.
    fn due(&mut self, taken: Option<u64>, now: Instant) -> bool {
        let since = now - self.last;
        let moved = taken.is_none() || taken != self.taken;
        let due = since >= SWEEP || moved && since >= self.pause;
        if due {
            self.taken = taken;
        }
        due
    }

    /// So many were gone.
    fn done(&mut self, gone: usize, now: Instant) {
        self.pause = if gone > 0 { LOOK } else { (self.pause * 2).min(VAIN) };
        self.last = now;
    }
}

fn look_at_node(lender: &Lender) {
    match Memory::read() {
        Ok(node) => lender.budget.close(!node.spares(lender.config().reserve.0, lender.lent_bytes())),
        Err(error) => {
            tracing::warn!(%error, "nothing more is lent while the node's memory is not known");
            lender.budget.close(true);
        }
    }
}

/// Drops what is more than somebody may have, or all together, and the memory that is behind it.
fn tidy(lender: &Lender, mut turn: impl FnMut()) {
    let borrowers = lender.borrowers();
    borrowers.iter().for_each(|borrower| borrower.trim(usize::MAX, &mut turn));
    shrink(&borrowers, lender.config().pages(), &mut turn);
    if lender.budget.was_short() {
        make_room(&borrowers, &mut turn);
    }
    borrowers.iter().for_each(|borrower| borrower.pack(&mut turn));
}

/// If more is lent than may be, each gives its share away.
fn shrink(borrowers: &[Arc<Borrower>], most: u64, mut turn: impl FnMut()) {
    let pages = borrowers.iter().map(|borrower| borrower.shelf().pages()).collect::<Vec<_>>();
    let used = pages.iter().sum::<usize>();
    if used as u64 <= most {
        return;
    }
    for (borrower, pages) in borrowers.iter().zip(pages) {
        borrower.trim((pages as u128 * u128::from(most) / used as u128) as usize, &mut turn);
    }
}

/// Somebody could have had more: who lingers for the longest gives some.
fn make_room(borrowers: &[Arc<Borrower>], turn: impl FnMut()) {
    let lingering = borrowers.iter().filter(|borrower| borrower.shelf().pages() > 0);
    let longest =
        lingering.filter_map(|borrower| Some((borrower.lingers_since()?, borrower))).min_by_key(|(since, _)| *since);
    if let Some((_, borrower)) = longest {
        let pages = borrower.shelf().pages();
        borrower.trim(pages.saturating_sub(GIVEN), turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_pages_are_looked_for_less_and_less() {
        let begin = Instant::now();
        let (mut sweeps, mut swept) = (Sweeps::new(begin), Vec::new());
        for tick in 1..=200 {
            let now = begin + LOOK * tick;
            if sweeps.due(Some(tick.into()), now) {
                sweeps.done(usize::from(tick > 190), now);
                swept.push(tick);
            }
        }
        assert_eq!(swept[..5], [1, 3, 7, 15, 31]);
        assert!(swept.len() < 25, "{swept:?}");
        assert_eq!(swept[swept.len() - 1], 200); // some were ours
    }

    #[test]
    fn what_the_kernel_will_want_goes_by_how_fast_it_takes() {
        assert_eq!(ahead(0, SOON), 0);
        assert_eq!(ahead(100, SOON), 400);
        assert_eq!(ahead(100, LOOK), 40);
        assert_eq!(ahead(100, Duration::ZERO), 400);
        assert_eq!(ahead(u64::MAX, SOON), usize::MAX);
    }

    #[test]
    fn when_nothing_is_taken_it_looks_now_and_then() {
        let begin = Instant::now();
        let mut sweeps = Sweeps::new(begin);
        assert!(sweeps.due(Some(7), begin + LOOK));
        sweeps.done(0, begin + LOOK);
        assert!(!sweeps.due(Some(7), begin + SWEEP));
        assert!(sweeps.due(Some(7), begin + SWEEP + LOOK));
    }
}
