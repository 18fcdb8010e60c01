//! Pages that are gone, and of which the borrower is to be told.
//!
//! Versions come in order and the oldest page is the first to be taken away. So for pages that are older than all that are
//! here one version will do: nothing older is left. When many go, or the borrower does not listen, only the latest are
//! kept by name.

use std::collections::VecDeque;

use crate::wire::PageId;

/// What is kept by name is this part of the pages that may be here, as a power of two, and no less than [`LEAST`].
const SHIFT: u32 = 6;
const LEAST: usize = 1024;
/// Room for names grows by this part: a grant pays for it.
const GROWTH: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Notices {
    gone: VecDeque<PageId>,
    most: usize,
    thinned: u64,
}

impl Default for Notices {
    fn default() -> Self {
        Self { gone: VecDeque::new(), most: LEAST, thinned: 0 }
    }
}

impl Notices {
    /// So many pages may be here. What may be kept never becomes less: it may be there already.
    pub fn limit(&mut self, pages: usize) {
        self.most = self.most.max(pages >> SHIFT);
    }

    /// A page is gone; `lowest` is a version than which none that is here, or comes, is older.
    ///
    /// If these are too many, of the two that wait longest those go that are older than that. Others wait once more, unless
    /// there are as many as there were ever pages: whoever gives versions as he likes may ask in vain.
    pub fn push(&mut self, page: PageId, lowest: u64) {
        if self.gone.len() == self.gone.capacity() {
            self.gone.reserve_exact((self.gone.len() / GROWTH).max(LEAST));
        }
        self.gone.push_back(page);
        for _ in 0..2 {
            if self.gone.len() <= self.most {
                return;
            }
            let first = self.gone.pop_front().expect("there are more than none");
            if first.version >= lowest && self.gone.len() < self.most << SHIFT {
                self.gone.push_back(first);
            } else {
                self.thinned += 1;
            }
        }
    }

    /// Some that the borrower is told of now, and are forgotten here.
    pub fn take(&mut self, most: usize) -> Vec<PageId> {
        let taken = self.gone.drain(..most.min(self.gone.len())).collect();
        if self.gone.is_empty() {
            self.gone.shrink_to(2 * LEAST);
        }
        taken
    }

    /// Of how many the borrower is to be told by name.
    pub fn untold(&self) -> usize {
        self.gone.len()
    }

    /// Whether a version has to be told on a connection: `told` is what the last one stood for, and set to what this one
    /// does.
    pub fn before(&self, told: &mut u64) -> bool {
        std::mem::replace(told, self.thinned) != self.thinned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(version: u64) -> PageId {
        PageId { file: 1, index: version, version }
    }

    #[test]
    fn few_are_named_each() {
        let mut notices = Notices::default();
        (1..=1000).for_each(|version| notices.push(page(version), version + 1));
        assert!(!notices.before(&mut 0));
        assert_eq!(notices.take(5), (1..=5).map(page).collect::<Vec<_>>());
        assert_eq!(notices.untold(), 995);
    }

    #[test]
    fn of_many_the_latest_are_named_and_the_others_are_older_than_a_version() {
        let mut notices = Notices::default();
        (1..=11_000).for_each(|version| notices.push(page(version), version + 1));
        assert_eq!(notices.untold(), LEAST);
        let mut told = 0;
        assert!(notices.before(&mut told));
        assert!(!notices.before(&mut told));
        assert!(notices.before(&mut 0)); // on another connection
        assert_eq!(notices.take(1)[0].version, 11_000 - LEAST as u64 + 1);
    }

    #[test]
    fn what_is_newer_than_what_stays_keeps_its_name() {
        let mut notices = Notices::default();
        (1..=5000).for_each(|version| notices.push(page(version), 0));
        assert_eq!(notices.untold(), 5000);
        assert!(notices.gone.capacity() <= 5000 + LEAST);
        assert_eq!(notices.take(5000).len(), 5000);
        assert!(notices.gone.capacity() <= 2 * LEAST);
        assert!(!notices.before(&mut 0));
    }

    #[test]
    fn versions_as_one_likes_cost_no_more_than_there_were_pages() {
        let mut notices = Notices::default();
        (0..200_000).for_each(|_| notices.push(page(u64::MAX - 1), 0));
        assert!(notices.untold() <= LEAST << SHIFT);
    }
}
