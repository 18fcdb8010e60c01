//! Pages that a borrower has no use for any more.
//!
//! Whoever removes a large file names hundreds of thousands of pages, and behind that on the connection may be what another
//! reader waits for: so a few go at once, and the rest between frames.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::Duration;

use crate::session::Borrower;
use crate::wire::Range;

/// Pages that go at once, of a frame, or a few more.
const NOW: usize = 512;
/// Ranges that wait. As long as there are more, so does the borrower.
const MOST: usize = 1024;
/// For others who want the borrower's pages, between two steps.
const TURN: Duration = Duration::from_micros(50);

/// What a connection has named, and is still to go.
#[derive(Default)]
pub struct Unwanted(VecDeque<Range>);

impl Unwanted {
    /// Drops pages of ranges, or notes what is left of them.
    pub fn add(&mut self, borrower: &Borrower, ranges: impl Iterator<Item = Range>) {
        self.0.extend(ranges);
        let mut dropped = 0;
        while dropped < NOW && !self.0.is_empty() {
            dropped += self.step(borrower);
        }
        while self.0.len() > MOST {
            self.step(borrower);
            sleep(TURN);
        }
    }

    /// Drops what is left, or stops when something has come: that waits for one step at most.
    pub fn drop_until(&mut self, borrower: &Borrower, mut has_come: impl FnMut() -> bool) {
        while !self.0.is_empty() {
            self.step(borrower);
            if has_come() {
                return;
            }
            sleep(TURN);
        }
    }

    /// Drops some pages of a range; how many.
    fn step(&mut self, borrower: &Borrower) -> usize {
        let Some(range) = self.0.pop_front() else { return 0 };
        let mut shelf = borrower.shelf_mut();
        let before = shelf.pages();
        if let Some(left) = shelf.forget(&range) {
            self.0.push_front(left);
        }
        before - shelf.pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::borrower;

    const PAGES: usize = 3000;
    const ALL: Range = Range { file: 1, first: 0, last: u64::MAX, before: u64::MAX };

    #[test]
    fn what_comes_behind_a_large_range_waits_for_a_step_of_it() {
        let (borrower, mut unwanted) = (borrower(PAGES as u64), Unwanted::default());
        unwanted.add(&borrower, [ALL].into_iter());
        assert_eq!(borrower.shelf().pages(), PAGES - NOW);
        unwanted.drop_until(&borrower, || true);
        assert_eq!(borrower.shelf().pages(), PAGES - 2 * NOW);
        unwanted.drop_until(&borrower, || false);
        assert_eq!(borrower.shelf().pages(), 0);
    }

    #[test]
    fn who_names_more_ranges_than_may_wait_waits() {
        let (borrower, mut unwanted) = (borrower(PAGES as u64), Unwanted::default());
        let each = (0..PAGES as u64).map(|n| Range { first: n, last: n, ..ALL });
        unwanted.add(&borrower, each);
        assert_eq!(unwanted.0.len(), MOST);
    }
}
