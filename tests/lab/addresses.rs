//! Addresses: who gets which, and the constants of the lab's network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::names::NamespacedName;

/// The node's address on the Pods' bridge: their gateway, and where the controller listens.
pub(super) const NODE_V4: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
pub(super) const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 1);
/// Virtual IPs start here, leaving the first few for whoever writes one into a Service by hand.
const FIRST_SERVICE: u16 = 10;
/// The node has the first address; 0 is the network.
const FIRST_POD: u16 = 2;

/// Hands out addresses in the order of first asking, and never the same one twice while its holder lives.
#[derive(Debug)]
pub(super) struct Pool {
    base: [u8; 2],
    base_v6: [u16; 3],
    next: u16,
    first: u16,
    reserved: BTreeSet<IpAddr>,
    held: BTreeMap<NamespacedName, u16>,
}

impl Pool {
    pub(super) fn of_pods() -> Self {
        Self::new([10, 244], [0xfd00, 0x10, 0x244], FIRST_POD)
    }

    pub(super) fn of_services() -> Self {
        Self::new([10, 96], [0xfd00, 0x10, 0x96], FIRST_SERVICE)
    }

    fn new(base: [u8; 2], base_v6: [u16; 3], first: u16) -> Self {
        Self { base, base_v6, next: first, first, reserved: BTreeSet::new(), held: BTreeMap::new() }
    }

    /// Addresses that are taken by somebody the pool did not serve.
    pub(super) fn reserve(&mut self, addresses: BTreeSet<IpAddr>) {
        self.reserved = addresses;
    }

    /// The IPv4 and IPv6 address of `name`: the one it holds, or the next free one. `None` when all are taken.
    pub(super) fn get(&mut self, name: &NamespacedName) -> Option<(IpAddr, IpAddr)> {
        if let Some(&number) = self.held.get(name) {
            return Some(self.addresses(number));
        }
        let taken: BTreeSet<u16> = self.held.values().copied().collect();
        // Once around: a released address comes back only after all others were used, so that nobody who
        // remembers it talks to a stranger.
        for _ in 0..u16::MAX {
            let number = self.next;
            self.next = if number == u16::MAX - 1 { self.first } else { number + 1 };
            let addresses = self.addresses(number);
            if !taken.contains(&number)
                && !self.reserved.contains(&addresses.0)
                && !self.reserved.contains(&addresses.1)
            {
                self.held.insert(name.clone(), number);
                return Some(addresses);
            }
        }
        None
    }

    /// Takes back what names outside `living` hold.
    pub(super) fn retain(&mut self, living: impl Fn(&NamespacedName) -> bool) {
        self.held.retain(|name, _| living(name));
    }

    /// Takes back what `name` holds.
    pub(super) fn release(&mut self, name: &NamespacedName) {
        self.held.remove(name);
    }

    fn addresses(&self, number: u16) -> (IpAddr, IpAddr) {
        let [high, low] = number.to_be_bytes();
        let [a, b, c] = self.base_v6;
        (
            Ipv4Addr::new(self.base[0], self.base[1], high, low).into(),
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, number).into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name).unwrap()
    }

    #[test]
    fn addresses_are_stable_and_a_released_one_is_not_handed_out_next() {
        let mut pool = Pool::of_pods();
        let first = pool.get(&name("a")).unwrap();
        assert_eq!(first.0.to_string(), "10.244.0.2");
        assert_eq!(first.1.to_string(), "fd00:10:244::2");
        assert_eq!(pool.get(&name("a")), Some(first));
        pool.release(&name("a"));
        assert_eq!(pool.get(&name("b")).unwrap().0.to_string(), "10.244.0.3");
    }

    #[test]
    fn addresses_written_into_services_by_hand_are_left_alone() {
        let mut pool = Pool::of_services();
        pool.reserve(BTreeSet::from(["10.96.0.10".parse().unwrap()]));
        assert_eq!(pool.get(&name("a")).unwrap().0.to_string(), "10.96.0.11");
    }

    #[test]
    fn the_pool_goes_round_and_then_is_empty() {
        let mut pool = Pool::of_pods();
        pool.next = u16::MAX - 1;
        assert_eq!(pool.get(&name("a")).unwrap().0.to_string(), "10.244.255.254");
        assert_eq!(pool.get(&name("b")).unwrap().0.to_string(), "10.244.0.2");
    }
}
