//! What threads share without a lock, in every order in which they can come, by loom.

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
#[path = "../src/budget.rs"]
mod budget;

use budget::Budget;
use loom::sync::Arc;
use loom::thread;

fn with(pages: u64) -> Arc<Budget> {
    let budget = Arc::new(Budget::default());
    budget.set(pages);
    budget
}

/// Another who wants a page; whether he has got one.
fn rival(budget: &Arc<Budget>) -> thread::JoinHandle<bool> {
    let budget = Arc::clone(budget);
    thread::spawn(move || budget.take())
}

/// Two want the only page: one has it, and that there was none for the other is said, once.
#[test]
fn nobody_has_what_another_has() {
    loom::model(|| {
        let budget = with(1);
        let other = rival(&budget);
        let (one, other) = (budget.take(), other.join().unwrap());
        assert!(one != other);
        assert_eq!((budget.used(), budget.was_short(), budget.was_short()), (1, true, false));
    });
}

/// One gives its page back while another wants one, and what is left is what the other has.
#[test]
fn what_is_given_back_is_there_for_another() {
    loom::model(|| {
        let budget = with(1);
        assert!(budget.take());
        let other = rival(&budget);
        budget.give(1);
        let taken = other.join().unwrap();
        assert_eq!((budget.used(), budget.was_short()), (u64::from(taken), !taken));
    });
}

/// It is closed while somebody wants a page: no later one comes, and nobody lacks what others have.
#[test]
fn when_it_is_closed_there_is_no_page_more() {
    loom::model(|| {
        let budget = with(2);
        let other = rival(&budget);
        budget.close(true);
        assert!(!budget.take());
        let taken = other.join().unwrap();
        assert_eq!((budget.used(), budget.was_short()), (u64::from(taken), false));
    });
}
