//! Random IngressBackends, and clients outside of the mesh that are let in, nearly, or not at all.
//!
//! Owns the choice. Clients connect from addresses of the loopback network, since the connection's own
//! address decides, and claim by the PROXY protocol to be at another one.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use smc_policy::{Handshake, Outsider};
use smc_testkit::random::Random;

use crate::generate::{self, Case, namespace, object};

/// The names in certificates of gateways.
pub(crate) const GATEWAYS: [&str; 2] = ["gateway.ingress.test", "other.ingress.test"];

/// The addresses of clients: of two pods of a gateway, of networks, and of none.
const ADDRESSES: [[u8; 4]; 6] =
    [[127, 20, 0, 1], [127, 20, 0, 2], [127, 30, 1, 1], [127, 31, 1, 1], [127, 40, 0, 7], [127, 50, 0, 1]];

/// The names for which clients ask.
const SERVER_NAMES: [Option<&str>; 6] = [
    None,
    Some("shop.example"),
    Some("a.shop.example"),
    Some("b.a.shop.example"),
    Some("other.example"),
    Some("web.n1.svc.cluster.local"),
];

/// How many clients ask at each port.
const CALLERS: usize = 8;

/// A client outside of the mesh.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) outsider: Outsider,
    /// The address at which the PROXY protocol says that it is.
    pub(crate) claims: Ipv4Addr,
    /// Whether it shows a certificate of an identity that is not in the mesh.
    pub(crate) is_stranger: bool,
}

/// The mesh of a seed, with IngressBackends, and clients.
pub(crate) fn case(seed: u64) -> Case {
    let mut case = generate::case(seed);
    let mut random = Random::new(!seed);
    let random = &mut random;
    let mut edge = namespace("edge");
    edge["metadata"]["annotations"] = json!({"openservicemesh.io/sidecar-injection": "disabled"});
    case.objects.push(edge);
    for (number, address) in ADDRESSES.iter().take(2).enumerate() {
        let address = Ipv4Addr::from(*address).to_string();
        case.objects.push(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("gateway-{number}"), "namespace": "edge",
                "labels": {"app": "gateway", "one": format!("gateway-{number}")}},
            "spec": {"serviceAccountName": "gateway", "containers": [{"name": "app"}]},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}));
    }
    for (name, selector) in [
        ("gateway", json!({"app": "gateway"})),
        ("one", json!({"one": "gateway-0"})),
        ("empty", json!({"app": "nothing"})),
    ] {
        let spec = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": selector,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        case.objects.push(object("v1", "Service", "edge", name, &spec));
    }
    case.objects.extend((0..3 + random.below(6)).map(|number| ingress(random, number)));
    // In HTTP/1.1.
    case.requests.truncate(4);
    case.callers = (0..CALLERS).map(|_| caller(random)).collect();
    case
}

fn ingress(random: &mut Random, number: usize) -> Value {
    let backends: Vec<Value> = (0..=random.below(3)).map(|_| backend(random)).collect();
    let mut sources: Vec<Value> = (0..2 + random.below(2)).map(|_| source(random)).collect();
    if random.one_in(2) {
        sources.push(json!({"kind": "AuthenticatedPrincipal", "name": random.pick(&GATEWAYS)}));
    }
    let mut spec = json!({"backends": backends, "sources": sources});
    if random.one_in(4) {
        let groups = random.some(0, 2, &["g0", "g1", "g2", "missing"]);
        spec["matches"] = groups.iter().map(|name| json!({"kind": "HTTPRouteGroup", "name": name})).collect();
    }
    let id = format!("ingress{number}");
    let namespace = if random.one_in(8) { "n2" } else { "n1" };
    object("policy.openservicemesh.io/v1alpha1", "IngressBackend", namespace, &id, &spec)
}

fn backend(random: &mut Random) -> Value {
    let name = random.pick(&["web", "web", "one", "two", "far", "missing"]);
    let port = [8080, 8080, 8080, 8080, 8081, 8081, 7000, 80][random.below(8)];
    let protocol = random.pick(&["http", "https"]);
    let mut backend = json!({"name": name, "port": {"number": port, "protocol": protocol}});
    if protocol == "https" && !random.one_in(4) {
        backend["tls"] = json!({"skipClientCertValidation": random.one_in(2)});
        if random.one_in(2) {
            backend["tls"]["sniHosts"] =
                json!(random.some(1, 2, &["shop.example", "*.shop.example", "other.example"]));
        }
    }
    backend
}

fn source(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"kind": "AuthenticatedPrincipal", "name": random.pick(&GATEWAYS)}),
        1 => {
            let range = random.pick(&["127.30.0.0/16", "127.30.0.0/15", "127.40.0.7/32", "10.0.0.0/8"]);
            let range = if random.one_in(12) { "0.0.0.0/0" } else { range };
            json!({"kind": "IPRange", "name": range})
        }
        _ => {
            json!({"kind": "Service", "namespace": "edge", "name": random.pick(&["gateway", "gateway", "gateway", "one", "empty", "missing"])})
        }
    }
}

fn caller(random: &mut Random) -> Caller {
    let mut address = || Ipv4Addr::from(ADDRESSES[random.below(ADDRESSES.len())]);
    let (address, claims) = (address(), address());
    let mut is_stranger = false;
    let tls = (!random.one_in(3)).then(|| {
        let server_name = SERVER_NAMES[random.below(SERVER_NAMES.len())].map(str::to_owned);
        let certificate = random.below(5);
        is_stranger = certificate == 4;
        Handshake {
            server_name,
            names: GATEWAYS.get(certificate).map(|name| (*name).to_owned()).into_iter().collect(),
        }
    });
    Caller { outsider: Outsider { address, tls }, claims, is_stranger }
}
