//! IngressBackends as OSM's documents write them, and what is left of those that are not.

use serde_json::json;
use smc_types::problem::Severity;

use super::*;

fn ingress() -> Value {
    json!({
        "backends": [{
            "name": "httpbin",
            "port": {"number": 14001, "protocol": "https"},
            "tls": {"skipClientCertValidation": false, "sniHosts": ["httpbin.httpbin"]},
        }],
        "sources": [
            {"kind": "Service", "namespace": "ingress", "name": "gateway"},
            {"kind": "IPRange", "name": "10.0.0.0/8"},
            {"kind": "AuthenticatedPrincipal", "name": "gateway.ingress.cluster.local"},
        ],
    })
}

fn read(spec: Value) -> Reading<IngressBackend> {
    read_ingress_backend(&"shop/object".parse().unwrap(), spec)
}

/// The fields with an error.
fn errors(reading: &Reading<IngressBackend>) -> Vec<&str> {
    let errors = reading.problems.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.field.as_str()).collect()
}

/// [`ingress`] with another value at a place.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = ingress();
    *spec.pointer_mut(pointer).unwrap() = value;
    spec
}

/// Of the guides on ingress with Contour and nginx, in OSM 1.2: in clear text, over TLS, with mutual TLS.
#[test]
fn what_osms_guides_write_is_read_without_a_problem() {
    let service = json!({"kind": "Service", "namespace": "ingress", "name": "gateway"});
    let principal = json!({"kind": "AuthenticatedPrincipal", "name": "gateway.ingress.cluster.local"});
    let https = |skip: bool| json!({"name": "httpbin", "port": {"number": 14001, "protocol": "https"}, "tls": {"skipClientCertValidation": skip}});
    for (backend, sources) in [
        (json!({"name": "httpbin", "port": {"number": 14001, "protocol": "http"}}), json!([service])),
        (https(true), json!([service])),
        (https(false), json!([service, principal])),
        (https(false), json!([principal])),
    ] {
        let reading = read(json!({"backends": [backend], "sources": sources}));
        assert_eq!(reading.problems, [], "{backend}");
        assert!(reading.object.is_some(), "{backend}");
    }
}

#[test]
fn all_fields_are_read() {
    let mut spec = ingress();
    spec["matches"] =
        json!([{"apiGroup": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "name": "get"}]);
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<BTreeSet<_>>();
    let expected = IngressBackend {
        id: "shop/object".parse().unwrap(),
        backends: [BackendPort {
            service: "shop/httpbin".parse().unwrap(),
            port: 14001,
            protocol: IngressProtocol::Https {
                checks_client: true,
                server_names: Some(texts(&["httpbin.httpbin"])),
            },
        }]
        .into(),
        sources: IngressSources {
            addresses: Some(IngressAddresses {
                services: ["ingress/gateway".parse().unwrap()].into(),
                ranges: ["10.0.0.0/8".parse().unwrap()].into(),
            }),
            principals: texts(&["gateway.ingress.cluster.local"]),
        },
        matches: Some(["shop/get".parse().unwrap()].into()),
    };
    assert_eq!(read(spec), Reading { object: Some(expected), problems: vec![] });
}

#[test]
fn what_can_mean_nothing_is_an_error_at_its_field() {
    for (pointer, value, field) in [
        ("/backends", json!([]), "spec.backends"),
        ("/backends/0/name", json!("A_B"), "spec.backends[0].name"),
        ("/backends/0/port/number", json!(0), "spec.backends[0].port.number"),
        ("/backends/0/port/protocol", json!("tcp"), "spec.backends[0].port.protocol"),
        ("/backends/0/tls/sniHosts", json!([]), "spec.backends[0].tls.sniHosts"),
        ("/backends/0/tls/sniHosts", json!(["a", "w*.x"]), "spec.backends[0].tls.sniHosts[1]"),
        ("/backends/0/tls/sniHosts", json!(["*"]), "spec.backends[0].tls.sniHosts[0]"),
        ("/backends/0/tls/sniHosts", json!(["*.SVC.cluster.local"]), "spec.backends[0].tls.sniHosts[0]"),
        ("/backends/0/tls/sniHosts", json!(["a.shop.svc.cluster.local"]), "spec.backends[0].tls.sniHosts[0]"),
        ("/sources", json!([]), "spec.sources"),
        ("/sources/0/namespace", json!("A"), "spec.sources[0]"),
        ("/sources/1/name", json!("everywhere"), "spec.sources[1].name"),
        ("/sources/1/name", json!("10.0.0.0/33"), "spec.sources[1].name"),
        ("/sources/1/name", json!("::ffff:10.0.0.0/104"), "spec.sources[1].name"),
        ("/sources/2/name", json!("CN=gateway"), "spec.sources[2].name"),
        ("/sources/2/name", json!("spiffe://cluster.local/ns/a/sa/b"), "spec.sources[2].name"),
        ("/sources/2/kind", json!("Pod"), "spec.sources[2].kind"),
    ] {
        let reading = read(with(pointer, value.clone()));
        assert!(errors(&reading).contains(&field), "{pointer} {value}: {:?}", reading.problems);
    }
}

/// OSM opens a port to everybody where an IngressBackend for clear text names principals alone, and where one
/// over TLS checks no certificate.
#[test]
fn a_port_that_anybody_could_reach_stays_closed() {
    let principal = json!([{"kind": "AuthenticatedPrincipal", "name": "gateway.ingress.cluster.local"}]);
    for (protocol, tls) in [("http", json!(null)), ("https", json!({"skipClientCertValidation": true}))] {
        let mut backend = json!({"name": "httpbin", "port": {"number": 14001, "protocol": protocol}});
        if tls.is_object() {
            backend["tls"] = tls;
        }
        let reading = read(json!({"backends": [backend], "sources": principal}));
        assert_eq!(errors(&reading), ["spec.backends[0]"]);
        assert_eq!(reading.object, None, "{protocol}");
    }
}

#[test]
fn an_ingress_that_checks_certificates_needs_a_principal() {
    let mut spec = ingress();
    spec["sources"].as_array_mut().unwrap().pop();
    assert_eq!(errors(&read(spec.clone())), ["spec.backends[0].tls"]);
    spec["backends"][0]["tls"]["skipClientCertValidation"] = json!(true);
    assert_eq!(errors(&read(spec)), Vec::<&str>::new());
}

/// What is left restricts no less than what the author wrote.
#[test]
fn what_cannot_be_read_narrows() {
    let sources = |spec| read(spec).object.unwrap().sources;
    // A restriction of addresses that cannot be read leaves no address, and not all of them.
    for (first, second) in [
        (json!({"kind": "Service", "name": "gateway"}), json!({"kind": "IPRange", "name": "everywhere"})),
        (json!({"kind": "Pod", "name": "gateway"}), json!(7)),
    ] {
        let mut spec = with("/sources/0", first);
        spec["sources"][1] = second;
        let read = sources(spec);
        assert_eq!(read.addresses, Some(IngressAddresses::default()), "{read:?}");
        assert_eq!(read.principals.len(), 1);
    }
    assert_eq!(read(with("/sources", json!("all"))).object, None);
    // Names that cannot be read leave none, and not all of them.
    for names in [json!([]), json!(["*"]), json!("httpbin"), json!([7])] {
        assert_eq!(read(with("/backends/0/tls/sniHosts", names.clone())).object, None, "{names}");
    }
    // Nor does a switch that cannot be read switch off.
    let reading = read(with("/backends/0/tls/skipClientCertValidation", json!("true")));
    let backend = reading.object.unwrap().backends.pop_first().unwrap();
    assert!(matches!(backend.protocol, IngressProtocol::Https { checks_client: true, .. }));
    // Nor do routes that cannot be read mean every request.
    for matches in [json!([]), json!("all"), json!([{"kind": "TCPRoute", "name": "a"}]), json!(null)] {
        let mut spec = ingress();
        spec["matches"] = matches.clone();
        assert_eq!(read(spec).object.unwrap().matches, Some(BTreeSet::new()), "{matches}");
    }
}
