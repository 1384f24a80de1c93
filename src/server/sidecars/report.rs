//! What is found of the sidecars, as replicas tell each other and people.
//!
//! Owns the merging of answers, and the words. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use bytes::Bytes;
use smc_proto::peer::v1::{SidecarsAnswer, SidecarsReport};
use smc_types::ids::{ProxyUuid, WorkloadId};
use smc_types::problem::{Problem, Subject};
use smc_xds::missing::{Attendance, Sidecar};

/// Pods that are named; `smc proxy list` has all that are connected.
const MAX_NAMED: usize = 5;

/// Where a person reads on.
const HINT: &str = "docs/install.md#not-connected";

/// What all replicas together have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// The proxies with a stream.
    pub(super) connected: BTreeSet<ProxyUuid>,
    unrecorded: BTreeSet<ProxyUuid>,
    distrustful: BTreeSet<IpAddr>,
}

impl Present {
    /// Adds what one replica has.
    pub(super) fn add(&mut self, answer: &SidecarsAnswer) {
        let SidecarsAnswer { connected, unrecorded, distrustful } = answer;
        let addresses = distrustful.as_chunks().0.iter();
        self.connected.extend(connected.as_chunks().0.iter().copied().map(ProxyUuid::from_bytes));
        self.unrecorded.extend(unrecorded.as_chunks().0.iter().copied().map(ProxyUuid::from_bytes));
        self.distrustful.extend(addresses.map(|octets| Ipv6Addr::from(*octets).to_canonical()));
    }

    fn refused(&self, sidecar: &Sidecar) -> bool {
        self.unrecorded.contains(&sidecar.proxy)
            || sidecar.addresses.iter().any(|address| self.distrustful.contains(&address.to_canonical()))
    }
}

/// One after the other.
pub(super) fn packed(all: impl IntoIterator<Item = [u8; 16]>) -> Bytes {
    all.into_iter().flatten().collect()
}

/// An address as an IPv6 address.
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The report on these sidecars.
pub(super) fn report(found: &Attendance<'_>, present: &Present) -> SidecarsReport {
    let count = |count| u64::try_from(count).unwrap_or(u64::MAX);
    let refused: Vec<_> = found.missing.iter().filter(|sidecar| present.refused(sidecar)).collect();
    SidecarsReport {
        expected: count(found.expected),
        connected: count(found.connected),
        missing: count(found.missing.len()),
        named: found.missing.iter().take(MAX_NAMED).map(|sidecar| sidecar.pod.to_string()).collect(),
        refused: count(refused.len()),
        first_refused: refused.first().map(|sidecar| sidecar.pod.to_string()).unwrap_or_default(),
    }
}

/// The one problem of the mesh's sidecars, if any is missing. An error if none is connected.
pub(super) fn problem(report: &SidecarsReport) -> Option<Problem> {
    let SidecarsReport { expected, connected, missing, named, refused, first_refused } = report;
    if *missing == 0 {
        return None;
    }
    // Another replica chose these bytes.
    let named = named.iter().take(MAX_NAMED).filter_map(|name| name.parse::<WorkloadId>().ok());
    let mut shown: Vec<_> = named.map(|name| name.to_string()).collect();
    match missing.saturating_sub(u64::try_from(shown.len()).unwrap_or(u64::MAX)) {
        0 => {}
        more => shown.push(format!("{more} more")),
    }
    let count = format!(
        "{missing} of {expected} not connected to any controller for a minute or longer: {}",
        shown.join(", ")
    );
    let refused = match first_refused.parse::<WorkloadId>() {
        Ok(first) if *refused > 0 => format!(
            "; controllers refuse {refused} of them, such as that of {first}, whose certificates are of another \
             certificate authority or not on record: restore that authority, or restart the pods"
        ),
        _ => String::new(),
    };
    let message = format!("{count}{refused}; see {HINT}");
    Some(match connected {
        0 => Problem::error(Subject::Sidecars, "", message),
        _ => Problem::warning(Subject::Sidecars, "", message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(number: u8) -> Sidecar {
        let pod: WorkloadId = format!("shop/p{number}").parse().unwrap();
        let addresses = vec![IpAddr::from([10, 0, 0, number])];
        Sidecar { proxy: ProxyUuid::derived(&pod), pod, addresses }
    }

    #[test]
    fn the_problem_counts_names_a_few_and_says_who_is_refused() {
        let all: Vec<_> = (0..7).map(sidecar).collect();
        let none = Present::default();
        let mut strangers = Present::default();
        strangers.add(&SidecarsAnswer {
            connected: packed([all[6].proxy.to_bytes()]),
            unrecorded: packed([all[3].proxy.to_bytes()]),
            distrustful: packed([octets(all[1].addresses[0])]),
        });
        assert!(strangers.connected.contains(&all[6].proxy));
        for (connected, missing, present, expected) in [
            (7, 0..0, &none, None),
            (
                6,
                2..3,
                &none,
                Some(
                    "warning: sidecars: 1 of 7 not connected to any controller for a minute or longer: shop/p2; \
                     see docs/install.md#not-connected",
                ),
            ),
            (
                0,
                0..7,
                &strangers,
                Some(
                    "error: sidecars: 7 of 7 not connected to any controller for a minute or longer: shop/p0, shop/p1, \
                     shop/p2, shop/p3, shop/p4, 2 more; controllers refuse 2 of them, such as that of shop/p1, whose \
                     certificates are of another certificate authority or not on record: restore that authority, or \
                     restart the pods; see docs/install.md#not-connected",
                ),
            ),
        ] {
            let missing = all[missing].iter().collect();
            let found = report(&Attendance { expected: 7, connected, missing }, present);
            assert_eq!(problem(&found).map(|problem| problem.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn another_replicas_words_are_names_of_pods_or_not_shown() {
        let named = vec!["\u{1b}[2J".to_owned(), "shop/a".to_owned()];
        let report = SidecarsReport {
            expected: 3,
            missing: 2,
            named,
            refused: 1,
            first_refused: "\n".to_owned(),
            ..Default::default()
        };
        let shown = problem(&report).unwrap().to_string();
        assert_eq!(
            shown,
            "error: sidecars: 2 of 3 not connected to any controller for a minute or longer: shop/a, 1 more; see \
             docs/install.md#not-connected"
        );
    }
}
