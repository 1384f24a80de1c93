use std::collections::BTreeMap;

use proptest::prelude::*;
use smc_types::ids::WorkloadId;

use super::*;

fn proxy(name: &str) -> ProxyUuid {
    ProxyUuid::derived(&WorkloadId::new("bookstore", name).unwrap())
}

fn ring(count: u64) -> Ring {
    Ring::new((0..count).map(ReplicaId))
}

/// How many of 5,000 proxies each replica has, and each pair of a first and a second choice.
fn spread(ring: &Ring) -> (BTreeMap<ReplicaId, u32>, BTreeMap<[ReplicaId; 2], u32>) {
    let (mut firsts, mut seconds) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..5000 {
        let order = ring.order(proxy(&format!("v{n}")));
        *firsts.entry(order[0]).or_default() += 1;
        *seconds.entry([order[0], order[1]]).or_default() += 1;
    }
    (firsts, seconds)
}

/// In each bootstrap that was ever issued.
#[test]
fn the_order_of_a_proxy_never_changes() {
    let ring = ring(5);
    for (name, expected) in [
        ("v1", [3, 2, 1, 0, 4]),
        ("v2", [3, 1, 0, 4, 2]),
        ("v3", [4, 0, 1, 3, 2]),
        ("v4", [4, 0, 1, 2, 3]),
        ("v5", [2, 0, 1, 3, 4]),
        ("v6", [1, 4, 0, 2, 3]),
    ] {
        assert_eq!(ring.order(proxy(name)), expected.map(ReplicaId), "{name}");
    }
    assert_eq!(position_of(proxy("v1")), 0x1e1b_84df_e017_a05f);
    assert_eq!(points_of(ReplicaId(8)).map(|point| point.position).last(), Some(0x8361_ccea_d0f0_8705));
}

#[test]
fn five_thousand_proxies_spread_over_three_within_five_percent() {
    let (firsts, seconds) = spread(&ring(3));
    assert!(firsts.values().all(|count| (1584..=1750).contains(count)), "{firsts:?}");
    assert_eq!(seconds.len(), 6);
    assert!(seconds.values().all(|count| (750..=917).contains(count)), "those of a lost one: {seconds:?}");
}

#[test]
fn every_group_up_to_nine_is_balanced() {
    for count in 2..=9 {
        let mut shares = BTreeMap::<ReplicaId, u128>::new();
        let mut points: Vec<_> = (0..count).map(ReplicaId).flat_map(points_of).collect();
        points.sort_by_key(|point| point.position);
        let last = points.last().unwrap().position;
        for (before, point) in
            std::iter::once(last).chain(points.iter().map(|point| point.position)).zip(&points)
        {
            *shares.entry(point.replica).or_default() += u128::from(point.position.wrapping_sub(before));
        }
        let even = (1u128 << 64) / u128::from(count);
        for (replica, share) in shares {
            assert!(share.abs_diff(even) * 1000 <= even * 26, "replica {replica} of {count}");
        }
    }
}

#[test]
fn an_empty_ring_has_no_order() {
    assert!(ring(0).order(proxy("v1")).is_empty());
}

fn some_replicas() -> impl Strategy<Value = BTreeSet<ReplicaId>> {
    proptest::collection::btree_set((0..12u64).prop_map(ReplicaId), 1..6)
}

fn some_proxy() -> impl Strategy<Value = ProxyUuid> {
    any::<u128>().prop_map(|id| ProxyUuid(uuid::Uuid::from_u128(id)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_order_names_each_replica_once(replicas in some_replicas(), proxy in some_proxy()) {
        let ring = Ring::new(replicas.clone());
        let order = ring.order(proxy);
        prop_assert_eq!(order.len(), replicas.len());
        prop_assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), replicas);
    }

    /// Losing a replica, and adding one, moves the proxies of that one alone, and leaves all other
    /// choices in order.
    #[test]
    fn a_loss_leaves_the_order_of_the_others(
        replicas in some_replicas(),
        lost in any::<prop::sample::Index>(),
        proxies in proptest::collection::vec(some_proxy(), 20),
    ) {
        let lost = *lost.get(&replicas.iter().copied().collect::<Vec<_>>());
        let all = Ring::new(replicas.clone());
        let rest = Ring::new(replicas.into_iter().filter(|replica| *replica != lost));
        for proxy in proxies {
            let order: Vec<_> = all.order(proxy).into_iter().filter(|replica| *replica != lost).collect();
            prop_assert_eq!(order, rest.order(proxy));
        }
    }

    #[test]
    fn the_order_in_which_replicas_are_named_does_not_matter(replicas in some_replicas(), proxy in some_proxy()) {
        let backwards: Vec<_> = replicas.iter().rev().copied().collect();
        prop_assert_eq!(Ring::new(backwards).order(proxy), Ring::new(replicas).order(proxy));
    }
}
