//! The estimate by itself. `src/mesh/translate/compiler/sizes.rs` compares it with what is written out.

use super::*;
use crate::policy::fixtures::{group, http_rule, target, tcp_route, tcp_rule};
use smc_api::smi::{RouteGroup, TcpRoute};
use smc_types::proxy_class::AppProtocol::{self, Http, Tcp};

struct Shop {
    groups: Vec<RouteGroup>,
    routes: Vec<TcpRoute>,
}

impl Routes for Shop {
    fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup> {
        self.groups.iter().find(|group| group.id == *name)
    }

    fn tcp_route(&self, name: &NamespacedName) -> Option<&TcpRoute> {
        self.routes.iter().find(|route| route.id == *name)
    }
}

fn shop() -> Shop {
    let long = format!("/{}", "x".repeat(900));
    Shop {
        groups: vec![group("shop/small", &["/a"]), group("shop/large", &["/a", &long])],
        routes: vec![tcp_route("shop/80", &[80])],
    }
}

fn ports(ports: &[(u16, AppProtocol)]) -> Vec<InboundPort> {
    let port =
        |&(port, protocol): &(u16, AppProtocol)| InboundPort { port, protocol, services: BTreeSet::new() };
    ports.iter().map(port).collect()
}

fn demand(targets: &[TrafficTarget], on: &[(u16, AppProtocol)]) -> u64 {
    Estimate::new(&shop(), targets, &ports(on)).demand()
}

#[test]
fn targets_with_the_same_rules_add_their_sources_only() {
    let on = [(80, Http), (81, Http)];
    let one = target("shop/one", "shop/b", &["shop/a"], &[http_rule("shop/large", None)]);
    let same = target("shop/two", "shop/b", &["shop/c"], &[http_rule("shop/large", None)]);
    let named = target("shop/two", "shop/b", &["shop/c"], &[http_rule("shop/large", Some(&["/a"]))]);
    let alone = demand(std::slice::from_ref(&one), &on);
    assert!(alone > 2 * (900 + PORT_BYTES), "the matches are repeated on each port: {alone}");
    let source = identity_bytes(&"shop/c".parse().unwrap());
    assert_eq!(demand(&[one.clone(), same], &on), alone + 2 * source);
    assert!(demand(&[one, named], &on) > alone + 2 * source);
}

#[test]
fn a_target_takes_nothing_on_a_port_that_it_does_not_apply_to() {
    let on = [(80, Http), (81, Tcp)];
    let bare = demand(&[], &on);
    assert_eq!(bare, 2 * PORT_BYTES);
    let source = identity_bytes(&"shop/a".parse().unwrap());
    let routes = target("shop/t", "shop/b", &["shop/a"], &[http_rule("shop/small", None)]);
    assert_eq!(demand(std::slice::from_ref(&routes), &[(81, Tcp)]), PORT_BYTES);
    assert!(demand(&[routes], &on) > bare + source);
    let port = target("shop/t", "shop/b", &["shop/a"], &[tcp_rule("shop/80")]);
    assert_eq!(demand(std::slice::from_ref(&port), &[(80, Tcp)]), PORT_BYTES + 2 * source);
    assert_eq!(demand(&[port], &[(81, Tcp)]), PORT_BYTES);
    let gone = target("shop/t", "shop/b", &["shop/a"], &[http_rule("shop/gone", None)]);
    assert_eq!(demand(&[gone], &on), bare, "it grants nothing");
}

#[test]
fn what_does_not_fit_is_left_out_whole_and_the_largest_first() {
    let targets = [
        target("shop/b-small", "shop/b", &["shop/a"], &[http_rule("shop/small", None)]),
        target("shop/a-large", "shop/b", &["shop/a"], &[http_rule("shop/large", None)]),
        target("shop/c-large", "shop/b", &["shop/c"], &[http_rule("shop/large", None)]),
        target("shop/d-small", "shop/b", &["shop/a"], &[tcp_rule("shop/80")]),
    ];
    let on = ports(&[(80, Http), (81, Http)]);
    let shop = shop();
    let estimate = Estimate::new(&shop, &targets, &on);
    let all = estimate.demand();
    let left_out = |allowance| {
        let fit = estimate.fit(allowance);
        let ports = fit.ports.iter().filter(|open| **open).count();
        (ports, fit.left_out.iter().map(|name| name.name().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(left_out(all), (2, vec![]));
    // The second target with the same rules adds no more than its source.
    assert_eq!(left_out(all - 1), (2, vec!["c-large".to_owned()]));
    assert_eq!(left_out(all - 1500), (2, vec!["a-large".to_owned(), "c-large".to_owned()]));
    assert_eq!(left_out(2 * PORT_BYTES).1.len(), 4);
    // Ports come before grants. Then one port's worth of rules is enough.
    assert_eq!(left_out(2 * PORT_BYTES - 1).0, 1);
    assert_eq!(left_out(0), (0, vec![]), "without ports there is nothing to leave out");
}

#[test]
fn a_port_whose_limits_have_no_room_closes_no_other() {
    let on = ports(&[(80, Http), (81, Http), (82, Tcp)]);
    let mut estimate = Estimate::of_ports(&on);
    estimate.add_limits(&on[1], 10_000, 3);
    assert_eq!(estimate.demand(), 3 * PORT_BYTES + 30_000);
    assert_eq!(estimate.fit(2 * PORT_BYTES + 29_999).ports, [true, false, true]);
    assert_eq!(estimate.fit(3 * PORT_BYTES + 30_000).ports, [true; 3]);
}
