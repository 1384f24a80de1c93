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

/// How long Envoy leaves a replica alone that it cannot connect to, in a group of three or five. About as
/// long as a replica takes to come back, so that its proxies find it when they are handed over to it.
const EJECTION: Duration = Duration::from_secs(3);

/// How often Envoy looks which ejections are over.
pub const EJECTION_SWEEP: Duration = Duration::from_millis(500);

/// How long Envoy leaves a replica alone that it cannot connect to, where its bootstrap names so many. Longer
/// than it takes to try, one after the other, all of a minority that is frozen: else it would try these in
/// turns, and never another one.
pub fn ejection(replicas: usize) -> Duration {
    let minority = replicas.saturating_sub(1) / 2;
    let after_the_first = u32::try_from(minority.saturating_sub(1)).unwrap_or(u32::MAX);
    let all = CONNECT_TIMEOUT.saturating_mul(after_the_first).saturating_add(CONNECT_TIMEOUT / 2);
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
    fn an_ejection_outlasts_the_attempts_at_a_frozen_minority() {
        for replicas in 1..=9_u32 {
            let minority = replicas.saturating_sub(1) / 2;
            // The first is ejected when its own attempt has ended.
            let others = CONNECT_TIMEOUT * minority.saturating_sub(1);
            let ejection = ejection(usize::try_from(replicas).unwrap());
            assert!(ejection > others, "{replicas}");
            assert!(ejection <= Duration::from_secs(if replicas <= 6 { 3 } else { 7 }), "{replicas}");
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
