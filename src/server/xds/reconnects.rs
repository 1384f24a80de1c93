//! What a proxy costs that connects again and again.
//!
//! Owns how fast one proxy may connect, and the addresses at which a proxy was faster. A handshake costs a
//! signature before it says which proxy the peer is, so a proxy that opens nothing but connections pays for
//! none of them. Where one has connected too fast, the next handshakes of its address wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::accept::source;
use smc_host::gcra::Gcra;
use smc_host::sync::lock;
use thiserror::Error;
use tokio::time::Instant;

/// One connection for each of these: 10 a second, as many as streams, of which each connection has one.
const EARN_ONE: Duration = Duration::from_millis(100);

/// Connections at once: as many as streams that may be opened, or wait to be.
const AT_ONCE: u32 = 80;

/// How long the handshakes of an address are slow after a proxy there connected too fast.
const SLOW: Duration = Duration::from_secs(10);

/// One handshake for each of these at a slow address. At half a millisecond of a core each, they take a
/// hundredth of one. Others that share the address, as behind a NAT, get their part of them.
const SLOW_HANDSHAKE: Duration = Duration::from_millis(50);

/// How long a handshake of a slow address may wait for its time: half of what a handshake may take. So at
/// most 100 wait, and those beyond are refused before they cost a signature.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The slow addresses that are kept: far more than a replica has proxies that are hostile. For one more, the
/// one that would be forgotten first is.
const MAX_ADDRESSES: usize = 1024;

/// How fast one proxy connects. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub(super) struct Connecting(Arc<Mutex<Gcra>>);

/// A proxy connects faster than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the proxy connects faster than {} times a second", 1_000 / EARN_ONE.as_millis())]
pub(super) struct TooFast;

/// Too many handshakes wait at an address where a proxy connects too fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a proxy at this address connects too fast, and too many handshakes wait there")]
pub(super) struct TooManyHandshakes;

impl Connecting {
    /// No connection so far.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Gcra::new(now))))
    }

    /// Charges a connection. One that is refused costs nothing, so that the proxy may connect again once its
    /// rate allows it, whatever it tried before.
    pub(super) fn connect(&self, now: Instant) -> Result<(), TooFast> {
        let mut connections = lock(&self.0);
        if !connections.admits(now, EARN_ONE * (AT_ONCE - 1)) {
            return Err(TooFast);
        }
        connections.spend(now, EARN_ONE);
        Ok(())
    }

    /// Whether a new one is the same.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        lock(&self.0).is_full(now)
    }
}

/// The addresses at which a proxy connects too fast.
#[derive(Debug, Default)]
pub(super) struct SlowAddresses(Mutex<BTreeMap<IpAddr, Slow>>);

#[derive(Debug)]
struct Slow {
    until: Instant,
    handshakes: Gcra,
}

impl SlowAddresses {
    /// Notes that a proxy at this address connected too fast.
    pub(super) fn note(&self, now: Instant, peer: IpAddr) {
        let (address, mut slow) = (source(peer), lock(&self.0));
        if !slow.contains_key(&address) && slow.len() >= MAX_ADDRESSES {
            let first = slow.iter().min_by_key(|(_, slow)| slow.until).map(|(address, _)| *address);
            first.and_then(|address| slow.remove(&address));
        }
        let new = || Slow { until: now, handshakes: Gcra::new(now) };
        slow.entry(address).or_insert_with(new).until = now + SLOW;
    }

    /// When the next handshake of this address may begin, for which that time is then taken: `now`, unless
    /// the address is slow.
    pub(super) fn next(&self, now: Instant, peer: IpAddr) -> Result<Instant, TooManyHandshakes> {
        let (address, mut slow) = (source(peer), lock(&self.0));
        let Some(own) = slow.get_mut(&address) else { return Ok(now) };
        if own.until <= now {
            slow.remove(&address);
            return Ok(now);
        }
        if !own.handshakes.admits(now, LONGEST_WAIT) {
            return Err(TooManyHandshakes);
        }
        let begins = own.handshakes.ready_at(now, Duration::ZERO).max(now);
        own.handshakes.spend(now, SLOW_HANDSHAKE);
        Ok(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        [10, 0, high, low].into()
    }

    #[test]
    fn a_proxy_connects_as_often_as_it_opens_streams_and_refusals_are_free() {
        let start = Instant::now();
        let proxy = Connecting::new(start);
        let connected = (0..1_000).take_while(|_| proxy.connect(start).is_ok()).count();
        assert_eq!(connected, 80);
        for _ in 0..10_000 {
            assert_eq!(proxy.clone().connect(start), Err(TooFast));
        }
        assert_eq!(proxy.connect(start + EARN_ONE), Ok(()));
        assert_eq!(proxy.connect(start + EARN_ONE), Err(TooFast));
        assert!(!proxy.is_idle(start + EARN_ONE) && proxy.is_idle(start + EARN_ONE * 81));
    }

    #[test]
    fn handshakes_wait_where_a_proxy_was_too_fast_and_nowhere_else() {
        let (start, slow) = (Instant::now(), SlowAddresses::default());
        assert_eq!(slow.next(start, address(1)), Ok(start));
        slow.note(start, address(1));
        let times: Vec<_> = (0..1_000).map_while(|_| slow.next(start, address(1)).ok()).collect();
        assert_eq!(times.len(), 101);
        assert!((0..).zip(&times).all(|(number, at)| *at == start + SLOW_HANDSHAKE * number));
        assert_eq!(slow.next(start, address(1)), Err(TooManyHandshakes));
        assert_eq!(slow.next(start, address(2)), Ok(start), "another address");
        let later = start + SLOW;
        assert_eq!(slow.next(later, address(1)), Ok(later), "it is forgotten");
        assert!(lock(&slow.0).is_empty());
    }

    #[test]
    fn the_slow_addresses_are_bounded() {
        let (start, slow) = (Instant::now(), SlowAddresses::default());
        for number in 0..5_000 {
            slow.note(start + Duration::from_micros(number.into()), address(number));
        }
        assert_eq!(lock(&slow.0).len(), MAX_ADDRESSES);
        assert!(lock(&slow.0).contains_key(&address(4_999)) && !lock(&slow.0).contains_key(&address(0)));
    }
}
