//! The ring: the order in which a proxy connects to the replicas.
//!
//! Owns that order. It is rendezvous hashing (Thaler and Ravishankar, 1996) of the proxy's UUID and
//! the replica's id: proxies spread evenly over replicas, the proxies of a failed replica spread
//! evenly over the others, and a new replica takes an equal share from each and moves no other
//! proxy. The order is part of every bootstrap that was ever issued, so the hash must never change.

use sha2::{Digest, Sha256};
use smc_types::ids::{ProxyUuid, ReplicaId};

/// The replicas in the order in which `proxy` connects to them.
pub fn preference(proxy: ProxyUuid, replicas: impl IntoIterator<Item = ReplicaId>) -> Vec<ReplicaId> {
    let weight = |replica: ReplicaId| {
        let mut hash = Sha256::new();
        hash.update(proxy.0.as_bytes());
        hash.update(replica.0.to_be_bytes());
        <[u8; 32]>::from(hash.finalize())
    };
    let mut ordered: Vec<_> = replicas.into_iter().map(|replica| (weight(replica), replica)).collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, replica)| replica).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use smc_types::ids::WorkloadId;

    fn proxy(name: &str) -> ProxyUuid {
        ProxyUuid::derived(&WorkloadId::new("bookstore", name).unwrap())
    }

    fn replicas(count: u64) -> impl Iterator<Item = ReplicaId> {
        (0..count).map(ReplicaId)
    }

    #[test]
    fn the_order_of_a_proxy_never_changes() {
        for (name, expected) in [
            ("v1", [3, 0, 4, 2, 1]),
            ("v2", [1, 0, 4, 3, 2]),
            ("v3", [2, 4, 3, 1, 0]),
            ("v4", [3, 2, 1, 0, 4]),
            ("v5", [0, 2, 1, 3, 4]),
            ("v6", [1, 4, 2, 0, 3]),
        ] {
            assert_eq!(preference(proxy(name), replicas(5)), expected.map(ReplicaId), "{name}");
        }
    }

    #[test]
    fn proxies_spread_evenly_and_those_of_a_failed_replica_over_the_others() {
        let proxies: Vec<_> = (0..3000u32).map(|n| proxy(&format!("v{n}"))).collect();
        let mut firsts = BTreeMap::<ReplicaId, usize>::new();
        let mut seconds = BTreeMap::<(ReplicaId, ReplicaId), usize>::new();
        for proxy in &proxies {
            let order = preference(*proxy, replicas(3));
            *firsts.entry(order[0]).or_default() += 1;
            *seconds.entry((order[0], order[1])).or_default() += 1;
            // A new replica takes some proxies, and moves none between the others.
            let new = ReplicaId(3);
            let more = preference(*proxy, replicas(4));
            assert!(more[0] == new || more[0] == order[0]);
            assert_eq!(more.into_iter().filter(|replica| *replica != new).collect::<Vec<_>>(), order);
        }
        assert!(firsts.values().all(|count| (900..1100).contains(count)), "{firsts:?}");
        assert!(seconds.values().all(|count| (400..600).contains(count)), "{seconds:?}");
    }
}
