//! The moves: which connected proxies a replica hands over, to whom, and which it leaves alone for a
//! while.
//!
//! Owns that choice. A proxy moves to the replica that owns it, which is ready; a replica that drains
//! owns nothing. Where the proxy really connects then is Envoy's decision: one that came back is not
//! moved again at once. Reads no clock: times are the caller's, from any fixed beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smc_types::ids::{ProxyUuid, ReplicaId};

use super::ring::Ring;
use super::{owner, until_retried};

/// Moves to one replica that are asked for at once: a quarter of a second of the fastest pace.
const MAX_TOGETHER: usize = 250;

/// How long a proxy is left alone after its first move. It may come back once: Envoy leaves a replica alone
/// that it could not reach ([`ejection`](super::ejection)).
const FIRST_REST: Duration = Duration::from_secs(10);

/// How long at most: each return doubles it.
const LONGEST_REST: Duration = Duration::from_mins(5);

/// Proxies whose moves are remembered: as many as can be connected.
const MAX_REMEMBERED: usize = 20_000;

/// Who takes part in the division of the proxies, as a replica sees it.
#[derive(Debug, Clone, Copy)]
pub struct Division<'a> {
    /// This replica.
    pub me: ReplicaId,
    /// Whether it hands all its proxies over.
    pub draining: bool,
    /// The ring of all replicas.
    pub ring: &'a Ring,
    /// The ready ones.
    pub ready: &'a BTreeSet<ReplicaId>,
}

impl Division<'_> {
    /// The replica that `proxy`, which is connected to this one, should move to; `None` if it should
    /// stay.
    pub fn receiver(&self, proxy: ProxyUuid) -> Option<ReplicaId> {
        if self.draining {
            let mut order = self.ring.walk(proxy);
            let next = order.find(|replica| *replica != self.me && self.ready.contains(replica));
            // A bootstrap may name replicas that this one is not configured with, or one address for all.
            return next.or_else(|| self.ready.iter().copied().find(|replica| *replica != self.me));
        }
        if !self.ring.replicas().contains(&self.me) {
            // Its bootstraps do not name the replicas one by one, so they divide nothing.
            return None;
        }
        owner(self.ring, proxy, self.ready).filter(|owner| *owner != self.me)
    }
}

/// The moves of one replica so far.
#[derive(Debug, Default)]
pub struct Moved {
    rests: BTreeMap<ProxyUuid, Rest>,
    /// No rest is over before. A replica that drains notes thousands of moves at once, and must not look
    /// through all that it remembers for each of them.
    none_over_before: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    /// When the proxy was moved last.
    at: Duration,
    /// How long it is left alone then.
    rest: Duration,
}

impl Rest {
    /// When nothing speaks of the proxy any more: it has been elsewhere for as long again.
    fn end(self) -> Duration {
        self.at.saturating_add(self.rest * 2)
    }

    fn is_over(self, now: Duration) -> bool {
        now >= self.end()
    }
}

impl Moved {
    /// Notes that `proxy` is moved now.
    pub fn note(&mut self, proxy: ProxyUuid, now: Duration) {
        let rest = match self.rests.get(&proxy) {
            Some(before) if !before.is_over(now) => (before.rest * 2).min(LONGEST_REST),
            _ => FIRST_REST,
        };
        if self.rests.len() >= MAX_REMEMBERED {
            self.forget_what_is_over(now);
            // All of them moved within minutes. One is moved once too often.
            while self.rests.len() >= MAX_REMEMBERED {
                self.rests.pop_first();
            }
        }
        let rest = Rest { at: now, rest };
        self.none_over_before = self.none_over_before.min(rest.end());
        self.rests.insert(proxy, rest);
    }

    fn forget_what_is_over(&mut self, now: Duration) {
        if now < self.none_over_before {
            return;
        }
        self.rests.retain(|_, rest| !rest.is_over(now));
        self.none_over_before = self.rests.values().map(|rest| rest.end()).min().unwrap_or(Duration::MAX);
    }

    /// Whether `proxy` came back from a move and is left alone for now.
    pub fn rests(&self, proxy: ProxyUuid, now: Duration) -> bool {
        self.rests.get(&proxy).is_some_and(|moved| now.saturating_sub(moved.at) < moved.rest)
    }
}

/// The proxies to hand over now, by receiver, in the order of their ids, which are random, and no more
/// for each than may be asked for together. `connected` says how long each proxy has been connected: one
/// that came a moment ago may be here because it could not reach its owner, and would come back. A replica
/// that drains spares no proxy.
pub fn plan(
    connected: impl IntoIterator<Item = (ProxyUuid, Duration)>,
    division: &Division<'_>,
    moved: &Moved,
    now: Duration,
) -> BTreeMap<ReplicaId, Vec<ProxyUuid>> {
    let connected: BTreeMap<_, _> = connected.into_iter().collect();
    let until_retried = until_retried(division.ring.replicas().len());
    let mut plan: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (proxy, since) in connected {
        if !division.draining && (since < until_retried || moved.rests(proxy, now)) {
            continue;
        }
        let Some(receiver) = division.receiver(proxy) else { continue };
        let proxies = plan.entry(receiver).or_default();
        if proxies.len() < MAX_TOGETHER {
            proxies.push(proxy);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::collection::btree_set;
    use proptest::prelude::{any, proptest};

    use super::*;

    const ME: ReplicaId = ReplicaId(0);

    /// A process makes a ring once, and so does a test with many cases.
    static FIVE: LazyLock<Ring> = LazyLock::new(|| Ring::new((0..5).map(ReplicaId)));

    fn proxy(number: u128) -> ProxyUuid {
        ProxyUuid(uuid::Uuid::from_u128(number))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ready(replicas: &[u64]) -> BTreeSet<ReplicaId> {
        replicas.iter().copied().map(ReplicaId).collect()
    }

    #[test]
    fn a_proxy_moves_to_its_owner_and_to_nobody_else() {
        let ring = Ring::new((0..3).map(ReplicaId));
        let of = |first: u64| {
            (0..1000).map(proxy).find(|proxy| ring.order(*proxy)[0] == ReplicaId(first)).unwrap()
        };
        for (proxy, draining, is_ready, expected, sentence) in [
            (of(0), false, &[0, 1, 2][..], None, "it is where it belongs"),
            (of(1), false, &[0, 1, 2], Some(1), "its owner is ready"),
            (of(1), false, &[0], None, "its owner is not ready"),
            (of(1), false, &[], None, "nobody is ready"),
            (of(0), true, &[0, 1], Some(1), "the drain is not known to the others yet"),
            (of(0), true, &[0], None, "there is nobody to drain to"),
            (of(0), true, &[0, 7], Some(7), "the one other is in no bootstrap that this replica makes"),
        ] {
            let ready = ready(is_ready);
            let division = Division { me: ME, draining, ring: &ring, ready: &ready };
            assert_eq!(division.receiver(proxy), expected.map(ReplicaId), "{sentence}");
        }
    }

    #[test]
    fn a_replica_that_no_bootstrap_names_moves_nothing_until_it_drains() {
        let (ring, ready) = (Ring::new([ReplicaId(1)]), ready(&[0, 1]));
        for (draining, expected) in [(false, None), (true, Some(ReplicaId(1)))] {
            let division = Division { me: ME, draining, ring: &ring, ready: &ready };
            assert_eq!(division.receiver(proxy(1)), expected);
        }
    }

    #[test]
    fn a_proxy_that_comes_back_is_left_alone_twice_as_long_each_time() {
        let mut moved = Moved::default();
        let mut now = seconds(100);
        for rest in [10, 20, 40, 80, 160, 300, 300] {
            moved.note(proxy(1), now);
            assert!(moved.rests(proxy(1), now + seconds(rest - 1)), "{rest}");
            now += seconds(rest);
            assert!(!moved.rests(proxy(1), now), "{rest}");
        }
        now += seconds(300);
        moved.note(proxy(1), now);
        assert!(!moved.rests(proxy(1), now + seconds(10)), "the past is forgotten");
    }

    #[test]
    fn a_proxy_that_has_just_come_may_not_have_reached_its_owner() {
        let (ring, ready) = (Ring::new((0..3).map(ReplicaId)), ready(&[0, 1, 2]));
        let guest = (0..1000).map(proxy).find(|proxy| ring.order(*proxy)[0] == ReplicaId(1)).unwrap();
        let moment = Duration::from_millis(1);
        for (draining, since, expected) in [
            (false, until_retried(3).saturating_sub(moment), &[][..]),
            (false, until_retried(3), &[guest]),
            (true, Duration::ZERO, &[guest]),
        ] {
            let division = Division { me: ME, draining, ring: &ring, ready: &ready };
            let plan = plan([(guest, since)], &division, &Moved::default(), seconds(5));
            assert_eq!(plan.into_values().flatten().collect::<Vec<_>>(), expected, "{draining} {since:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut moved = Moved::default();
        let note = |moved: &mut Moved, numbers: std::ops::Range<usize>, now| {
            numbers.for_each(|number| moved.note(proxy(number as u128), seconds(now)));
        };
        note(&mut moved, 0..2 * MAX_REMEMBERED, 0);
        assert_eq!(moved.rests.len(), MAX_REMEMBERED);
        // The first rest is over twenty seconds later: then all are forgotten at once, and not before.
        let (next, half) = (2 * MAX_REMEMBERED, MAX_REMEMBERED / 2);
        note(&mut moved, next..next + half, 19);
        assert_eq!(moved.rests.len(), MAX_REMEMBERED);
        note(&mut moved, 0..1, 20);
        assert_eq!(moved.rests.len(), half + 1, "those of 19 s rest still");
        note(&mut moved, 1..half, 20);
        assert_eq!(moved.rests.len(), MAX_REMEMBERED);
        note(&mut moved, half..half + 1, 39);
        assert_eq!(moved.rests.len(), half + 1, "those of 20 s rest still");
    }

    proptest! {
        #[test]
        fn every_move_is_due_and_leads_to_a_ready_replica(
            replicas in btree_set(0..5u64, 0..5),
            draining in any::<bool>(),
            count in 0..400u128,
        ) {
            let ready: BTreeSet<_> = replicas.into_iter().map(ReplicaId).collect();
            let division = Division { me: ME, draining, ring: &FIVE, ready: &ready };
            let mut moved = Moved::default();
            (0..count / 2).for_each(|number| moved.note(proxy(number), seconds(0)));
            let settled = |number| (proxy(number), until_retried(5));
            let plan = plan((0..count).map(settled), &division, &moved, seconds(5));
            for (receiver, proxies) in &plan {
                assert!(*receiver != ME && ready.contains(receiver));
                assert!(!proxies.is_empty() && proxies.len() <= MAX_TOGETHER);
                for proxy in proxies {
                    assert!(draining || !moved.rests(*proxy, seconds(5)));
                    assert!(draining || owner(&FIVE, *proxy, &ready) == Some(*receiver));
                }
            }
            let others = ready.iter().any(|replica| *replica != ME);
            assert_eq!(plan.is_empty(), !others || plan.values().all(Vec::is_empty) || count == 0
                || (!draining && (0..count).map(proxy).all(|proxy| moved.rests(proxy, seconds(5))
                    || division.receiver(proxy).is_none())));
        }
    }
}
