//! Properties of every mesh: the lint passes, bytes depend on the mesh and not on the order of
//! events, and each recorded change is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use smc_authority::pki::TrustBundle;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::lint;
use smc_mesh::translate::{Compiler, Input};
use smc_model::access_log::Logged;
use smc_model::topology::{
    EndpointSlice, Namespace, Readiness, SliceEndpoint, SlicePort, TargetPort, Workload,
};
use smc_testkit::mesh::*;
use smc_types::ids::{NamespacedName, ProxyName};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::AppProtocol;
use smc_xds::following::{Following, StreamId};
use smc_xds::resource::ResourceType;
use smc_xds::served_state::{Changed, ServedState, View};

const NAMESPACES: [&str; 2] = ["n0", "n1"];
const APPS: [&str; 3] = ["a", "b", "c"];
const PROTOCOLS: [AppProtocol; 5] = [
    AppProtocol::Http,
    AppProtocol::Http2,
    AppProtocol::Tcp,
    AppProtocol::TcpServerFirst,
    AppProtocol::Https,
];

fn namespaced(kind: &'static str, count: usize) -> impl Strategy<Value = String> {
    (prop::sample::select(&NAMESPACES[..]), 0..count)
        .prop_map(move |(namespace, i)| format!("{namespace}/{kind}{i}"))
}

fn pods() -> impl Strategy<Value = Input> {
    let ip = prop::sample::select(vec![
        vec![],
        vec!["10.1.0.1"],
        vec!["10.1.0.2"],
        vec!["fd00::1"],
        vec!["10.1.0.3", "fd00::3"],
        vec!["10.1.0.4"],
    ]);
    let web = prop::sample::select(vec![None, Some(8080), Some(80)]);
    let traits = (any::<bool>(), web, injections());
    (namespaced("pod", 3), namespaced("sa", 2), prop::sample::select(&APPS[..]), ip, traits).prop_map(
        |(name, account, app, ips, (ready, web, injection))| {
            let Input::Source(SourceEvent::Upsert(Object::Workload(pod))) =
                pod_that(&name, &account, app, &ips, ready)
            else {
                panic!("a pod is a workload")
            };
            let ports = web.map(|port| ("web".to_owned(), port)).into_iter().collect();
            upsert(Object::from(Workload { ports, injection, ..Workload::clone(&pod) }))
        },
    )
}

/// Machines: with addresses of their own, of pods, of services, and with none.
fn machines() -> impl Strategy<Value = Input> {
    let ip = prop::sample::select(vec![
        vec![],
        vec!["10.1.0.1"],
        vec!["10.9.0.1"],
        vec!["192.0.2.1"],
        vec!["192.0.2.2", "fd00::9"],
    ]);
    let services = prop::sample::subsequence(vec!["svc0", "svc1", "svc2", "none"], 1..4);
    (namespaced("machine", 2), 0..2, services, ip, any::<bool>()).prop_map(
        |(name, account, services, ips, drained)| {
            let (namespace, _) = name.split_once('/').unwrap();
            machine(&name, &format!("{namespace}/sa{account}"), &services, &ips, drained)
        },
    )
}

/// The annotation for sidecar injection; mostly none.
fn injections() -> impl Strategy<Value = Option<bool>> {
    prop_oneof![6 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))]
}

fn services() -> impl Strategy<Value = Input> {
    let ips =
        prop::sample::select(vec![vec![], vec!["10.9.0.1"], vec!["10.9.0.2"], vec!["10.9.0.3", "fd00:9::3"]]);
    let target = prop::sample::select(vec![
        TargetPort::Number(80),
        TargetPort::Number(8080),
        TargetPort::Name("web".to_owned()),
    ]);
    let port = (prop::sample::select(&[80_u16, 81][..]), target, prop::sample::select(&PROTOCOLS[..]));
    // Without a selector, slices alone say what is behind it.
    let app = prop_oneof![5 => prop::sample::select(&APPS[..]).prop_map(Some), 1 => Just(None)];
    (namespaced("svc", 3), app, ips, vec(port, 0..3)).prop_map(|(name, app, ips, mut ports)| {
        let mut seen = BTreeSet::new();
        ports.retain(|(port, ..)| seen.insert(*port));
        let numbers: Vec<_> = ports.iter().map(|(port, _, protocol)| (*port, *port, *protocol)).collect();
        let Input::Source(SourceEvent::Upsert(Object::Service(mut service))) =
            service(&name, app.unwrap_or_default(), &ips, &numbers)
        else {
            panic!("a service is a service")
        };
        let changed = Arc::make_mut(&mut service);
        for (port, (_, target, _)) in changed.ports.iter_mut().zip(ports) {
            port.target = target;
        }
        if app.is_none() {
            changed.selector.clear();
        }
        upsert(Object::Service(service))
    })
}

/// Endpoint slices: with pods of the mesh, other addresses, and a pod at another address than its own.
fn slices() -> impl Strategy<Value = Input> {
    let address = prop::sample::select(vec!["10.1.0.1", "10.1.0.2", "10.1.0.4", "10.1.0.9"]);
    let endpoint = (address, any::<bool>(), prop::option::of(0..3_usize));
    let port =
        (prop::sample::select(vec![None, Some("p80"), Some("p81")]), prop::sample::select(vec![80, 8080]));
    let ports = vec(port, 0..3);
    (namespaced("slice", 2), 0..3_usize, any::<bool>(), vec(endpoint, 0..3), ports).prop_map(
        |(name, service, follows_pods, endpoints, ports)| {
            let id: NamespacedName = name.parse().unwrap();
            let (namespace, _) = name.split_once('/').unwrap();
            let endpoint = |(address, ready, pod): (&str, bool, Option<usize>)| SliceEndpoint {
                addresses: vec![address.parse().unwrap()],
                readiness: if ready { Readiness::Ready } else { Readiness::Draining },
                workload: pod.map(|i| format!("{namespace}/pod{i}").parse().unwrap()),
            };
            let port = |(name, port): (Option<&str>, u16)| SlicePort { name: name.map(str::to_owned), port };
            upsert(Object::EndpointSlice(EndpointSlice {
                id,
                service: format!("{namespace}/svc{service}").parse().unwrap(),
                follows_pods,
                ports: ports.into_iter().map(port).collect(),
                endpoints: endpoints.into_iter().map(endpoint).collect(),
            }))
        },
    )
}

fn targets() -> impl Strategy<Value = Input> {
    let rule = prop::sample::select(vec![
        ("HTTPRouteGroup", "group0"),
        ("HTTPRouteGroup", "group1"),
        ("TCPRoute", "tcp0"),
        ("TCPRoute", "tcp1"),
    ]);
    (namespaced("target", 3), 0..2_usize, vec(namespaced("sa", 2), 1..3), vec(rule, 1..3)).prop_map(
        |(name, destination, sources, rules)| {
            let (namespace, _) = name.split_once('/').unwrap();
            let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
            target(&name, &format!("{namespace}/sa{destination}"), &sources, &rules)
        },
    )
}

fn groups() -> impl Strategy<Value = Input> {
    // The last of these are too large or not RE2's, so that their matches are left out.
    let paths = vec!["/a", "/b/.*", "", ".*", "/[a-z]{1,200}", "/[^a]{1000}", "/(a", "/a{2000}", "/(?=a)"];
    let one = (prop::sample::select(paths), prop::sample::select(vec!["GET", "POST", "*"]));
    (namespaced("group", 2), vec(one, 1..3)).prop_map(|(name, matches)| {
        let matches = matches.iter().enumerate().map(|(i, (path, method))| {
            let mut one = json!({"name": format!("m{i}"), "methods": [method], "headers": [{"x-h": "1|2"}]});
            if !path.is_empty() {
                one["pathRegex"] = json!(path);
            }
            one
        });
        group(&name, &matches.collect())
    })
}

fn splits() -> impl Strategy<Value = Input> {
    let backend = (0..4_usize, prop::sample::select(vec![0, 1, 50, 1_000_000]));
    let matches = prop::sample::select(vec![vec![], vec!["group0"], vec!["group0", "group1"]]);
    (namespaced("split", 2), 0..3_usize, vec(backend, 1..4), matches).prop_map(
        |(name, root, backends, matches)| {
            let mut seen = BTreeSet::new();
            let backends: Vec<_> = backends
                .into_iter()
                .filter(|(leaf, _)| seen.insert(*leaf))
                .map(|(leaf, weight)| (format!("svc{leaf}"), weight))
                .collect();
            let backends: Vec<_> = backends.iter().map(|(leaf, weight)| (leaf.as_str(), *weight)).collect();
            split(&name, &format!("svc{root}"), &backends, &matches)
        },
    )
}

fn removals() -> impl Strategy<Value = Input> {
    let kinds = vec![
        (Kind::Pod, "pod"),
        (Kind::MeshWorkload, "machine"),
        (Kind::Service, "svc"),
        (Kind::EndpointSlice, "slice"),
        (Kind::TrafficTarget, "target"),
        (Kind::HttpRouteGroup, "group"),
        (Kind::TcpRoute, "tcp"),
        (Kind::TrafficSplit, "split"),
        (Kind::Telemetry, "log"),
        (Kind::ExtensionService, "otel"),
    ];
    (prop::sample::select(kinds), prop::sample::select(&NAMESPACES[..]), 0..3_usize).prop_map(
        |((kind, name), namespace, i)| {
            remove(ObjectRef::Namespaced(
                kind,
                NamespacedName::new(namespace, &format!("{name}{i}")).unwrap(),
            ))
        },
    )
}

fn inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        6 => pods(),
        3 => machines(),
        6 => services(),
        3 => slices(),
        4 => targets(),
        2 => groups(),
        2 => (namespaced("tcp", 2), prop::sample::select(vec![vec![], vec![80], vec![8080, 9]])).prop_map(|(name, ports)| tcp(&name, &ports)),
        3 => splits(),
        3 => telemetries(),
        2 => (namespaced("otel", 2), prop::sample::select(vec!["otel.example", "192.0.2.7"]))
            .prop_map(|(name, host)| extension_service(&name, json!({"host": host, "port": 4317}))),
        3 => removals(),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(permissive, egress)| mesh_config(permissive, egress)),
        1 => (namespaced("sa", 2), 0..2_u8).prop_map(|(account, i)| certify(&account, &format!("chain {i}"), "key")),
        1 => (0..2_u8).prop_map(|i| Input::Bundle(TrustBundle { pem: format!("roots {i}") })),
        1 => (prop::sample::select(&NAMESPACES[..]), any::<bool>(), injections(), any::<bool>(), logs())
            .prop_map(|(name, monitored, injection, permissive, access_log)| {
                let name = name.to_owned();
                upsert(Object::Namespace(Namespace { name, monitored, injection, metrics: false, permissive, access_log }))
            }),
    ]
}

fn telemetries() -> impl Strategy<Value = Input> {
    let selector = prop::option::of(prop::sample::select(&APPS[..]));
    let log = prop::sample::select(vec![json!({}), json!({"format": "%PROTOCOL%"}), json!({"format": "x"})]);
    let collector = prop::option::of((namespaced("otel", 2), prop::sample::select(vec!["%PROTOCOL%", "x"])));
    (namespaced("log", 3), selector, log, collector).prop_map(|(name, app, log, collector)| {
        let mut spec = json!({ "accessLog": log });
        if let Some((service, text)) = collector {
            let (namespace, service) = service.split_once('/').unwrap();
            spec["accessLog"]["openTelemetry"] = json!({
                "extensionService": {"namespace": namespace, "name": service}, "attributes": {"a": text},
            });
        }
        if let Some(app) = app {
            spec["selector"] = json!({ "app": app });
        }
        telemetry(&name, spec)
    })
}

/// What a namespace may say that its sidecars log.
fn logs() -> impl Strategy<Value = Option<Logged>> {
    prop::option::of(prop::sample::select(Logged::WORDS.map(|(_, log)| log).to_vec()))
}

/// The inputs of a controller before the mesh: namespaces and certificates.
fn beginning() -> Vec<Input> {
    let mut inputs: Vec<_> = NAMESPACES.iter().map(|name| namespace(name)).collect();
    for namespace in NAMESPACES {
        inputs.extend((0..2).map(|i| certify(&format!("{namespace}/sa{i}"), "chain", "key")));
    }
    inputs
}

fn histories() -> impl Strategy<Value = Vec<Vec<Input>>> {
    vec(vec(inputs(), 1..6), 1..16).prop_map(|mut batches| {
        batches.insert(0, beginning());
        batches
    })
}

/// The last input of each object, certificate and bundle.
fn last_inputs(history: &[Vec<Input>]) -> Vec<Input> {
    let mut objects: BTreeMap<ObjectRef, Option<Input>> = BTreeMap::new();
    let mut certificates = BTreeMap::new();
    let mut bundle = None;
    for input in history.iter().flatten() {
        match input {
            Input::Source(SourceEvent::Upsert(object)) => {
                objects.insert(object.reference(), Some(input.clone()));
            }
            Input::Source(SourceEvent::Remove(object)) => {
                objects.insert(object.clone(), None);
            }
            Input::Certificate(account, _) => {
                certificates.insert(account.clone(), input.clone());
            }
            Input::NoCertificate(account) => {
                certificates.remove(account);
            }
            Input::Bundle(_) => bundle = Some(input.clone()),
            Input::Revision(_) => {}
        }
    }
    objects.into_values().flatten().chain(certificates.into_values()).chain(bundle).collect()
}

fn views(served: &ServedState) -> Vec<View> {
    served.proxies.keys().filter_map(|proxy| served.view(proxy)).collect()
}

fn assert_same(one: &ServedState, other: &ServedState) {
    assert_eq!(one.proxies, other.proxies);
    assert_eq!(one.snapshots, other.snapshots);
    assert_eq!(one.endpoints, other.endpoints);
}

/// The names whose content differs between two views.
fn differences(before: &View, after: &View) -> BTreeSet<(ResourceType, Arc<str>)> {
    let mut names = BTreeSet::new();
    for kind in ResourceType::ALL {
        for resource in before.all(kind).chain(after.all(kind)) {
            let version = |view: &View| view.get(kind, &resource.name).map(|resource| resource.version);
            if version(before) != version(after) {
                names.insert((kind, Arc::clone(&resource.name)));
            }
        }
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_snapshot_of_every_mesh_passes_the_lint(history in histories()) {
        let mut compiler = compiler("roots");
        for batch in history {
            compiler.apply(batch);
            for view in views(&compiler.served_state()) {
                prop_assert_eq!(lint::lint(&view), vec![]);
            }
            for problem in compiler.problems() {
                prop_assert!(!problem.message.contains("stays in force"), "{}", problem);
            }
        }
    }

    #[test]
    fn an_incremental_compilation_equals_one_from_scratch(history in histories()) {
        let last = last_inputs(&history);
        let mut step_by_step = compiler("roots");
        for batch in history {
            step_by_step.apply(batch);
        }
        let mut at_once = compiler("roots");
        at_once.apply(last.clone());
        assert_same(&step_by_step.served_state(), &at_once.served_state());
        let mut backwards = compiler("roots");
        for input in last.into_iter().rev() {
            backwards.apply([input]);
        }
        assert_same(&backwards.served_state(), &at_once.served_state());
        prop_assert_eq!(step_by_step.problems(), at_once.problems());
    }

    #[test]
    fn each_change_names_exactly_what_differs(history in histories()) {
        let mut compiler: Compiler = compiler("roots");
        let mut before = compiler.served_state();
        for batch in history {
            let changed = compiler.apply(batch);
            let after = compiler.served_state();
            prop_assert_eq!(changed, after.generation != before.generation);
            for proxy in before.proxies.keys().chain(after.proxies.keys()) {
                let (Some(old), Some(new)) = (before.view(proxy), after.view(proxy)) else { continue };
                if old.class != new.class {
                    continue;
                }
                let differing = differences(&old, &new);
                let Changed::Names(named) = after.changed_since(before.generation, &new.class) else {
                    panic!("one change is always remembered");
                };
                // Changed endpoints are named to all classes.
                let own: BTreeSet<_> = named
                    .into_iter()
                    .filter(|(kind, name)| old.get(*kind, name).is_some() || new.get(*kind, name).is_some())
                    .collect();
                prop_assert_eq!(own, differing);
            }
            let referred: BTreeSet<_> =
                after.snapshots.values().flat_map(|snapshot| snapshot.endpoints.iter().cloned()).collect();
            let held: BTreeSet<_> = after.endpoints.keys().cloned().collect();
            prop_assert_eq!(referred, held, "endpoints are held exactly as long as something refers to them");
            before = after;
        }
    }

    #[test]
    fn a_state_wakes_the_streams_that_it_concerns(history in histories(), skips in vec(0..3_usize, 8)) {
        let mut compiler: Compiler = compiler("roots");
        let mut following = Following::default();
        let mut streams: BTreeMap<StreamId, (ProxyName, Option<View>)> = BTreeMap::new();
        let mut skips = skips.into_iter().cycle();
        let mut left = 0;
        for batch in history {
            compiler.apply(batch);
            // Not every state is published.
            if left > 0 {
                left -= 1;
                continue;
            }
            left = skips.next().unwrap();
            let state = compiler.served_state();
            for (stream, changed) in following.advance(&state) {
                let (proxy, held) = streams.get_mut(&stream).unwrap();
                let now = state.view(proxy);
                if let (Some(old), Some(new), Changed::Names(named)) = (&*held, &now, &*changed) {
                    prop_assert!(old.class == new.class, "another class is compared whole");
                    prop_assert!(named.is_superset(&differences(old, new)), "all that differs is named");
                } else {
                    prop_assert!(held.is_none() && now.is_none() || *changed == Changed::Everything);
                }
                *held = now;
            }
            for (proxy, held) in streams.values() {
                let differs = match (held, state.view(proxy)) {
                    (None, None) => false,
                    (Some(old), Some(new)) => old.class != new.class || !differences(old, &new).is_empty(),
                    _ => true,
                };
                prop_assert!(!differs, "{proxy} was not woken");
            }
            // Streams come and go.
            let next = streams.keys().next_back().map_or(1, |last| last + 1);
            for (number, proxy) in (next..).zip(state.proxies.keys()) {
                following.enter(number, proxy, &state);
                streams.insert(number, (proxy.clone(), state.view(proxy)));
            }
            while streams.len() > 12 {
                let (stream, _) = streams.pop_first().unwrap();
                following.leave(stream);
            }
        }
    }
}
