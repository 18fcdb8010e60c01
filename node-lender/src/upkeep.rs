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
/// For others, between two steps of long work.
const TURN: Duration = Duration::from_micros(50);
/// Between two looks at all pages when the kernel has not said that it took any.
const SWEEP: Duration = Duration::from_secs(10);
/// And no more than this when it took others' again and again.
const VAIN: Duration = Duration::from_secs(2);
/// Pages that who lingers gives at once for others.
const GIVEN: usize = 4096;

/// Looks after the node's memory, sessions that linger, pages that the kernel has taken, and those that are too many.
pub fn look_after(lender: &Lender) {
    let mut looks = Looks { lender, sweeps: Sweeps::new(Instant::now()), next: Instant::now() };
    loop {
        sleep(looks.next.saturating_duration_since(Instant::now()));
        looks.look();
        tidy(lender, || looks.turn());
    }
}

struct Looks<'a> {
    lender: &'a Lender,
    sweeps: Sweeps,
    next: Instant,
}

impl Looks<'_> {
    /// In the middle of long work: others go on, and what is due is looked at.
    fn turn(&mut self) {
        sleep(TURN);
        if Instant::now() >= self.next {
            self.look();
        }
    }

    fn look(&mut self) {
        look_at_node(self.lender);
        let borrowers = self.lender.borrowers();
        for borrower in &borrowers {
            borrower.look();
            borrower.shelf().cool();
        }
        let lends = self.lender.budget.used() > 0;
        if lends && self.sweeps.due(node::taken_back(), Instant::now()) {
            let gone = borrowers.iter().map(|borrower| sweep(borrower)).sum();
            self.sweeps.done(gone, Instant::now());
        }
        self.next = Instant::now() + if lends { LOOK } else { REST };
    }
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

/// Notes what the kernel has taken, one row at a time, and has the borrower told; how many pages.
fn sweep(borrower: &Borrower) -> usize {
    let rows = borrower.shelf().rows();
    let mut gone = 0;
    for row in 0..rows {
        if borrower.shelf().has_holes(row) {
            gone += borrower.shelf_mut().sweep(row);
        }
    }
    if gone > 0 {
        borrower.tell.notify_one();
    }
    gone
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
    fn when_nothing_is_taken_it_looks_now_and_then() {
        let begin = Instant::now();
        let mut sweeps = Sweeps::new(begin);
        assert!(sweeps.due(Some(7), begin + LOOK));
        sweeps.done(0, begin + LOOK);
        assert!(!sweeps.due(Some(7), begin + SWEEP));
        assert!(sweeps.due(Some(7), begin + SWEEP + LOOK));
    }
}
