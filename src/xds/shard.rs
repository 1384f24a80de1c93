//! Sharding: how the proxies of a mesh are divided among the replicas of its controller.
//!
//! Owns the order of replicas that each proxy connects by ([`ring`]), and which replica owns a
//! proxy: the first of the order that is ready. The owner is a preference: any replica serves any
//! proxy. A proxy's bootstrap holds its order, and Envoy fails over along it. Which replicas are
//! ready is a replicated fact, with an epoch (`Ledger::placement`), so that every replica computes
//! the same owner. Proxies move to their owner ([`moves`]) at the pace of the receiver ([`pace`]).

pub mod moves;
pub mod pace;
pub mod ring;

use std::collections::BTreeSet;
use std::time::Duration;

use smc_types::ids::{ProxyUuid, ReplicaId};

use ring::Ring;

/// How long a proxy waits for a connection. A replica that is frozen costs that long each time. With one
/// second, 5,000 proxies that connected at once to two cores gave up 3,400 handshakes and began them again.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time for which Envoy leaves a replica alone that it cannot connect to. About as long as a
/// replica takes to come back, so that its proxies find it when they are handed over to it.
const EJECTION: Duration = Duration::from_secs(3);

/// How often Envoy looks which ejections are over.
pub const EJECTION_SWEEP: Duration = Duration::from_millis(500);

/// How long Envoy leaves a replica alone that it cannot connect to, where its bootstrap names so many. Longer
/// than it takes to try, one after the other, all others but one, none of which answers: else it would try
/// these in turns, and never the last one. A replica that does not exist may refuse a connection or not
/// answer, which the network decides.
pub fn ejection(replicas: usize) -> Duration {
    let between = u32::try_from(replicas.saturating_sub(2)).unwrap_or(u32::MAX);
    let all = CONNECT_TIMEOUT.saturating_mul(between).saturating_add(CONNECT_TIMEOUT / 2);
    EJECTION.max(all)
}

/// How long a proxy may leave a replica alone that it could not reach.
fn until_retried(replicas: usize) -> Duration {
    ejection(replicas).saturating_add(EJECTION_SWEEP)
}

/// The replica that should serve `proxy`: the first of its order that is ready; `None` if none is.
pub fn owner(ring: &Ring, proxy: ProxyUuid, ready: &BTreeSet<ReplicaId>) -> Option<ReplicaId> {
    ring.walk(proxy).find(|replica| ready.contains(replica))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ejection_outlasts_the_attempts_at_all_others_but_one() {
        for (replicas, expected) in [(1, 3), (2, 3), (3, 3), (4, 5), (5, 7), (9, 15)] {
            let ejection = ejection(usize::try_from(replicas).unwrap());
            // The first is ejected when its own attempt has ended.
            let silent = CONNECT_TIMEOUT * u32::saturating_sub(replicas, 2);
            assert!(ejection > silent, "{replicas}");
            assert_eq!(ejection, Duration::from_secs(expected), "{replicas}");
        }
    }

    #[test]
    fn the_owner_is_the_first_of_the_order_that_is_ready() {
        let ring = Ring::new((0..5).map(ReplicaId));
        for n in 0..100 {
            let proxy = ProxyUuid(uuid::Uuid::from_u128(n));
            let order = ring.order(proxy);
            let ready = |replicas: &[ReplicaId]| replicas.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(owner(&ring, proxy, &ready(&order)), Some(order[0]));
            assert_eq!(owner(&ring, proxy, &ready(&order[2..])), Some(order[2]));
            assert_eq!(owner(&ring, proxy, &ready(&[ReplicaId(7)])), None, "it is not in the bootstraps");
            assert_eq!(owner(&ring, proxy, &ready(&[])), None);
        }
    }
}
