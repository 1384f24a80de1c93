//! The objects that random meshes consist of.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::catalog::fixtures::{
    account, all_of_tls, authorization, connections, extension_service, group, http_rule, ip, limit, machine,
    name, pod, port, retry, sent_to, service, service_id, setting, slice, split, target, tcp_route, tcp_rule,
    telemetry, tracing,
};
use crate::catalog::{Object, SourceEvent};
use crate::policy::fixtures::{egress, host, ingress};
use smc_api::osm::egress::{Egress, EgressProtocol};
use smc_api::osm::upstream_traffic_setting::UpstreamHost;
use smc_api::osm::{IngressBackend, MeshConfig};
use smc_api::smi::{Rule, UdpRoute};
use smc_model::access_log::Logged;
use smc_model::connection_settings::ConnectionSettings;
use smc_model::topology::{
    EndpointSlice, Namespace, Readiness, Service, ServicePort, SessionAffinity, TargetPort, Workload,
};
use smc_types::ids::{ProxyName, ProxyUuid, ServiceId, WorkloadId};
use smc_types::proxy_class::AppProtocol;

// A universe small enough that things meet: two namespaces, a few names of each kind.
const NAMESPACES: [&str; 2] = ["a", "b"];
pub(crate) const ACCOUNTS: [&str; 5] = ["a/x", "a/y", "a/z", "b/x", "b/y"];
pub(crate) const SERVICES: [&str; 5] = ["a/s1", "a/s2", "a/s3", "b/s1", "b/s2"];
const PODS: [&str; 7] = ["a/p1", "a/p2", "a/p3", "a/p4", "b/p1", "b/p2", "smc-system/p1"];
const MACHINES: [&str; 3] = ["a/m1", "a/p1", "b/m1"];
const APPS: [&str; 3] = ["one", "two", "three"];
const ADDRESSES: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"];
const COLLECTORS: [&str; 4] = ["a/c1", "a/c2", "b/c1", "smc-system/c1"];
const PATHS: [&str; 3] = ["/a", "/b", "/c"];

fn namespace_of(name: &str) -> &str {
    name.split_once('/').unwrap().0
}

fn ports() -> impl Strategy<Value = Vec<ServicePort>> {
    let target = prop_oneof![Just(TargetPort::Number(8080)), Just(TargetPort::Name("web".to_owned()))];
    let protocol = select(vec![AppProtocol::Http, AppProtocol::Http2, AppProtocol::Tcp]);
    let one = (select(vec![80_u16, 81]), target, protocol);
    vec(one, 0..3).prop_map(|ports| {
        let ports = ports.into_iter();
        let ports = ports
            .map(|(number, target, protocol)| (number, ServicePort { target, ..port(number, protocol) }));
        ports.collect::<BTreeMap<_, _>>().into_values().collect()
    })
}

fn a_service() -> impl Strategy<Value = Object> {
    (select(&SERVICES[..]), select(&APPS[..]), ports(), 0..5).prop_map(|(id, app, ports, shape)| {
        let service = service(id, app, &ports);
        Object::from(match shape {
            0 => Service { headless: true, cluster_ips: vec![], ..service },
            1 => Service { selector: BTreeMap::new(), ..service },
            2 => Service { cluster_ips: vec![ip("fd01::1")], ..service },
            3 => Service { affinity: SessionAffinity::ClientIp, ..service },
            _ => service,
        })
    })
}

fn readiness() -> impl Strategy<Value = Readiness> {
    use Readiness::{Draining, NodeUnreachable, NotReady, Ready};
    select(vec![Ready, Draining, NodeUnreachable, NotReady])
}

fn a_pod() -> impl Strategy<Value = Object> {
    let identity = (select(&PODS[..]), select(vec!["x", "y", "z"]), select(&APPS[..]));
    let state = (subsequence(&ADDRESSES[..], 0..3), readiness(), any::<bool>(), 0..8, 0..8);
    (identity, state).prop_map(|((id, account, app), (ips, readiness, named, injection, proxy))| {
        let account = format!("{}/{account}", namespace_of(id));
        let pod = pod(id, &account, app, "10.0.0.1");
        Object::from(Workload {
            ips: ips.into_iter().map(ip).collect(),
            readiness,
            ports: if named { [("web".to_owned(), 9090)].into() } else { BTreeMap::new() },
            injection: match injection {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
            // Now and then two pods claim one sidecar, of their own namespace or of another.
            proxy: if proxy == 0 { uuid_of(PODS[0]) } else { pod.proxy },
            ..pod
        })
    })
}

fn a_machine() -> impl Strategy<Value = Object> {
    let identity = (select(&MACHINES[..]), select(vec!["x", "y"]));
    let services = subsequence(vec!["s1", "s2", "s4"], 1..3);
    let state = (subsequence(&ADDRESSES[..], 0..3), readiness(), any::<bool>(), 0..8);
    (identity, services, state).prop_map(|((id, account), services, (ips, readiness, named, proxy))| {
        let account = format!("{}/{account}", namespace_of(id));
        let machine = machine(id, &account, &services, "10.0.0.1");
        Object::from(Workload {
            ips: ips.into_iter().map(ip).collect(),
            readiness,
            ports: if named { [("web".to_owned(), 9090)].into() } else { BTreeMap::new() },
            proxy: if proxy == 0 { uuid_of(PODS[0]) } else { machine.proxy },
            ..machine
        })
    })
}

fn uuid_of(pod: &str) -> ProxyUuid {
    ProxyUuid::derived(&pod.parse().unwrap())
}

/// Every sidecar that a pod or a machine may claim.
pub(super) fn proxies() -> Vec<ProxyName> {
    let named = |pod: &&str| {
        let id: WorkloadId = pod.parse().unwrap();
        [ProxyName::of(uuid_of(pod), &id), ProxyName::of(uuid_of(PODS[0]), &id)]
    };
    let of_machine = |id: &&str| {
        let id: WorkloadId = format!("machine/{id}").parse().unwrap();
        let service = |name: &str| ServiceId::new(id.namespace(), name).unwrap();
        let uuids = [ProxyUuid::derived(&id), uuid_of(PODS[0])];
        let named = |name| uuids.map(|uuid| ProxyName::of_machine(uuid, &service(name)).unwrap());
        ["s1", "s2", "s4"].map(named).concat()
    };
    PODS.iter().flat_map(named).chain(MACHINES.iter().flat_map(of_machine)).collect()
}

fn a_slice() -> impl Strategy<Value = Object> {
    let which = (select(vec!["a/e1", "a/e2", "b/e1"]), select(&SERVICES[..]));
    let what = (subsequence(&ADDRESSES[..], 0..4), readiness(), proptest::option::of(select(&PODS[..])));
    (which, what, any::<bool>()).prop_map(|((id, service), (addresses, readiness, pod), follows_pods)| {
        let slice = slice(id, service, &[("p80", 7070), ("p81", 8080)], &addresses);
        let mut endpoints = slice.endpoints.clone();
        if let Some(first) = endpoints.first_mut() {
            first.readiness = readiness;
            first.workload = pod.map(|pod| pod.parse().unwrap());
        }
        Object::EndpointSlice(EndpointSlice { follows_pods, endpoints, ..slice })
    })
}

fn rules(namespace: &'static str) -> impl Strategy<Value = Vec<Rule>> {
    let matches = proptest::option::of(subsequence(&PATHS[..], 0..3));
    let http = (select(vec!["g1", "g2"]), matches)
        .prop_map(move |(name, matches)| http_rule(&format!("{namespace}/{name}"), matches.as_deref()));
    let tcp = select(vec!["t1", "t2"]).prop_map(move |name| tcp_rule(&format!("{namespace}/{name}")));
    vec(prop_oneof![http, tcp], 1..3)
}

fn a_target() -> impl Strategy<Value = Object> {
    let sources = btree_set(select(&ACCOUNTS[..]), 1..3);
    select(vec![("a/k1", "a"), ("a/k2", "a"), ("b/k1", "b")]).prop_flat_map(move |(id, namespace)| {
        (select(&ACCOUNTS[..]), sources.clone(), rules(namespace)).prop_map(
            move |(destination, sources, rules)| {
                let sources: Vec<&str> = sources.into_iter().collect();
                target(id, destination, &sources, &rules)
            },
        )
    })
}

fn a_split() -> impl Strategy<Value = Object> {
    let backends = btree_set(select(vec!["s1", "s2", "s3", "s4"]), 1..4);
    let which = (select(vec!["a/d1", "a/d2", "b/d1"]), select(vec!["s1", "s2", "s3"]));
    (which, backends, vec(0_u32..3, 3), subsequence(vec!["g1", "g2"], 0..3)).prop_map(
        |((id, root), backends, weights, groups)| {
            let full = |name: &str| format!("{}/{name}", namespace_of(id));
            let backends: Vec<_> = backends.into_iter().map(full).zip(weights).collect();
            let backends: Vec<_> = backends.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
            let groups: Vec<_> = groups.into_iter().map(full).collect();
            let groups: Vec<_> = groups.iter().map(String::as_str).collect();
            split(id, &full(root), &backends, &groups)
        },
    )
}

fn an_ingress_backend() -> impl Strategy<Value = Object> {
    let which = (select(vec!["a/i1", "a/i2", "b/i1"]), select(vec!["s1", "s2", "s3"]));
    let port = select(vec![8080_u16, 9090, 7070]);
    let from = (subsequence(&SERVICES[..], 0..3), subsequence(vec!["10.0.0.0/8", "fd00::/8"], 0..2));
    let groups = proptest::option::of(subsequence(vec!["g1", "g2"], 0..3));
    (which, port, from, groups).prop_map(|((id, service), port, (services, ranges), groups)| {
        let full = |name: &str| format!("{}/{name}", namespace_of(id));
        let object = ingress(id, &full(service), port, &services, &ranges);
        let matches = groups.map(|groups| groups.iter().map(|group| name(&full(group))).collect());
        Object::from(IngressBackend { matches, ..object })
    })
}

fn an_egress() -> impl Strategy<Value = Object> {
    let which = select(vec![("a/o1", "x"), ("a/o2", "z"), ("a/o3", "z"), ("b/o1", "x")]);
    let hosts = subsequence(vec!["h.example", "*.example", "s1.a.svc", "s2.b.svc.cluster.local"], 1..3);
    let networks = proptest::option::of(subsequence(vec!["10.0.0.0/8", "0.0.0.0/0"], 1..3));
    let protocols = vec![
        EgressProtocol::Http,
        EgressProtocol::Https,
        EgressProtocol::Tcp,
        EgressProtocol::TcpServerFirst,
    ];
    let ports = vec((select(vec![80_u16, 443]), select(protocols)), 1..3);
    let groups = proptest::option::of(subsequence(vec!["g1", "g2"], 0..3));
    (which, hosts, networks, ports, groups).prop_map(|((id, source), hosts, networks, ports, groups)| {
        let full = |name: &str| format!("{}/{name}", namespace_of(id));
        let hosts: Vec<_> = hosts.into_iter().map(host).collect();
        let matches = groups.map(|groups| groups.iter().map(|group| name(&full(group))).collect());
        let object = egress(id, Some(&hosts), networks.as_deref(), &ports);
        Object::from(Egress { sources: [account(&full(source))].into(), matches, ..object })
    })
}

/// Also one that names services that are no longer there, or not callable.
fn a_retry() -> impl Strategy<Value = Object> {
    let which = select(vec![("a/r1", "a/x"), ("a/r2", "a/z"), ("a/r3", "a/z"), ("b/r1", "b/x")]);
    (which, subsequence(&SERVICES[..], 1..4), 0..3_u32)
        .prop_map(|((id, source), services, retries)| retry(id, source, &services, retries))
}

fn a_setting() -> impl Strategy<Value = Object> {
    let which = (select(vec!["a/u1", "a/u2", "b/u1"]), select(vec!["s1", "s2", "s3", "s4"]));
    (which, 1..3_u32, 0..7).prop_map(|((id, service), most, shape)| {
        let service = format!("{}/{service}", namespace_of(id));
        let object = match shape {
            4 => limit(id, &service, most, &[]),
            5 => limit(id, &service, 1, &["/a", "/b"][..usize::try_from(most).unwrap()]),
            6 => connections(id, &service, most),
            _ => setting(id, &service, most),
        };
        let Object::UpstreamTrafficSetting(setting) = object else { unreachable!("a setting") };
        let mut setting = (*setting).clone();
        match shape {
            0 => setting.host = UpstreamHost::Outside("example.com".to_owned()),
            1 => setting.connections = ConnectionSettings::default(),
            _ => {}
        }
        Object::from(setting)
    })
}

fn a_telemetry() -> impl Strategy<Value = Object> {
    let app = proptest::option::of(select(&APPS[..]));
    let format = proptest::option::of(select(vec!["%PROTOCOL%", "%DURATION%"]));
    let collector = proptest::option::of((select(&COLLECTORS[..]), select(vec!["%PROTOCOL%", "x"])));
    (select(vec!["a/l1", "a/l2", "a/l3", "b/l1", "smc-system/l1", "smc-system/l2"]), app, format, collector)
        .prop_map(|(id, app, format, collector)| {
            let telemetry = telemetry(id, app, format);
            match collector {
                Some((service, attribute)) => sent_to(telemetry, service, attribute),
                None => telemetry,
            }
        })
}

/// Its host may be a service of the mesh.
fn an_extension_service() -> impl Strategy<Value = Object> {
    let hosts = vec![service_id(SERVICES[0]).fqdn(), "otel.example".to_owned(), "otel-2.example".to_owned()];
    (select(&COLLECTORS[..]), select(hosts)).prop_map(|(id, host)| extension_service(id, &host))
}

fn an_object() -> impl Strategy<Value = Object> {
    let namespace = (
        select(vec![NAMESPACES[0], NAMESPACES[1], "smc-system"]),
        proptest::bool::weighted(0.8),
        proptest::option::weighted(0.2, any::<bool>()),
        proptest::bool::weighted(0.3),
        proptest::option::weighted(0.3, select(Logged::WORDS.map(|(_, log)| log).to_vec())),
    )
        .prop_map(|(name, monitored, injection, permissive, access_log)| {
            let name = name.to_owned();
            Object::Namespace(Namespace {
                name,
                monitored,
                injection,
                metrics: false,
                permissive,
                access_log,
            })
        });
    let group = (select(vec!["a/g1", "a/g2", "b/g1"]), subsequence(&PATHS[..], 0..3))
        .prop_map(|(id, paths)| group(id, &paths));
    let tcp = (select(vec!["a/t1", "a/t2", "b/t1"]), subsequence(vec![80_u16, 8080, 9090], 0..3))
        .prop_map(|(id, ports)| tcp_route(id, &ports));
    let log = proptest::option::of(select(Logged::WORDS.map(|(_, log)| log).to_vec()));
    let switches = any::<[bool; 6]>();
    // One may be a service of the mesh.
    let asked = select(vec![None, Some(service_id(SERVICES[0]).fqdn()), Some("opa.example".to_owned())]);
    let traced = select(vec![None, Some(service_id(SERVICES[0]).fqdn()), Some("jaeger.example".to_owned())]);
    let tls = select(vec![None, Some(all_of_tls()), Some(Arc::default())]);
    let config = (select(vec!["smc-system", NAMESPACES[0]]), switches, log, asked, traced, tls);
    let config = config.prop_map(|(namespace, switches, access_log, asked, traced, tls)| {
        let [permissive, egress, ignores_egress, ignores_ingress, ignores_retries, request_metrics] =
            switches;
        let config = MeshConfig {
            permissive,
            egress,
            ignores_egress,
            ignores_ingress,
            ignores_retries,
            request_metrics,
            access_log,
            external_authorization: asked.map(|host| authorization(&host)),
            tracing: traced.map(|host| tracing(&host)),
            tls,
            ..MeshConfig::default()
        };
        Object::MeshConfig(name(&format!("{namespace}/osm-mesh-config")), config)
    });
    let udp = Just(Object::UdpRoute(UdpRoute { id: name("a/u1"), ports: [].into() }));
    let identity = select(&ACCOUNTS[..]).prop_map(|name| Object::ServiceAccount(account(name)));
    prop_oneof![
        3 => namespace,
        8 => a_service(),
        12 => a_pod(),
        5 => a_machine(),
        4 => a_slice(),
        6 => a_target(),
        4 => group,
        3 => tcp,
        6 => a_split(),
        5 => an_ingress_backend(),
        4 => an_egress(),
        4 => a_retry(),
        4 => a_setting(),
        4 => a_telemetry(),
        3 => an_extension_service(),
        1 => config,
        1 => udp,
        1 => identity,
    ]
}

/// Events that add, change or remove random objects.
pub(crate) fn events(most: usize) -> impl Strategy<Value = Vec<SourceEvent>> {
    vec((an_object(), 0..4), 1..most).prop_map(|steps| {
        let event = |(object, action): (Object, i32)| match action {
            0 => SourceEvent::Remove(object.reference()),
            _ => SourceEvent::Upsert(object),
        };
        steps.into_iter().map(event).collect()
    })
}

/// A connected mesh, so that a random event affects something: `a/z` may reach
/// `a/x` and `b/x` may reach `a/y`, both of which are leaves of a split.
pub(crate) fn furnished() -> Vec<Object> {
    let web = |id: &str, app: &str| Object::from(service(id, app, &[port(80, AppProtocol::Http)]));
    vec![
        Object::Namespace(Namespace {
            name: "a".to_owned(),
            monitored: true,
            injection: None,
            metrics: false,
            permissive: false,
            access_log: None,
        }),
        Object::Namespace(Namespace {
            name: "b".to_owned(),
            monitored: true,
            injection: None,
            metrics: false,
            permissive: false,
            access_log: None,
        }),
        web("a/s1", "one"),
        web("a/s2", "two"),
        web("a/s3", "three"),
        Object::from(pod("a/p1", "a/x", "one", "10.0.0.1")),
        Object::from(pod("a/p2", "a/y", "two", "10.0.0.2")),
        Object::from(pod("a/p3", "a/z", "three", "10.0.0.3")),
        Object::from(pod("b/p1", "b/x", "one", "10.0.0.1")),
        Object::from(machine("a/m1", "a/y", &["s2"], "10.0.0.3")),
        tcp_route("a/t1", &[]),
        group("a/g1", &["/a"]),
        target("a/k1", "a/x", &["a/z"], &[tcp_rule("a/t1")]),
        target("a/k2", "a/y", &["b/x"], &[http_rule("a/g1", None)]),
        split("a/d1", "a/s3", &[("a/s1", 1), ("a/s2", 1)], &[]),
        split("a/d2", "a/s3", &[("a/s2", 1)], &["a/g1"]),
        Object::from(ingress("a/i1", "a/s1", 80, &["b/s1", "a/s2"], &[])),
        Object::from(egress("a/o1", Some(&[host("h.example")]), None, &[(443, EgressProtocol::Https)])),
        retry("a/r1", "a/z", &["a/s1", "a/s3"], 2),
        setting("a/u1", "a/s2", 1),
        limit("a/u2", "a/s1", 1, &["/a"]),
    ]
}
