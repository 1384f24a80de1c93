//! Shares of demands that do and do not fit.

use super::*;

fn class(account: &str) -> Arc<ProxyClass> {
    let account = account.parse().unwrap();
    Arc::new(ProxyClass { account, inbound: Vec::new(), ipv4: true, ipv6: false, telemetry: None })
}

fn names(classes: Vec<Arc<ProxyClass>>) -> Vec<String> {
    classes.into_iter().map(|class| class.account.to_string()).collect()
}

#[test]
fn the_level_serves_the_small_whole_and_the_large_alike() {
    for (demands, bound, expected) in [
        (&[10, 10, 10][..], 15, 5),
        (&[1, 100, 100], 21, 10),
        (&[1, 5, 100], 20, 14),
        (&[100, 0], 30, 30),
        (&[7, 8], 14, 7),
    ] {
        let found = level(demands.iter().copied(), bound);
        assert_eq!(found, expected, "{demands:?}");
        assert!(demands.iter().map(|demand| demand.min(&found)).sum::<u64>() <= bound);
    }
}

#[test]
fn a_namespace_that_wants_too_much_is_cut_and_its_neighbour_is_not() {
    let mut allotments = Allotments::default();
    let neighbour = class("shop/a");
    allotments.set(&neighbour, Some(MAX_IDENTITY));
    let small = class("greedy/small");
    allotments.set(&small, Some(1000));
    let many: Vec<_> = (0..40).map(|i| class(&format!("greedy/a{i:02}"))).collect();
    for class in &many {
        allotments.set(class, Some(u64::MAX));
    }
    let moved = names(allotments.settle());
    assert_eq!(moved.len(), many.len());
    assert!(moved.iter().all(|name| name.starts_with("greedy/a")), "{moved:?}");
    assert_eq!(allotments.share(&neighbour), MAX_IDENTITY);
    let share = allotments.share(&many[0]);
    assert!(share * 40 + 1000 <= MAX_NAMESPACE && share > 1000, "{share}");

    // It is as before once the demand is gone.
    for class in &many {
        allotments.set(class, None);
    }
    assert_eq!(names(allotments.settle()), [""; 0], "classes that are gone are not served");
    assert_eq!(allotments.share(&small), MAX_IDENTITY);
    assert_eq!(allotments.total, MAX_IDENTITY + 1000);
}

#[test]
fn when_the_mesh_is_full_the_namespaces_that_want_most_are_cut() {
    let mut allotments = Allotments::default();
    let per_namespace = MAX_NAMESPACE / MAX_IDENTITY;
    let small = class("small/a");
    allotments.set(&small, Some(MAX_IDENTITY));
    let large: Vec<_> =
        (0..20).flat_map(|n| (0..per_namespace).map(move |i| class(&format!("large{n:02}/a{i}")))).collect();
    for class in &large {
        allotments.set(class, Some(MAX_IDENTITY));
    }
    allotments.settle();
    assert_eq!(allotments.share(&small), MAX_IDENTITY);
    let sum: u64 = large.iter().map(|class| allotments.share(class)).sum();
    assert!(sum + MAX_IDENTITY <= MAX_MESH, "{sum}");
    assert!(sum > MAX_MESH / 10 * 9, "{sum}");
    // Less demand, larger shares.
    for class in large.iter().take(100) {
        allotments.set(class, None);
    }
    let moved = allotments.settle();
    assert!(!moved.is_empty());
    assert!(large.iter().skip(100).all(|class| allotments.share(class) == MAX_IDENTITY));
}

#[test]
fn shares_do_not_depend_on_the_order_of_demands() {
    let classes: Vec<_> = (0..60).map(|i| class(&format!("n{}/a{i:02}", i % 3))).collect();
    let demand = |place: usize| MAX_IDENTITY / (1 + u64::try_from(place % 7).unwrap());
    let mut forwards = Allotments::default();
    for (place, class) in classes.iter().enumerate() {
        forwards.set(class, Some(demand(place)));
        forwards.settle();
    }
    let mut backwards = Allotments::default();
    for (place, class) in classes.iter().enumerate().rev() {
        backwards.set(class, Some(MAX_IDENTITY));
        backwards.settle();
        backwards.set(class, Some(demand(place)));
    }
    backwards.settle();
    for class in &classes {
        assert_eq!(forwards.share(class), backwards.share(class));
    }
}
