//! How many pages all borrowers together may have. Each has a lock of its own; this they share without one.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Budget {
    most: AtomicU64,
    used: AtomicU64,
    closed: AtomicBool,
    short: AtomicBool,
}

impl Budget {
    /// Sets how many there may be. If there are more, shelves give pages away as they are resized.
    pub fn set(&self, pages: u64) {
        self.most.store(pages, Ordering::Relaxed);
    }

    /// While it is closed there is no page more: the node has no memory to spare.
    pub fn close(&self, closed: bool) {
        self.closed.store(closed, Ordering::Relaxed);
    }

    /// Whether it is.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts one page more, if there may be one.
    pub fn take(&self) -> bool {
        let most = if self.closed() { 0 } else { self.most.load(Ordering::Relaxed) };
        let more = |used| (used < most).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !taken && most > 0 {
            self.short.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Whether somebody got none, for others have all, since this was asked last.
    pub fn was_short(&self) -> bool {
        self.short.swap(false, Ordering::Relaxed)
    }

    /// So many are gone.
    pub fn give(&self, pages: usize) {
        self.used.fetch_sub(pages as u64, Ordering::Relaxed);
    }
}
