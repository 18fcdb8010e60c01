//! Connections that are in the handshake: few, none for long, and the oldest make room.

use std::net::IpAddr;
use std::sync::Mutex;

use tokio::sync::oneshot;

/// Strangers at most: in all,
pub const MOST: usize = 32;
/// and from one address.
pub const EACH: usize = 8;

/// What strangers are told apart by: an IPv4 address, or an IPv6 network of 64 bits.
fn origin(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
    }
}

struct Stranger {
    number: u64,
    from: u128,
    cut: oneshot::Sender<()>,
}

impl Stranger {
    fn cut(self) {
        let _ = self.cut.send(()); // who is gone meanwhile need not hear it
    }
}

/// All of them, the oldest first.
#[derive(Default)]
pub struct Strangers(Mutex<Vec<Stranger>>);

impl Strangers {
    /// Lets one in; it is cut when it has to make room.
    pub fn admit(&self, number: u64, address: IpAddr) -> Admitted<'_> {
        let (from, (cutter, cut)) = (origin(address), oneshot::channel());
        let mut all = self.0.lock().expect("nobody panics with it");
        all.push(Stranger { number, from, cut: cutter });
        let surplus = |all: &[Stranger], here: &dyn Fn(&Stranger) -> bool, most| {
            let oldest = all.iter().position(here)?;
            (all.iter().filter(|stranger| here(stranger)).count() > most).then_some(oldest)
        };
        if let Some(oldest) = surplus(&all, &|stranger| stranger.from == from, EACH) {
            all.remove(oldest).cut();
        }
        if let Some(oldest) = surplus(&all, &|_| true, MOST) {
            all.remove(oldest).cut();
        }
        Admitted { strangers: self, number, cut }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().expect("nobody panics with it").len()
    }
}

/// A stranger for as long as this is kept.
pub struct Admitted<'a> {
    strangers: &'a Strangers,
    number: u64,
    /// Says so when it has to go.
    pub cut: oneshot::Receiver<()>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.strangers.0.lock().expect("nobody panics with it").retain(|stranger| stranger.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit<'a>(strangers: &'a Strangers, from: &[&str]) -> Vec<Admitted<'a>> {
        (0..).zip(from).map(|(number, address)| strangers.admit(number, address.parse().unwrap())).collect()
    }

    fn cut(admitted: &mut [Admitted]) -> Vec<usize> {
        (0..admitted.len()).filter(|&n| admitted[n].cut.try_recv().is_ok()).collect()
    }

    #[test]
    fn the_oldest_of_an_address_makes_room() {
        let strangers = Strangers::default();
        let from = [&["10.0.0.9"][..], &["::ffff:10.0.0.1", "10.0.0.1"].repeat(5)].concat();
        let mut admitted = admit(&strangers, &from);
        assert_eq!(cut(&mut admitted), [1, 2]);
        drop(admitted);
        assert_eq!(strangers.count(), 0);
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let strangers = Strangers::default();
        let from: Vec<String> = (0..10).map(|n| format!("fd00::{n}")).collect();
        let mut admitted = admit(&strangers, &from.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(cut(&mut admitted), [0, 1]);
    }

    #[test]
    fn many_addresses_have_32_together() {
        let strangers = Strangers::default();
        let from: Vec<String> = (0..40).map(|n| format!("10.0.0.{n}")).collect();
        let mut admitted = admit(&strangers, &from.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(cut(&mut admitted), (0..8).collect::<Vec<_>>());
        assert_eq!(strangers.count(), MOST);
    }
}
