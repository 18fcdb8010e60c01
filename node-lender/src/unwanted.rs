//! Pages that a borrower has no use for any more.
//!
//! Whoever removes a large file names hundreds of thousands of pages, and behind that on the connection may be what another
//! reader waits for: so a few go at once, and the rest between frames.

use std::collections::VecDeque;
use std::pin::pin;

use crate::session::Borrower;
use crate::wire::Range;

/// Pages that go at once, of a frame, or a few more.
const NOW: usize = 512;
/// Ranges that wait. As long as there are more, so does the borrower.
const MOST: usize = 1024;

/// What a connection has named, and is still to go.
#[derive(Default)]
pub struct Unwanted(VecDeque<Range>);

impl Unwanted {
    /// Drops pages of ranges, or notes what is left of them.
    pub async fn add(&mut self, borrower: &Borrower, ranges: impl Iterator<Item = Range>) {
        self.0.extend(ranges);
        let mut dropped = 0;
        while dropped < NOW && !self.0.is_empty() {
            dropped += self.step(borrower);
        }
        while self.0.len() > MOST {
            self.step(borrower);
            tokio::task::yield_now().await;
        }
    }

    /// Drops what is left while something is waited for; what comes waits for one step at most.
    pub async fn drop_until<T>(&mut self, borrower: &Borrower, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        while !self.0.is_empty() {
            self.step(borrower);
            tokio::select! {
                biased;
                found = &mut wanted => return found,
                () = tokio::task::yield_now() => (),
            }
        }
        wanted.await
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
    use std::future::ready;

    use super::*;
    use crate::session::tests::borrower;

    const PAGES: usize = 3000;
    const ALL: Range = Range { file: 1, first: 0, last: u64::MAX, before: u64::MAX };

    #[tokio::test]
    async fn what_comes_behind_a_large_range_waits_for_a_step_of_it() {
        let (borrower, mut unwanted) = (borrower(PAGES as u64), Unwanted::default());
        unwanted.add(&borrower, [ALL].into_iter()).await;
        assert_eq!(borrower.shelf().pages(), PAGES - NOW);
        unwanted.drop_until(&borrower, ready(())).await;
        assert_eq!(borrower.shelf().pages(), PAGES - 2 * NOW);
        unwanted.drop_until(&borrower, tokio::time::sleep(std::time::Duration::from_secs(1))).await;
        assert_eq!(borrower.shelf().pages(), 0);
    }

    #[tokio::test]
    async fn who_names_more_ranges_than_may_wait_waits() {
        let (borrower, mut unwanted) = (borrower(PAGES as u64), Unwanted::default());
        let each = (0..PAGES as u64).map(|n| Range { first: n, last: n, ..ALL });
        unwanted.add(&borrower, each).await;
        assert_eq!(unwanted.0.len(), MOST);
    }
}
