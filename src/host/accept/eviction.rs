//! Which of the connections that wait to prove themselves are closed for new ones.
//!
//! Owns the decision, for every port: a new connection always gets a place, and who leaves for it. Opens
//! and closes nothing, and knows no time.
//!
//! A connection waits from its accept until its peer has proved itself: by a TLS handshake, or by a request
//! that was answered. Strangers can make any number of connections that never do. So the newest is never
//! refused: an honest peer proves itself in a few round trips, and what has waited longest is most likely
//! silent. Who leaves:
//!
//! - If the peer's own address has all the places that one address may have: the oldest of that address.
//! - Else, if all places are taken: the oldest of the address that has the most, so that who takes many
//!   loses its own. Where no address has more than its fair number ([`Bounds::fair`]), the oldest of all.
//!
//! An address at which a peer has proved itself before is vouched for. It has places of its own: strangers
//! at other addresses can neither take them nor end what waits there. Strangers at the same address, as
//! behind a NAT, can; then an honest peer has the time until so many newer ones have come as one address may
//! have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// The bounds of one port.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Places for all addresses together that are not vouched for.
    pub total: usize,
    /// Places for one address, vouched for or not.
    pub per_address: usize,
    /// An address with at most as many connections loses none to a full room while another has more. What
    /// stays for long, and so is the oldest of all, needs a small number: the smaller, the more addresses it
    /// takes to have no more than that.
    pub fair: usize,
}

/// The fair number of connections that wait for a moment: two restarting replicas behind one address, with
/// four connections each.
pub const FAIR: usize = 8;

/// The addresses that are vouched for. More than the nine members of a group, whose addresses change when
/// they are moved. The one that proved itself least recently is forgotten for a new one.
const MAX_VOUCHED: usize = 16;

/// A waiting connection. Older ones compare less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The connections of one port that wait.
#[derive(Debug)]
pub(super) struct Room {
    bounds: Bounds,
    latest: u64,
    waiting: BTreeMap<Ticket, IpAddr>,
    by_address: BTreeMap<IpAddr, BTreeSet<Ticket>>,
    /// Those at addresses that are not vouched for.
    strangers: BTreeSet<Ticket>,
    /// The same addresses, by how many wait there and then by the oldest of them; the last has most.
    crowds: BTreeSet<(usize, Reverse<Ticket>)>,
    /// The most recent last.
    vouched: VecDeque<IpAddr>,
}

impl Room {
    /// An empty room. A bound of 0 counts as 1.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds: Bounds {
                total: bounds.total.max(1),
                per_address: bounds.per_address.max(1),
                fair: bounds.fair,
            },
            latest: 0,
            waiting: BTreeMap::new(),
            by_address: BTreeMap::new(),
            strangers: BTreeSet::new(),
            crowds: BTreeSet::new(),
            vouched: VecDeque::new(),
        }
    }

    /// Adds a connection. Also returns those that the caller must close for it; the room has forgotten them.
    pub(super) fn enter(&mut self, peer: IpAddr) -> (Ticket, Vec<Ticket>) {
        let address = source(peer);
        let mut evicted = Vec::new();
        if let Some(own) = self.by_address.get(&address)
            && own.len() >= self.bounds.per_address
        {
            evicted.extend(own.first());
        }
        for ticket in &evicted {
            self.leave(*ticket);
        }
        let vouched = self.vouched.contains(&address);
        // More than one after an address has been forgotten, whose connections are strangers' now.
        while self.strangers.len() >= self.bounds.total + usize::from(vouched)
            && let Some(victim) = self.victim()
        {
            self.leave(victim);
            evicted.push(victim);
        }
        self.latest += 1;
        let ticket = Ticket(self.latest);
        self.change(address, |own| {
            own.insert(ticket);
        });
        self.waiting.insert(ticket, address);
        if !vouched {
            self.strangers.insert(ticket);
        }
        (ticket, evicted)
    }

    /// Removes a connection that ended or proved itself. Does nothing if it has left already.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        let Some(address) = self.waiting.remove(&ticket) else { return };
        self.strangers.remove(&ticket);
        self.change(address, |own| {
            own.remove(&ticket);
        });
    }

    /// Notes that a peer at this address has proved itself.
    pub(super) fn vouch(&mut self, peer: IpAddr) {
        let address = source(peer);
        if self.vouched.back() == Some(&address) {
            return;
        }
        self.vouched.retain(|known| *known != address);
        self.vouched.push_back(address);
        self.recount(address);
        if self.vouched.len() > MAX_VOUCHED
            && let Some(forgotten) = self.vouched.pop_front()
        {
            self.recount(forgotten);
        }
    }

    fn victim(&self) -> Option<Ticket> {
        match self.crowds.last() {
            Some((count, Reverse(oldest))) if *count > self.bounds.fair => Some(*oldest),
            _ => self.strangers.first().copied(),
        }
    }

    /// Changes the connections of an address, with what is counted of them.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeSet<Ticket>)) {
        let own = self.by_address.entry(address).or_default();
        if let Some(crowd) = crowd(own) {
            self.crowds.remove(&crowd);
        }
        change(own);
        match crowd(own) {
            None => {
                self.by_address.remove(&address);
            }
            Some(crowd) if !self.vouched.contains(&address) => {
                self.crowds.insert(crowd);
            }
            Some(_) => {}
        }
    }

    /// Counts the connections of an address again, as those of a stranger, or not.
    fn recount(&mut self, address: IpAddr) {
        let own = self.by_address.get(&address).cloned().unwrap_or_default();
        let strange = !self.vouched.contains(&address);
        self.strangers.retain(|ticket| !own.contains(ticket));
        if strange {
            self.strangers.extend(&own);
        }
        self.change(address, |_| {});
    }
}

fn crowd(own: &BTreeSet<Ticket>) -> Option<(usize, Reverse<Ticket>)> {
    own.first().map(|oldest| (own.len(), Reverse(*oldest)))
}

/// What counts as one address: an IPv4 address, however it is written, or the /64 of an IPv6 address, which
/// is what one machine commonly has to choose from (RFC 7421).
pub fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests;
