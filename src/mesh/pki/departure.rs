//! When the certificates of a proxy whose pod is gone are released.
//!
//! Owns the patience: a release is for good, and a source may lose sight of a pod that is still there. So a proxy is
//! released only after it has been missing from every look for a grace. Refuses to look and to release.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::ProxyName;
use crate::time::Timestamp;

/// Proxies that are missing, and for how long. A restart begins anew, which errs on the side of patience.
#[derive(Debug, Clone)]
pub struct Departures {
    grace: Duration,
    /// When the latest look was; `None` if that one saw nothing, or there was none.
    looked_at: Option<Timestamp>,
    missing: BTreeMap<ProxyName, Duration>,
}

impl Departures {
    /// Nobody is missing yet. `grace` is how long a proxy must have been before it is released.
    pub fn new(grace: Duration) -> Self {
        Self { grace, looked_at: None, missing: BTreeMap::new() }
    }

    /// How often to look: a tenth of the grace, so that it is kept to within that; not more often than the clock
    /// ticks, nor less than once a minute.
    pub fn period(&self) -> Duration {
        (self.grace / 10).clamp(Duration::from_secs(1), Duration::from_mins(1))
    }

    /// Takes one look. `missing` are the proxies that have certificates to release and no pod; `None` if the mesh
    /// cannot be seen, because its sources have not synced or tell of no pod at all: nothing counts then. Returns
    /// those to release now, sorted. They are returned again by every look that misses them still, so a release that
    /// failed is tried again. Who is seen once is counted from zero again.
    ///
    /// Between two looks no more than two periods count: a clock that jumped, or a process that was asleep, says
    /// nothing about pods.
    pub fn look(&mut self, missing: Option<BTreeSet<ProxyName>>, now: Timestamp) -> Vec<ProxyName> {
        let Some(missing) = missing else {
            self.looked_at = None;
            return Vec::new();
        };
        let passed = self.looked_at.map_or(Duration::ZERO, |last| now.since(last)).min(2 * self.period());
        self.looked_at = Some(now);
        let before = std::mem::take(&mut self.missing);
        let counted = |proxy: ProxyName| {
            let absence = before.get(&proxy).map_or(Duration::ZERO, |absence| absence.saturating_add(passed));
            (proxy, absence)
        };
        self.missing = missing.into_iter().map(counted).collect();
        let due = self.missing.iter().filter(|(_, absence)| **absence >= self.grace);
        due.map(|(proxy, _)| proxy.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProxyUuid;

    const START: Timestamp = Timestamp(1_800_000_000);
    const GRACE: Duration = Duration::from_mins(10);

    fn proxy(n: u8) -> ProxyName {
        ProxyName::new(ProxyUuid(uuid::Uuid::from_bytes([n; 16])), "bookstore").unwrap()
    }

    /// Looks at these minutes after the start, each missing these proxies; what each look releases.
    fn looks(looks: &[(i64, Option<&[u8]>)]) -> Vec<Vec<u8>> {
        let mut departures = Departures::new(GRACE);
        let number = |proxy: ProxyName| proxy.uuid.0.as_bytes()[0];
        let look = |&(minute, missing): &(i64, Option<&[u8]>)| {
            let missing = missing.map(|missing| missing.iter().map(|&n| proxy(n)).collect());
            departures.look(missing, Timestamp(START.0 + 60 * minute)).into_iter().map(number).collect()
        };
        looks.iter().map(look).collect()
    }

    /// A look every minute from `from` to `to`, both included, all alike.
    fn every_minute(from: i64, to: i64, missing: Option<&[u8]>) -> Vec<(i64, Option<&[u8]>)> {
        (from..=to).map(|minute| (minute, missing)).collect()
    }

    fn released(looked: &[(i64, Option<&[u8]>)]) -> Vec<(i64, Vec<u8>)> {
        let minutes = looked.iter().map(|(minute, _)| *minute);
        minutes.zip(looks(looked)).filter(|(_, due)| !due.is_empty()).collect()
    }

    #[test]
    fn a_proxy_is_released_once_it_has_been_missing_for_the_grace_and_until_it_is() {
        assert_eq!(released(&every_minute(0, 11, Some(&[1]))), [(10, vec![1]), (11, vec![1])]);
        // Released, it has no certificate left to release, and is not among the missing.
        let looked = [every_minute(0, 10, Some(&[1])), every_minute(11, 30, Some(&[]))].concat();
        assert_eq!(released(&looked), [(10, vec![1])]);
    }

    #[test]
    fn each_is_counted_by_itself() {
        let looked = [every_minute(0, 3, Some(&[1])), every_minute(4, 14, Some(&[1, 2]))].concat();
        let expected = [(10, vec![1]), (11, vec![1]), (12, vec![1]), (13, vec![1]), (14, vec![1, 2])];
        assert_eq!(released(&looked), expected);
    }

    #[test]
    fn who_comes_back_is_counted_from_zero_again() {
        let looked = [
            every_minute(0, 9, Some(&[1])),
            every_minute(10, 10, Some(&[])),
            every_minute(11, 21, Some(&[1])),
        ];
        assert_eq!(released(&looked.concat()), [(21, vec![1])]);
    }

    #[test]
    fn nothing_counts_while_the_mesh_cannot_be_seen() {
        let looked = [every_minute(0, 60, None), every_minute(61, 71, Some(&[1]))].concat();
        assert_eq!(released(&looked), [(71, vec![1])]);
        // What was counted before stays.
        let looked =
            [every_minute(0, 5, Some(&[1])), every_minute(6, 60, None), every_minute(61, 66, Some(&[1]))];
        assert_eq!(released(&looked.concat()), [(66, vec![1])]);
    }

    #[test]
    fn a_clock_that_jumps_releases_nobody() {
        assert_eq!(released(&[(0, Some(&[1])), (600, Some(&[1])), (60, Some(&[1])), (61, Some(&[1]))]), []);
    }

    #[test]
    fn looks_come_a_tenth_of_the_grace_apart_within_bounds() {
        for (grace, period) in [(0, 1), (5, 1), (60, 6), (600, 60), (86_400, 60)] {
            let departures = Departures::new(Duration::from_secs(grace));
            assert_eq!(departures.period(), Duration::from_secs(period), "{grace}");
        }
    }
}
