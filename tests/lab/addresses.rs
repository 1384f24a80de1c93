//! Owns the pools that Pod and Service addresses come from, and the constants of the lab's network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smc_types::ids::NamespacedName;

/// The node's address on the Pods' bridge: their gateway, and the controller's listening address.
pub(super) const NODE_V4: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
pub(super) const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 1);
/// The first virtual IP handed out. The addresses below it are free for Services that declare one.
const FIRST_SERVICE: u16 = 10;
/// The node has the first address; 0 is the network.
const FIRST_POD: u16 = 2;

/// Allocates addresses in the order of the first requests. No address is in use twice.
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

    /// Sets the addresses that Services declare themselves; the pool does not hand them out.
    pub(super) fn reserve(&mut self, addresses: BTreeSet<IpAddr>) {
        self.reserved = addresses;
    }

    /// Returns the IPv4 and IPv6 address of `name`: the pair it holds, or the next free pair.
    /// `None` if all are in use.
    pub(super) fn get(&mut self, name: &NamespacedName) -> Option<(IpAddr, IpAddr)> {
        if let Some(&number) = self.held.get(name) {
            return Some(self.addresses(number));
        }
        let taken: BTreeSet<u16> = self.held.values().copied().collect();
        // Once around. A released address is used again only after all others, so that a client
        // with a stale address does not reach another Pod.
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

    /// Releases the addresses of every name for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&NamespacedName) -> bool) {
        self.held.retain(|name, _| keep(name));
    }

    /// Releases the addresses of `name`.
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
