//! The order in which connections that come at once go on with what costs most, such as a TLS handshake.
//!
//! Owns the turns of one port: how many there are at a time, and which connection has the next one. Knows
//! neither what is done in a turn nor how long one may take.
//!
//! Where thousands of peers come at once and all are served together, each waits as long as all of them
//! take, gives up, and comes again: nothing is ever finished. In turns, what is begun is soon done.
//!
//! Addresses have their turns one after the other, whatever number of connections each has: a stranger with
//! thousands delays a peer at another address by one turn. The connections of one address go in the order
//! in which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::eviction::source;
use crate::sync::lock;

/// The turns of one port. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Mutex<State>>);

/// A connection's turn. Dropping it gives it to the next one.
#[derive(Debug)]
pub struct Turn(Turns);

#[derive(Debug)]
struct State {
    queue: Queue,
    /// The way to tell each waiting connection that its turn has come.
    calls: BTreeMap<Number, oneshot::Sender<Turn>>,
}

/// A waiting connection. Older ones compare less.
type Number = u64;

/// The order alone: no tasks, no time.
#[derive(Debug)]
struct Queue {
    /// Turns that nothing has. More than none only while nothing waits.
    free: usize,
    latest: Number,
    waiting: BTreeMap<IpAddr, Waiting>,
    /// The addresses at which something waits, by when the address had its last turn or began to wait.
    order: BTreeSet<(Number, IpAddr)>,
}

/// What waits at one address.
#[derive(Debug)]
struct Waiting {
    since: Number,
    numbers: BTreeSet<Number>,
}

impl Turns {
    /// As many turns at a time as this. 0 counts as 1.
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(State { queue: Queue::new(at_once), calls: BTreeMap::new() })))
    }

    /// Waits for a turn of a connection from this address. A cancelled call loses no turn.
    pub async fn wait(&self, peer: IpAddr) -> Turn {
        let (mut place, called) = {
            let mut state = lock(&self.0);
            let Some(number) = state.queue.enter(peer) else { return Turn(self.clone()) };
            let (call, called) = oneshot::channel();
            state.calls.insert(number, call);
            (Place { turns: self, waits: Some((peer, number)) }, called)
        };
        // The sender is dropped with the place alone, and so after this call.
        let turn = called.await.unwrap_or_else(|_| Turn(self.clone()));
        place.waits = None;
        turn
    }

    /// How many connections wait for a turn.
    pub fn waiting(&self) -> usize {
        lock(&self.0).calls.len()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let call = {
            let mut state = lock(&self.0.0);
            let next = state.queue.next();
            next.and_then(|number| state.calls.remove(&number))
        };
        // A call that was cancelled in this moment gives the turn back, and so comes here again.
        if let Some(call) = call {
            drop(call.send(Turn(self.0.clone())));
        }
    }
}

/// A place in the queue.
struct Place<'a> {
    turns: &'a Turns,
    waits: Option<(IpAddr, Number)>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((peer, number)) = self.waits {
            let mut state = lock(&self.turns.0);
            state.queue.leave(peer, number);
            state.calls.remove(&number);
        }
    }
}

impl Queue {
    fn new(at_once: usize) -> Self {
        Self { free: at_once.max(1), latest: 0, waiting: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Takes a turn if one is free; else returns the number under which the connection waits.
    fn enter(&mut self, peer: IpAddr) -> Option<Number> {
        if self.free > 0 {
            self.free -= 1;
            return None;
        }
        let address = source(peer);
        self.latest += 1;
        let number = self.latest;
        let waiting = self
            .waiting
            .entry(address)
            .or_insert_with(|| Waiting { since: number, numbers: BTreeSet::new() });
        waiting.numbers.insert(number);
        self.order.insert((waiting.since, address));
        Some(number)
    }

    /// Gives a turn that has ended to a waiting connection, which waits no longer. Without one, it is free.
    fn next(&mut self) -> Option<Number> {
        let Some((_, address)) = self.order.pop_first() else {
            self.free += 1;
            return None;
        };
        let waiting = self.waiting.get_mut(&address)?;
        let number = waiting.numbers.pop_first();
        if waiting.numbers.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.latest += 1;
            waiting.since = self.latest;
            self.order.insert((waiting.since, address));
        }
        number
    }

    /// Removes a connection that gave up. Does nothing if it does not wait.
    fn leave(&mut self, peer: IpAddr, number: Number) {
        let address = source(peer);
        let Some(waiting) = self.waiting.get_mut(&address) else { return };
        waiting.numbers.remove(&number);
        if waiting.numbers.is_empty() {
            self.order.remove(&(waiting.since, address));
            self.waiting.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests;
