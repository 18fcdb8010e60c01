//! What the lender does from time to time, beside what it is asked: two tasks, for as long as it lives.
//!
//! What takes long is done in steps, on threads of its own, so that nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lender::Lender;
use crate::node::{self, Memory};
use crate::session::Borrower;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks at all pages when the kernel has not said that it took any.
const SWEEP: Duration = Duration::from_secs(10);

/// Looks after the node's memory, sessions that linger, and pages that the kernel has taken.
pub async fn look_after(lender: Arc<Lender>) {
    let (mut taken, mut swept) = (None, Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        look_at_node(&lender);
        let now = node::taken_back();
        let sweeps = now.is_none() || now != taken || swept.elapsed() >= SWEEP;
        taken = now;
        let borrowers = lender.borrowers();
        let look = move || {
            for borrower in borrowers {
                borrower.look();
                borrower.shelf().cool();
                if sweeps {
                    sweep(&borrower);
                }
            }
        };
        if sweeps {
            swept = Instant::now();
        }
        if tokio::task::spawn_blocking(look).await.is_err() {
            return; // the runtime ends
        }
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

/// Notes what the kernel has taken, one row at a time, and has the borrower told.
fn sweep(borrower: &Borrower) {
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
}

/// Drops what is more than somebody may have, or all together, and the memory that is behind it.
pub async fn tidy(lender: Arc<Lender>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let lender = Arc::clone(&lender);
        if tokio::task::spawn_blocking(move || tidy_once(&lender)).await.is_err() {
            return; // the runtime ends
        }
    }
}

fn tidy_once(lender: &Lender) {
    let borrowers = lender.borrowers();
    borrowers.iter().for_each(|borrower| borrower.trim(usize::MAX));
    shrink(&borrowers, lender.config().pages());
    borrowers.iter().for_each(|borrower| borrower.pack());
}

/// If more is lent than may be, each gives its share away.
fn shrink(borrowers: &[Arc<Borrower>], most: u64) {
    let pages = borrowers.iter().map(|borrower| borrower.shelf().pages()).collect::<Vec<_>>();
    let used = pages.iter().sum::<usize>();
    if used as u64 <= most {
        return;
    }
    for (borrower, pages) in borrowers.iter().zip(pages) {
        borrower.trim((pages as u128 * u128::from(most) / used as u128) as usize);
    }
}
