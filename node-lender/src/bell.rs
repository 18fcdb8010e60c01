//! A bell that one thread waits for: rung before it waits or meanwhile, once or often, it is heard once.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    moved: Condvar,
}

impl Bell {
    /// Rings it. Waits for nobody.
    pub fn ring(&self) {
        let mut rung = self.rung.lock().expect("nobody panics with it");
        if !std::mem::replace(&mut *rung, true) {
            self.moved.notify_all();
        }
    }

    /// Has those who wait look whether all is over.
    pub fn wake(&self) {
        let _rung = self.rung.lock().expect("nobody panics with it");
        self.moved.notify_all();
    }

    /// Waits until it rings, or all is over.
    pub fn hear(&self, over: impl Fn() -> bool) {
        let rung = self.rung.lock().expect("nobody panics with it");
        let mut rung = self.moved.wait_while(rung, |rung| !*rung && !over()).expect("nobody panics with it");
        *rung = false;
    }

    /// Lets some time pass, or less if all is over.
    pub fn pause(&self, time: Duration, over: impl Fn() -> bool) {
        let rung = self.rung.lock().expect("nobody panics with it");
        let _rung = self.moved.wait_timeout_while(rung, time, |_| !over()).expect("nobody panics with it");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_was_rung_before_is_heard_once() {
        let bell = Bell::default();
        (0..3).for_each(|_| bell.ring());
        bell.hear(|| false);
        thread::scope(|scope| {
            let heard = scope.spawn(|| bell.hear(|| false));
            thread::sleep(Duration::from_millis(50));
            assert!(!heard.is_finished());
            bell.ring();
        });
    }

    #[test]
    fn when_all_is_over_nobody_waits() {
        let (bell, over) = (Bell::default(), AtomicBool::new(false));
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| bell.hear(|| over.load(Ordering::Acquire)));
            thread::sleep(Duration::from_millis(50));
            over.store(true, Ordering::Release);
            bell.wake();
        });
        bell.pause(Duration::from_secs(60), || over.load(Ordering::Acquire));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_ring_shortens_no_pause() {
        let (bell, begin) = (Bell::default(), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| bell.pause(Duration::from_millis(200), || false));
            thread::sleep(Duration::from_millis(50));
            bell.ring();
        });
        assert!(begin.elapsed() >= Duration::from_millis(200));
    }
}
