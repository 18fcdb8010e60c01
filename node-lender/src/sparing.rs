//! Lines of the log that strangers cause: some, and then how many more there were.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So many lines
const LINES: u32 = 10;
/// in such a time.
const WHILE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Said {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Sparing(Mutex<Said>);

impl Sparing {
    /// Whether one more may be said now; then how many were left out before it.
    pub fn may(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().expect("nobody panics with it");
        if said.since.is_none_or(|since| now - since >= WHILE) {
            (said.since, said.lines) = (Some(now), 0);
        }
        if said.lines == LINES {
            said.left_out += 1;
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_are_said_and_the_others_counted() {
        let (sparing, begin) = (Sparing::default(), Instant::now());
        let said: Vec<_> = (0..100).filter_map(|_| sparing.may(begin)).collect();
        assert_eq!(said, [0; 10]);
        assert_eq!(sparing.may(begin + WHILE), Some(90));
        assert_eq!(sparing.may(begin + WHILE), Some(0));
    }
}
