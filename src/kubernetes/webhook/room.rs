//! The room for what requests of one kind hold in memory, and which of them give way.
//!
//! Owns the decision, and how a request learns of it. A peer that sends large bodies slowly would hold all of
//! the room, and an API server that is refused may go on without the webhook. So a newcomer always gets its
//! place, and who leaves for it is, as in [`smc_host::accept`]:
//!
//! - the oldest request of the address that holds the most, if that is more than one request may;
//! - else the oldest of those that are larger than most honest ones ([`SMALL`]): strangers at many addresses,
//!   each of which holds little, turn the room over faster than a busy replica answers;
//! - else the oldest of all, since an honest request is read and answered within moments.
//!
//! What is being computed keeps its place until that is done.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use smc_host::accept::source;
use smc_host::sync::lock;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// What a request holds beside its body, in bytes: its task.
pub(super) const REQUEST: usize = 8 << 10;

/// What a request may hold without leaving for others while there are larger ones: most reviews are some KiB.
const SMALL: usize = 128 << 10;

/// The room of one kind of requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Mutex<State>>);

/// A request's place. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    ticket: Ticket,
    call: Arc<Call>,
}

/// The way to tell a request that it is to leave.
#[derive(Debug, Default)]
struct Call {
    evicted: CancellationToken,
    /// What is left to be sent. It is freed at once, also where the peer reads nothing and nothing is sent.
    answer: Mutex<Bytes>,
}

/// The request has given way to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the request has given way to others")]
pub(super) struct Evicted;

#[derive(Debug)]
struct State {
    shares: Shares,
    calls: BTreeMap<Ticket, Arc<Call>>,
}

/// A request. Older ones compare less.
type Ticket = u64;

/// The decision alone: no tasks, no time.
#[derive(Debug)]
struct Shares {
    bounds: Bounds,
    used: usize,
    latest: Ticket,
    requests: BTreeMap<Ticket, Request>,
    addresses: BTreeMap<IpAddr, Address>,
    /// The requests that may have to leave.
    movable: BTreeSet<Ticket>,
    /// The addresses of these, by what each holds in all; the last holds the most.
    crowds: BTreeSet<(usize, IpAddr)>,
    /// The movable requests that hold more than [`SMALL`].
    large: BTreeSet<Ticket>,
}

/// The bounds of a room, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// For all requests.
    pub(super) total: usize,
    /// What an address may hold without being the first to give way: one largest request.
    pub(super) fair: usize,
}

#[derive(Debug)]
struct Request {
    address: IpAddr,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Address {
    bytes: usize,
    requests: usize,
    movable: BTreeSet<Ticket>,
}

impl Room {
    /// An empty room.
    pub(super) fn new(bounds: Bounds) -> Self {
        let shares = Shares {
            bounds,
            used: 0,
            latest: 0,
            requests: BTreeMap::new(),
            addresses: BTreeMap::new(),
            movable: BTreeSet::new(),
            crowds: BTreeSet::new(),
            large: BTreeSet::new(),
        };
        Self(Arc::new(Mutex::new(State { shares, calls: BTreeMap::new() })))
    }

    /// A place for a request from this address.
    pub(super) fn enter(&self, peer: IpAddr) -> Result<Place, Evicted> {
        let call = Arc::new(Call::default());
        let mut state = lock(&self.0);
        let ticket = state.shares.enter(source(peer));
        state.calls.insert(ticket, Arc::clone(&call));
        drop(state);
        let place = Place { room: self.clone(), ticket, call };
        place.resize(0)?;
        Ok(place)
    }
}

impl Place {
    /// Changes what the request holds to so many bytes.
    pub(super) fn resize(&self, bytes: usize) -> Result<(), Evicted> {
        let mut state = lock(&self.room.0);
        for ticket in state.shares.resize(self.ticket, bytes.saturating_add(REQUEST)) {
            if let Some(call) = state.calls.remove(&ticket) {
                call.evicted.cancel();
                lock(&call.answer).clear();
            }
        }
        if state.calls.contains_key(&self.ticket) { Ok(()) } else { Err(Evicted) }
    }

    /// Keeps the place until [`Self::unpin`].
    pub(super) fn pin(&self) -> Result<(), Evicted> {
        let mut state = lock(&self.room.0);
        state.shares.set_movable(self.ticket, false);
        if state.calls.contains_key(&self.ticket) { Ok(()) } else { Err(Evicted) }
    }

    /// The request may have to leave again.
    pub(super) fn unpin(&self) {
        lock(&self.room.0).shares.set_movable(self.ticket, true);
    }

    /// Puts the answer into the place, which is then what the request holds.
    pub(super) fn put(&self, answer: Bytes) -> Result<(), Evicted> {
        self.resize(answer.len())?;
        *lock(&self.call.answer) = answer;
        if self.call.evicted.is_cancelled() { Err(Evicted) } else { Ok(()) }
    }

    /// The next bytes of the answer, at most so many; none at its end.
    pub(super) fn take(&self, most: usize) -> Result<Bytes, Evicted> {
        if self.call.evicted.is_cancelled() {
            return Err(Evicted);
        }
        let mut answer = lock(&self.call.answer);
        let next = most.min(answer.len());
        Ok(answer.split_to(next))
    }

    /// How many bytes of the answer are left.
    pub(super) fn left(&self) -> usize {
        lock(&self.call.answer).len()
    }

    /// Does what the request waits for, unless it has to leave before.
    pub(super) async fn hold<T>(&self, work: impl Future<Output = T>) -> Result<T, Evicted> {
        tokio::select! {
            biased;
            () = self.call.evicted.cancelled() => Err(Evicted),
            done = work => Ok(done),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.room.0);
        state.shares.leave(self.ticket);
        state.calls.remove(&self.ticket);
    }
}

impl Shares {
    fn enter(&mut self, address: IpAddr) -> Ticket {
        self.latest += 1;
        let ticket = self.latest;
        self.requests.insert(ticket, Request { address, bytes: 0 });
        self.movable.insert(ticket);
        self.change(address, |own| {
            own.requests += 1;
            own.movable.insert(ticket);
        });
        ticket
    }

    /// Changes what a request holds. Returns those that have left for it, which may be the request itself.
    fn resize(&mut self, ticket: Ticket, bytes: usize) -> Vec<Ticket> {
        let Some(request) = self.requests.get_mut(&ticket) else { return Vec::new() };
        let before = std::mem::replace(&mut request.bytes, bytes);
        let address = request.address;
        self.used = self.used - before + bytes;
        self.change(address, |own| own.bytes = own.bytes - before + bytes);
        self.sort(ticket);
        let mut left = Vec::new();
        while self.used > self.bounds.total
            && let Some(victim) = self.victim()
        {
            self.leave(victim);
            left.push(victim);
        }
        left
    }

    /// Who leaves next: always one, unless all that is there is being computed.
    fn victim(&self) -> Option<Ticket> {
        let crowd = self.crowds.last().filter(|(bytes, _)| *bytes > self.bounds.fair);
        let of_crowd = crowd.and_then(|(_, address)| self.addresses.get(address)?.movable.first());
        of_crowd.or(self.large.first()).or(self.movable.first()).copied()
    }

    /// Notes whether a request is a large one that may have to leave.
    fn sort(&mut self, ticket: Ticket) {
        let is_large = self.requests.get(&ticket).is_some_and(|request| request.bytes > SMALL);
        if is_large && self.movable.contains(&ticket) {
            self.large.insert(ticket);
        } else {
            self.large.remove(&ticket);
        }
    }

    fn set_movable(&mut self, ticket: Ticket, movable: bool) {
        let Some(&Request { address, .. }) = self.requests.get(&ticket) else { return };
        let change = |all: &mut BTreeSet<Ticket>| {
            if movable {
                all.insert(ticket)
            } else {
                all.remove(&ticket)
            };
        };
        change(&mut self.movable);
        self.change(address, |own| change(&mut own.movable));
        self.sort(ticket);
    }

    /// Does nothing if the request has left already.
    fn leave(&mut self, ticket: Ticket) {
        let Some(Request { address, bytes }) = self.requests.remove(&ticket) else { return };
        self.movable.remove(&ticket);
        self.large.remove(&ticket);
        self.used -= bytes;
        self.change(address, |own| {
            own.requests -= 1;
            own.bytes -= bytes;
            own.movable.remove(&ticket);
        });
    }

    /// Changes what is counted of an address.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Address)) {
        let own = self.addresses.entry(address).or_default();
        self.crowds.remove(&(own.bytes, address));
        change(own);
        if !own.movable.is_empty() {
            self.crowds.insert((own.bytes, address));
        }
        if own.requests == 0 {
            self.addresses.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn room() -> Room {
        Room::new(Bounds { total: 10 * MIB, fair: 4 * MIB })
    }

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// A request that holds so many MiB.
    fn request(room: &Room, peer: u8, mib: usize) -> Result<Place, Evicted> {
        let place = room.enter(address(peer))?;
        place.resize(mib * MIB - REQUEST)?;
        Ok(place)
    }

    fn there(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|place| !place.call.evicted.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way_to_a_newcomer() {
        let room = room();
        let small = request(&room, 1, 1).unwrap();
        let large = [4, 3, 2].map(|mib| request(&room, 2, mib).unwrap());
        let [first, second, third] = &large;
        let newcomer = request(&room, 3, 1).unwrap();
        assert_eq!(there(&[&small, first, second, third, &newcomer]), [true, false, true, true, true]);
        assert_eq!(first.resize(1), Err(Evicted));
        // What an address holds is counted together.
        let another = request(&room, 2, 4).unwrap();
        assert_eq!(there(&[&small, second, third, &newcomer, &another]), [true, false, true, true, true]);
    }

    #[test]
    fn the_oldest_of_all_gives_way_where_no_address_has_more_than_its_share() {
        let room = room();
        let places = [1, 2, 3].map(|peer| request(&room, peer, 3).unwrap());
        let [first, second, third] = &places;
        let newcomer = request(&room, 4, 3).unwrap();
        assert_eq!(there(&[first, second, third, &newcomer]), [false, true, true, true]);
        drop(places);
        drop(newcomer);
        assert_eq!(lock(&room.0).shares.used, 0);
    }

    #[test]
    fn a_small_request_stays_while_strangers_turn_the_room_over() {
        let room = room();
        let small = room.enter(address(1)).unwrap();
        small.resize(SMALL - REQUEST).unwrap();
        let strangers: Vec<_> = (2..200).map(|peer| request(&room, peer, 1).unwrap()).collect();
        let left = strangers.iter().take_while(|place| !there(&[place])[0]).count();
        assert_eq!((there(&[&small]), left), (vec![true], 198 - 9));
        small.pin().unwrap();
        small.unpin();
        drop((small, strangers));
        assert!(lock(&room.0).shares.large.is_empty());
    }

    #[test]
    fn what_is_being_computed_keeps_its_place() {
        let room = room();
        let computed = request(&room, 1, 6).unwrap();
        computed.pin().unwrap();
        let waiting = request(&room, 2, 4).unwrap();
        let newcomer = request(&room, 3, 1).unwrap();
        assert_eq!(there(&[&computed, &waiting, &newcomer]), [true, false, true]);
        newcomer.pin().unwrap();
        assert_eq!(request(&room, 4, 4).err(), Some(Evicted), "there is nothing that could leave");
        computed.unpin();
        let next = request(&room, 4, 4).unwrap();
        assert_eq!(there(&[&computed, &newcomer, &next]), [false, true, true]);
        assert_eq!(computed.pin(), Err(Evicted));
    }

    #[tokio::test]
    async fn who_has_to_leave_learns_of_it_while_it_waits() {
        let room = room();
        let slow = request(&room, 1, 8).unwrap();
        assert_eq!(slow.hold(async { 1 }).await, Ok(1));
        let held = slow.hold(std::future::pending::<()>());
        let evicting = async { request(&room, 2, 3).unwrap() };
        let (held, newcomer) = tokio::join!(held, evicting);
        assert_eq!(held, Err(Evicted));
        drop((slow, newcomer));
        let state = lock(&room.0);
        assert!(state.calls.is_empty() && state.shares.requests.is_empty());
        assert!(state.shares.addresses.is_empty() && state.shares.crowds.is_empty());
    }
}
