use super::*;

fn reading(spec: Value) -> Reading<Egress> {
    read_egress(&"curl/egress".parse().unwrap(), spec)
}

/// OSM's guide, with a range.
fn good() -> Value {
    json!({
        "sources": [{"kind": "ServiceAccount", "name": "curl", "namespace": "curl"}],
        "hosts": ["httpbin.org"],
        "ipAddresses": ["10.1.2.3/8"],
        "ports": [{"number": 80, "protocol": "http"}],
        "matches": [{"apiGroup": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "name": "get"}],
    })
}

/// The good object with these fields in place of its own; `null` takes one out.
fn with(fields: &[(&str, Value)]) -> Value {
    let mut spec = good();
    for (name, value) in fields {
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(*name);
        } else {
            spec[name] = value.clone();
        }
    }
    spec
}

fn fields(reading: &Reading<Egress>) -> Vec<&str> {
    reading.problems.iter().map(|problem| problem.field.as_str()).collect()
}

fn hosts(reading: &Reading<Egress>) -> Option<String> {
    let hosts = reading.object.as_ref().and_then(|egress| egress.hosts.as_ref());
    hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

#[test]
fn an_egress_is_read_as_it_is_written() {
    let expected = Egress {
        id: "curl/egress".parse().unwrap(),
        sources: ["curl/curl".parse().unwrap()].into(),
        hosts: Some([EgressHost::Named("httpbin.org".to_owned())].into()),
        networks: Some(["10.0.0.0/8".parse().unwrap()].into()),
        ports: [(80, EgressProtocol::Http)].into(),
        matches: Some(["curl/get".parse().unwrap()].into()),
    };
    assert_eq!(reading(good()), Reading { object: Some(expected), problems: vec![] });
}

#[test]
fn names_that_are_none_or_mean_the_machine_are_left_out() {
    for (written, read) in [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("*.example.com", "*.example.com"),
        ("*", "*"),
        ("1.example", "1.example"),
        ("", ""),
        (".", ""),
        ("*.", ""),
        ("w*.example.com", ""),
        ("a.*.com", ""),
        ("*.*.com", ""),
        ("example.com:80", ""),
        ("http://example.com", ""),
        ("exa mple.com", ""),
        ("bücher.example", ""),
        ("-a.example", ""),
        ("127.0.0.1", ""),
        ("127.1", ""),
        ("2130706433", ""),
        ("0x7f000001", ""),
        ("1.0x7f", ""),
        ("::1", ""),
        ("[::1]", ""),
        ("localhost", ""),
        ("a.localhost.", ""),
        ("*.localhost", ""),
        ("ip6-localhost", ""),
    ] {
        let reading = reading(with(&[("hosts", json!([written, "kept.example"]))]));
        let expected =
            if read.is_empty() { "kept.example".to_owned() } else { format!("{read} kept.example") };
        let mut expected: Vec<_> = expected.split(' ').collect();
        let found = hosts(&reading).unwrap();
        let mut found: Vec<_> = found.split(' ').collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{written:?}");
        assert_eq!(
            fields(&reading),
            if read.is_empty() { vec!["spec.hosts[0]"] } else { vec![] },
            "{written:?}"
        );
    }
    for long in ["a.".repeat(130) + "example", "a".repeat(64) + ".example"] {
        assert_eq!(fields(&reading(with(&[("hosts", json!([long, "kept.example"]))]))), ["spec.hosts[0]"]);
    }
}

/// What the object is, the fields in which it differs, whether it opens a port, and the fields with problems.
type Row = (&'static str, Vec<(&'static str, Value)>, bool, Vec<&'static str>);

fn check(rows: impl IntoIterator<Item = Row>) {
    for (case, change, opens, problems) in rows {
        let reading = reading(with(&change));
        assert_eq!(reading.object.is_some(), opens, "{case}: {:?}", reading.problems);
        assert_eq!(fields(&reading), problems, "{case}");
    }
}

fn port(protocol: &str) -> Value {
    json!([{"number": 80, "protocol": protocol}])
}

/// An empty list, one that cannot be read, and one that is not there.
#[test]
fn what_is_written_down_restricts_and_nothing_means_everything() {
    check([
        ("names and networks", vec![], true, vec![]),
        ("names alone", vec![("ipAddresses", json!(null))], true, vec![]),
        ("networks alone", vec![("hosts", json!(null))], true, vec![]),
        ("neither", vec![("hosts", json!(null)), ("ipAddresses", json!(null))], false, vec!["spec.hosts"]),
        ("no names", vec![("hosts", json!([]))], false, vec!["spec.hosts"]),
        (
            "names that cannot be read",
            vec![("hosts", json!(["a b"]))],
            false,
            vec!["spec.hosts[0]", "spec.hosts"],
        ),
        ("names that are none", vec![("hosts", json!("a"))], false, vec!["spec.hosts", "spec.hosts"]),
        ("no networks", vec![("ipAddresses", json!([]))], false, vec!["spec.ipAddresses"]),
        (
            "networks that cannot be read",
            vec![("ipAddresses", json!(["10.0.0.0/33", "::ffff:10.0.0.0/104"]))],
            false,
            vec!["spec.ipAddresses[0]", "spec.ipAddresses[1]", "spec.ipAddresses"],
        ),
        ("a star with networks", vec![("hosts", json!(["*"]))], true, vec![]),
        (
            "a star without",
            vec![("hosts", json!(["*", "*.example.com"])), ("ipAddresses", json!(null))],
            false,
            vec!["spec.ports[0]"],
        ),
        (
            "TCP in networks, with names and groups",
            vec![("ports", port("tcp"))],
            true,
            vec!["spec.ports[0]", "spec.matches"],
        ),
        (
            "TCP in networks, whatever the names",
            vec![("ports", port("tcp")), ("hosts", json!(null)), ("matches", json!(null))],
            true,
            vec![],
        ),
        (
            "TCP in networks, and no names",
            vec![("ports", port("tcp")), ("hosts", json!([]))],
            false,
            vec!["spec.hosts"],
        ),
        ("TLS, with groups", vec![("ports", port("https"))], true, vec!["spec.matches"]),
        (
            "TCP by names",
            vec![("ports", port("tcp")), ("ipAddresses", json!(null))],
            false,
            vec!["spec.ports[0]"],
        ),
        (
            "a server that speaks first, by names",
            vec![("ports", port("tcp-server-first")), ("ipAddresses", json!(null))],
            false,
            vec!["spec.ports[0]"],
        ),
    ]);
}

#[test]
fn ports_and_sources_that_cannot_be_read_are_left_out() {
    check([
        ("no ports", vec![("ports", json!([]))], false, vec!["spec.ports"]),
        (
            "a port that is none",
            vec![("ports", json!([{"number": 0, "protocol": "http"}]))],
            false,
            vec!["spec.ports[0].number"],
        ),
        ("another protocol", vec![("ports", port("udp"))], false, vec!["spec.ports[0].protocol"]),
        (
            "ports of the sidecar",
            vec![(
                "ports",
                json!([{"number": 15000, "protocol": "http"}, {"number": 15902, "protocol": "tcp"}]),
            )],
            false,
            vec!["spec.ports[0].number", "spec.ports[1].number"],
        ),
        ("no sources", vec![("sources", json!([]))], false, vec!["spec.sources"]),
        (
            "sources of another namespace",
            vec![("sources", json!([{"kind": "ServiceAccount", "name": "curl", "namespace": "other"}]))],
            false,
            vec!["spec.sources[0].namespace"],
        ),
        (
            "sources that are none",
            vec![("sources", json!([{"kind": "Pod", "name": "curl", "namespace": "curl"}]))],
            false,
            vec!["spec.sources[0].kind"],
        ),
    ]);
}

#[test]
fn requests_are_restricted_by_what_is_written_down() {
    let group = |name: &str| json!({"kind": "HTTPRouteGroup", "name": name});
    let setting = json!({"kind": "UpstreamTrafficSetting", "name": "a"});
    let kind = |kind: &str| json!([{"kind": kind, "name": "a"}]);
    // The groups, `-` for all requests; nothing where the object has no effect.
    for (case, matches, expected, problems) in [
        ("absent", json!(null), Some("-"), vec![]),
        ("empty", json!([]), None, vec!["spec.matches"]),
        ("no list", json!("a"), None, vec!["spec.matches", "spec.matches"]),
        ("a group", json!([group("a")]), Some("curl/a"), vec![]),
        ("limits alone", json!([setting]), Some("-"), vec!["spec.matches[0]"]),
        ("limits and a group", json!([setting, group("a")]), Some("curl/a"), vec!["spec.matches[0]"]),
        (
            "two limits",
            json!([setting, setting]),
            Some("-"),
            vec!["spec.matches[0]", "spec.matches[1]", "spec.matches"],
        ),
        ("another kind", kind("TCPRoute"), None, vec!["spec.matches[0].kind", "spec.matches"]),
        (
            "a group that is none",
            json!([setting, group("A")]),
            None,
            vec!["spec.matches[0]", "spec.matches[1].name", "spec.matches"],
        ),
    ] {
        let reading = reading(with(&[("matches", matches)]));
        let groups = reading.object.as_ref().map(|egress| egress.matches.as_ref());
        let found = groups.map(|groups| {
            groups.map_or_else(
                || "-".to_owned(),
                |names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            )
        });
        assert_eq!((found.as_deref(), fields(&reading)), (expected, problems), "{case}");
    }
}

#[test]
fn hosts_that_spell_services_are_known() {
    let hosts = json!(["web.shop.svc", "web.shop.svc.cluster.local", "web.shop", "svc.example.com"]);
    let of = |fields: &[(&str, Value)]| reading(with(fields)).object.unwrap();
    let in_networks = of(&[("hosts", hosts.clone())]);
    assert_eq!(in_networks.resolved_services().count(), 0, "addresses decide");
    let egress = of(&[("hosts", hosts), ("ipAddresses", Value::Null)]);
    let services: Vec<_> = egress.resolved_services().map(|(host, id)| format!("{host} {id}")).collect();
    assert_eq!(services, ["web.shop.svc shop/web", "web.shop.svc.cluster.local shop/web"]);
}
