//! What is suggested, as text. That a reader takes it and the mesh grants the calls and no others is tested
//! where objects are read from YAML (`src/smc/cli/suggest.rs`).

use super::*;
use crate::policy::fixtures::{account, service_id};

fn leads(http: bool, servers: &[(&str, u16)]) -> PortServers {
    PortServers { http, servers: servers.iter().map(|&(name, port)| (account(name), port)).collect() }
}

/// `shop/web` port 80 leads to one identity, `shop/both` to two, `shop/db` speaks TCP, and behind `shop/gone`
/// is nothing.
fn shop() -> Destinations {
    [
        ("shop/web", 80, leads(true, &[("shop/web", 8080)])),
        ("shop/both", 80, leads(true, &[("shop/web", 8080), ("shop/old", 9090)])),
        ("shop/db", 5432, leads(false, &[("shop/web", 5432)])),
        ("shop/gone", 80, leads(true, &[])),
    ]
    .into_iter()
    .map(|(service, port, leads)| ((service_id(service), port), leads))
    .collect()
}

fn seen(calls: &[(&str, &str, u16)]) -> Suggestion {
    let mut suggestion = Suggestion::default();
    for &(source, service, port) in calls {
        suggestion.add(&account(source), &BTreeSet::from([(service_id(service), port)]), &shop());
    }
    suggestion
}

#[test]
fn a_call_counts_for_each_identity_behind_the_service_port() {
    let text = |call: &Call| {
        let protocol = if call.http { "http" } else { "tcp" };
        format!("{} {} {protocol} {}", call.source, call.destination, call.port)
    };
    for (service, port, expected) in [
        ("shop/web", 80, &["c/c shop/web http 8080"][..]),
        ("shop/both", 80, &["c/c shop/old http 9090", "c/c shop/web http 8080"]),
        ("shop/db", 5432, &["c/c shop/web tcp 5432"]),
    ] {
        let suggestion = seen(&[("c/c", service, port)]);
        assert_eq!(suggestion.calls().iter().map(text).collect::<Vec<_>>(), expected, "{service}");
        assert_eq!(suggestion.notes().count(), 0);
    }
}

#[test]
fn a_call_to_what_leads_nowhere_now_is_named_and_not_dropped() {
    for (service, port) in [("shop/gone", 80), ("shop/web", 81), ("shop/unknown", 80)] {
        let suggestion = seen(&[("c/c", service, port)]);
        assert!(suggestion.calls().is_empty());
        let note =
            format!("# Left out: the calls of c/c to {service} port {port}, which leads to no pod now.\n");
        assert!(suggestion.to_string().contains(&note), "{suggestion}");
    }
}

#[test]
fn an_http_port_has_its_routes_and_a_target_with_all_of_its_sources() {
    let yaml = seen(&[("c/b", "shop/web", 80), ("c/a", "shop/web", 80)]).to_string();
    let expected = "\
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata:
  name: \"web-http-8080\"
  namespace: \"shop\"
spec:
  matches:
    ports: [8080]
---
# It matches every request. Narrow pathRegex, which is anchored at its start only, and methods.
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata:
  name: \"web-http-8080\"
  namespace: \"shop\"
spec:
  matches:
  - name: all
    pathRegex: \".*\"
    methods: [\"*\"]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata:
  name: \"web-http-8080\"
  namespace: \"shop\"
spec:
  destination:
    kind: ServiceAccount
    name: \"web\"
    namespace: \"shop\"
  rules:
  - kind: TCPRoute
    name: \"web-http-8080\"
  - kind: HTTPRouteGroup
    name: \"web-http-8080\"
  sources:
  - kind: ServiceAccount
    name: \"a\"
    namespace: \"c\"
  - kind: ServiceAccount
    name: \"b\"
    namespace: \"c\"
";
    assert_eq!(yaml, format!("{HEADER}{expected}"));
}

#[test]
fn the_order_in_which_sidecars_answer_does_not_matter() {
    let calls = [("c/b", "shop/db", 5432), ("c/a", "shop/web", 80), ("c/b", "shop/both", 80)];
    let mut reversed = calls;
    reversed.reverse();
    assert_eq!(seen(&calls).to_string(), seen(&reversed).to_string());
}

#[test]
fn no_note_leaves_its_comment() {
    let mut suggestion = Suggestion::default();
    suggestion.note("a\nkind: TrafficTarget\u{2028}b\u{85}c\u{1b}[2J".to_owned());
    suggestion.note("x".repeat(100_000));
    let text = suggestion.to_string();
    assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    assert!(text.contains("# Left out: a?kind: TrafficTarget?b?c?[2J.\n"), "{text}");
    assert!(text.is_ascii() && text.len() < 2000);
}

#[test]
fn nothing_seen_is_said() {
    assert_eq!(Suggestion::default().to_string(), format!("{HEADER}# No call was seen.\n"));
}

#[test]
fn a_name_that_is_too_long_for_its_objects_is_left_out_and_said() {
    let long = "a".repeat(253);
    let destinations = Destinations::from([(
        (service_id("shop/web"), 80),
        leads(true, &[(&format!("shop/{long}"), 8080), ("shop/web", 8080)]),
    )]);
    let mut suggestion = Suggestion::default();
    suggestion.add(&account("c/c"), &destinations.keys().cloned().collect(), &destinations);
    let text = suggestion.to_string();
    assert!(text.contains(&format!("# Left out: shop/{long}, whose name is too long")), "{text}");
    assert!(!text.contains(&format!("{long}-http")) && text.contains("web-http-8080"), "{text}");
    let destinations = Destinations::from([(
        (service_id("shop/web"), 80),
        leads(true, &[(&format!("shop/{}", &long[17..]), 65535)]),
    )]);
    suggestion.add(&account("c/c"), &destinations.keys().cloned().collect(), &destinations);
    assert_eq!(suggestion.calls().len(), 2, "a name of 236 characters leaves room for what follows it");
}
