//! Pods of last resort: which they are, and that a service has endpoints while its pods serve, in whatever
//! order Kubernetes says so.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Kubernetes' KEP-1669: a service that all its pods leave at once is served until they end. And a cluster
/// whose nodes all count as lost is served by their pods.
#[test]
fn a_pod_of_last_resort_gets_traffic_only_where_none_is_ready() {
    for readiness in [Readiness::Draining, Readiness::NodeUnreachable] {
        let mut catalog = Catalog::of(shop());
        let last_resort = |id: &str, ip: &str| {
            let pod = pod(id, "shop/web", "web", ip);
            Object::from(Workload { readiness, ..pod })
        };
        catalog.declare(last_resort("shop/w1", "10.0.0.1"));
        assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.2", 80)]));
        let affected = catalog.declare(last_resort("shop/w2", "10.0.0.2"));
        assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80), ("10.0.0.2", 80)]));
        assert!(affected.endpoints.contains(&service_id("shop/web")));
        catalog.declare(Object::from(pod("shop/w3", "shop/web", "web", "10.0.0.3")));
        assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.3", 80)]));
    }
}

/// A slice says of such a pod that it is not ready, and not why.
#[test]
fn a_pod_of_a_lost_node_is_the_last_resort_of_a_slice_too() {
    let mut catalog = Catalog::of(shop());
    let mut listed = slice("shop/web-1", "shop/web", &[("p80", 80)], &["10.0.0.1", "10.0.0.2"]);
    for endpoint in &mut listed.endpoints {
        endpoint.readiness = Readiness::NotReady;
    }
    catalog.declare(Object::EndpointSlice(listed));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]), "the author of the slice says so");
    let lost =
        Workload { readiness: Readiness::NodeUnreachable, ..pod("shop/w1", "shop/web", "web", "10.0.0.1") };
    catalog.declare(Object::from(lost));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80)]));
}

/// Where the slice follows the pods, either of the two is behind the other when they differ.
#[test]
fn a_pod_is_the_last_resort_where_a_slice_that_follows_it_differs() {
    use Readiness::{Draining, NodeUnreachable, NotReady, Ready};
    for (follows_pods, app, stated, pod_says, alone, beside) in [
        (true, "web", NotReady, Ready, true, false),
        (true, "web", NotReady, Draining, true, false),
        (true, "web", NotReady, NodeUnreachable, true, false),
        (true, "web", NotReady, NotReady, false, false),
        (true, "web", Draining, Ready, true, false),
        (true, "web", Ready, NotReady, true, true),
        (false, "web", NotReady, Ready, false, false),
        (false, "web", NotReady, Draining, false, false),
        (false, "web", Ready, NotReady, true, true),
        // Its label was taken away, as from a pod that a person wants to look into.
        (true, "debug", NotReady, Ready, false, false),
        (true, "debug", Ready, Ready, true, true),
    ] {
        let mut catalog = Catalog::of(shop());
        let workload = pod("shop/w1", "shop/web", app, "10.0.0.1");
        catalog.declare(Object::from(Workload { readiness: pod_says, ..workload }));
        for (other, expected) in [(NotReady, alone), (Ready, beside)] {
            let mut listed = slice("shop/web-1", "shop/web", &[("p80", 80)], &["10.0.0.1", "10.0.0.2"]);
            listed.follows_pods = follows_pods;
            listed.endpoints[0].readiness = stated;
            listed.endpoints[1].readiness = other;
            catalog.declare(Object::EndpointSlice(listed));
            let second = Workload { readiness: other, ..pod("shop/w2", "shop/web", "web", "10.0.0.2") };
            catalog.declare(Object::from(second));
            let has = endpoints(&catalog, "shop/web", 80).contains(&("10.0.0.1".to_owned(), 80));
            let case = format!("{follows_pods} {app} {stated:?} {pod_says:?} beside {other:?}");
            assert_eq!(has, expected, "{case}");
        }
    }
}

/// A step of a cluster whose nodes fall silent and are heard of again, while their pods serve.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The node of a pod falls silent, or is heard of again.
    Turn(Index),
    /// The controller of EndpointSlices writes what the pods say now.
    WriteSlice,
    /// The next change of a pod arrives here.
    PodArrives,
    /// The next state of the slice arrives here.
    SliceArrives,
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<Index>().prop_map(Step::Turn),
        Just(Step::WriteSlice),
        Just(Step::PodArrives),
        Just(Step::SliceArrives),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What a node controller and a controller of EndpointSlices say of pods that serve, and the two watches
    /// that bring it, are behind each other by as much as is drawn.
    #[test]
    fn nodes_that_come_and_go_leave_no_service_without_endpoints(
        pods in prop_oneof![1..4_usize, Just(40)],
        steps in prop::collection::vec(a_step(), 1..200),
    ) {
        let as_pod = |number: usize, readiness: Readiness| {
            let address = format!("10.0.1.{number}");
            let pod = pod(&format!("shop/n{number}"), "shop/web", "lost", &address);
            Object::from(Workload { readiness, ..pod })
        };
        let as_slice = |ready: &[bool]| {
            let addresses: Vec<_> = (0..ready.len()).map(|number| format!("10.0.1.{number}")).collect();
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            let mut slice = slice("shop/lost-1", "shop/lost", &[("p80", 80)], &addresses);
            slice.follows_pods = true;
            for (endpoint, ready) in slice.endpoints.iter_mut().zip(ready) {
                endpoint.readiness = Readiness::of(*ready, false);
            }
            Object::EndpointSlice(slice)
        };
        let mut ready = vec![true; pods];
        let mut catalog = Catalog::of(shop()).and([
            Object::from(service("shop/lost", "lost", &[port(80, Http)])),
            as_slice(&ready),
        ]);
        (0..pods).for_each(|number| drop(catalog.declare(as_pod(number, Readiness::Ready))));
        let (mut of_pods, mut of_slice) = (VecDeque::new(), VecDeque::new());
        for step in steps {
            let arrived = match step {
                Step::Turn(index) => {
                    let number = index.index(pods);
                    ready[number] = !ready[number];
                    let says = if ready[number] { Readiness::Ready } else { Readiness::NodeUnreachable };
                    of_pods.push_back(as_pod(number, says));
                    None
                }
                Step::WriteSlice => {
                    of_slice.push_back(as_slice(&ready));
                    None
                }
                Step::PodArrives => of_pods.pop_front(),
                Step::SliceArrives => of_slice.pop_front(),
            };
            if let Some(arrived) = arrived {
                catalog.declare(arrived);
                prop_assert!(!endpoints(&catalog, "shop/lost", 80).is_empty(), "{:?}", step);
            }
        }
    }
}
