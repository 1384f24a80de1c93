//! Which sidecars are connected to no replica although they should be.
//!
//! Owns from when a pod counts, and how long its sidecar must have been away, so that neither a rollout nor a
//! restart of a replica is an alarm. Reads no clock: times are the caller's, from any fixed beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use smc_types::ids::{ProxyUuid, WorkloadId};

/// How long a sidecar may take to its first connection, and to the next one.
pub const TIME_TO_CONNECT: Duration = Duration::from_mins(1);

/// A pod that runs with a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// The pod.
    pub pod: WorkloadId,
    /// The UUID of its sidecar.
    pub proxy: ProxyUuid,
    /// The addresses of the pod.
    pub addresses: Vec<IpAddr>,
}

/// The sidecars of the mesh at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attendance<'a> {
    /// How many should be connected.
    pub expected: usize,
    /// How many of these are.
    pub connected: usize,
    /// Those that have been away for long enough, by the names of their pods.
    pub missing: Vec<&'a Sidecar>,
}

/// The sidecars that one replica watches, as many as the catalog has pods.
#[derive(Debug)]
pub struct Missing {
    grace: Duration,
    watched: BTreeMap<(WorkloadId, ProxyUuid), Watched>,
}

#[derive(Debug)]
struct Watched {
    sidecar: Sidecar,
    /// Since when the pod is known.
    known: Duration,
    /// Since when no replica has had its sidecar, at every look.
    away: Option<Duration>,
}

impl Missing {
    /// Nothing is known. A sidecar may take `grace` to connect.
    pub fn new(grace: Duration) -> Self {
        Self { grace, watched: BTreeMap::new() }
    }

    /// Replaces the pods that run with a sidecar. Those that stay keep their times.
    pub fn know(&mut self, sidecars: Vec<Sidecar>, now: Duration) {
        let mut before = std::mem::take(&mut self.watched);
        let keep = |sidecar: Sidecar| {
            let key = (sidecar.pod.clone(), sidecar.proxy);
            let (known, away) = before.remove(&key).map_or((now, None), |old| (old.known, old.away));
            (key, Watched { sidecar, known, away })
        };
        self.watched = sidecars.into_iter().map(keep).collect();
    }

    /// Forgets which sidecars were away, as by a replica that does not count them any more.
    pub fn forget(&mut self) {
        self.watched.values_mut().for_each(|watched| watched.away = None);
    }

    /// Looks which sidecars all replicas together have.
    pub fn look(&mut self, connected: &BTreeSet<ProxyUuid>, now: Duration) -> Attendance<'_> {
        let grace = self.grace;
        let mut attendance = Attendance { expected: 0, connected: 0, missing: Vec::new() };
        for ((_, proxy), watched) in &mut self.watched {
            let is_connected = connected.contains(proxy);
            let since = *watched.away.get_or_insert(now);
            if is_connected {
                watched.away = None;
            }
            if now.saturating_sub(watched.known) < grace {
                continue;
            }
            attendance.expected += 1;
            if is_connected {
                attendance.connected += 1;
            } else if now.saturating_sub(since) >= grace {
                attendance.missing.push(&watched.sidecar);
            }
        }
        attendance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(pod: &str) -> Sidecar {
        let pod: WorkloadId = pod.parse().unwrap();
        Sidecar { proxy: ProxyUuid::derived(&pod), pod, addresses: Vec::new() }
    }

    /// One look at a second: the pods that run, those that are connected, and what comes of it.
    type Look =
        (u64, &'static [&'static str], &'static [&'static str], (usize, usize, &'static [&'static str]));

    fn looks(looks: &[Look]) {
        let mut missing = Missing::new(TIME_TO_CONNECT);
        for (at, pods, connected, (expected, attending, away)) in looks {
            let now = Duration::from_secs(*at);
            missing.know(pods.iter().map(|pod| sidecar(pod)).collect(), now);
            let connected = connected.iter().map(|pod| sidecar(pod).proxy).collect();
            let found = missing.look(&connected, now);
            let names: Vec<_> = found.missing.iter().map(|sidecar| sidecar.pod.to_string()).collect();
            assert_eq!((found.expected, found.connected), (*expected, *attending), "at {at}");
            assert_eq!(names, *away, "at {at}");
        }
    }

    #[test]
    fn a_pod_counts_from_a_minute_on_and_is_missing_if_it_never_came() {
        looks(&[
            (0, &["shop/a", "shop/b"], &["shop/a"], (0, 0, &[])),
            (45, &["shop/a", "shop/b", "shop/new"], &["shop/a"], (0, 0, &[])),
            (60, &["shop/a", "shop/b", "shop/new"], &["shop/a"], (2, 1, &["shop/b"])),
            (105, &["shop/a", "shop/b", "shop/new"], &["shop/a"], (3, 1, &["shop/b", "shop/new"])),
            (120, &["shop/a", "shop/new"], &["shop/a", "shop/new"], (2, 2, &[])),
        ]);
    }

    #[test]
    fn a_sidecar_that_comes_back_within_a_minute_is_not_missing() {
        looks(&[
            (0, &["shop/a"], &["shop/a"], (0, 0, &[])),
            (60, &["shop/a"], &[], (1, 0, &[])),
            (105, &["shop/a"], &["shop/a"], (1, 1, &[])),
            (120, &["shop/a"], &[], (1, 0, &[])),
            (165, &["shop/a"], &[], (1, 0, &[])),
            (180, &["shop/a"], &[], (1, 0, &["shop/a"])),
        ]);
    }

    #[test]
    fn another_sidecar_of_a_pod_of_the_same_name_has_its_own_minute() {
        let mut missing = Missing::new(TIME_TO_CONNECT);
        let (first, later) =
            (sidecar("shop/a"), Sidecar { proxy: sidecar("x/x").proxy, ..sidecar("shop/a") });
        missing.know(vec![first], Duration::ZERO);
        missing.look(&BTreeSet::new(), Duration::ZERO);
        missing.know(vec![later], Duration::from_secs(59));
        assert_eq!(missing.look(&BTreeSet::new(), TIME_TO_CONNECT).expected, 0);
    }

    #[test]
    fn a_replica_that_counts_again_begins_the_minute_again() {
        let mut missing = Missing::new(TIME_TO_CONNECT);
        missing.know(vec![sidecar("shop/a")], Duration::ZERO);
        missing.look(&BTreeSet::new(), Duration::ZERO);
        missing.forget();
        let found = missing.look(&BTreeSet::new(), TIME_TO_CONNECT);
        assert_eq!((found.expected, found.missing.len()), (1, 0));
    }
}
