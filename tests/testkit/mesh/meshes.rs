//! The meshes of the golden snapshots, which a real Envoy also validates.
//!
//! Together they have every kind of resource that the translation makes, and every branch of it
//! that changes bytes.

mod reports;

use serde_json::{Value, json};
use smc_mesh::translate::{Compiler, Input};
use smc_model::retry_policy::RetryCondition;
use smc_types::proxy_class::AppProtocol::{Http, Http2, Https, Tcp, TcpServerFirst};

use super::{
    Object, SourceEvent, certify, compiler, connection_settings, egress, external_authorization, group,
    ingress, keeping_callers, mesh_config, namespace, pod, pod_ip_mode, pod_that, retry, service, sidecar,
    split, target, tcp, tracing, upstream_setting,
};

/// A mesh, and the pods whose configuration is tested.
pub struct Mesh {
    /// Its subject, and the name of its golden file.
    pub name: &'static str,
    /// The identities that have certificates.
    pub accounts: Vec<String>,
    /// The pods whose configuration is tested.
    pub pods: Vec<String>,
    /// The objects.
    pub inputs: Vec<Input>,
}

impl Mesh {
    /// Compiled, with these certificates.
    pub fn compile(&self, roots: &str, chain: &str, key: &str) -> Compiler {
        let mut compiler = compiler(roots);
        compiler.apply(self.accounts.iter().map(|account| certify(account, chain, key)));
        compiler.apply(self.inputs.iter().cloned());
        compiler
    }
}

/// All meshes.
pub fn all() -> Vec<Mesh> {
    vec![
        http_routes_and_tcp_ports(),
        every_form_of_expression_that_is_read(),
        nothing_is_allowed(),
        permissive_with_egress(),
        splits_by_weight_and_by_match(),
        both_address_families_and_headless_services(),
        several_protocols_on_one_port_and_shared_addresses(),
        the_longest_names(),
        applications_at_the_address_of_their_pod(),
        services_that_keep_their_callers(),
        ports_that_are_open_to_an_ingress(),
        what_is_sent_again_and_what_services_can_bear(),
        how_many_requests_are_let_in(),
        how_many_connections_are_let_in(),
        what_may_leave_the_mesh(),
        what_a_server_is_asked_about(),
        what_is_traced(),
        what_is_traced_for_a_collector_at_an_address(),
        reports::what_sidecars_log_in_a_format_of_their_own(),
        reports::what_collectors_are_sent(),
        reports::what_requests_are_counted(),
        what_tls_is_accepted(),
    ]
}

/// All suites and all curves.
fn what_tls_is_accepted() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let port = json!({"number": 8080, "protocol": "https"});
    let backend = json!({"name": "b", "port": port, "tls": {"skipClientCertValidation": true}});
    shop(
        "what_tls_is_accepted",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
            sidecar(&json!({
                "tlsMaxProtocolVersion": "TLSv1_2",
                "cipherSuites": [
                    "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]", "ECDHE-ECDSA-AES256-GCM-SHA384",
                ],
                "ecdhCurves": ["P-521", "P-384", "X25519", "P-256"],
            })),
        ],
    )
}

fn what_is_sent_again_and_what_services_can_bear() -> Mesh {
    let service_of = |name: &str| json!({"kind": "Service", "name": name, "namespace": "shop"});
    let source = json!({"kind": "ServiceAccount", "name": "a", "namespace": "shop"});
    let all: Vec<_> = RetryCondition::ALL.iter().map(|condition| condition.as_str()).collect();
    let policy = json!({
        "retryOn": all.join(","), "numRetries": 10, "perTryTimeout": "1s", "retryBackoffBaseInterval": "1ms",
    });
    let of = |destinations: Value, policy: Value| json!({"source": source, "destinations": destinations, "retryPolicy": policy});
    let least = json!({
        "tcp": {"maxConnections": 1, "connectTimeout": "1ms"},
        "http": {"maxRequests": 1, "maxRequestsPerConnection": 1, "maxPendingRequests": 1, "maxRetries": 0},
    });
    let most = u32::MAX;
    let most = json!({
        "tcp": {"maxConnections": most, "connectTimeout": "1h"},
        "http": {"maxRequests": most, "maxRequestsPerConnection": most, "maxPendingRequests": most, "maxRetries": most},
    });
    shop(
        "what_is_sent_again_and_what_services_can_bear",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/peers", "b", &[], &[(80, 8080, Http)]),
            service("shop/quiet", "b", &["10.9.0.3"], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            retry("shop/again", of(json!([service_of("b"), service_of("peers")]), policy)),
            retry("shop/never", of(json!([service_of("quiet")]), json!({"retryOn": "5xx", "numRetries": 0}))),
            connection_settings("shop/b", "b", &most),
            connection_settings("shop/db", "db", &least),
            connection_settings("shop/peers", "peers", &json!({"http": {"maxRequests": 2}})),
        ],
    )
}

/// Every protocol, names and networks that overlap, on ports that services have as well.
fn what_may_leave_the_mesh() -> Mesh {
    let source = json!([{"kind": "ServiceAccount", "name": "a", "namespace": "shop"}]);
    let port = |number: u16, protocol: &str| json!({"number": number, "protocol": protocol});
    let of = |name: &str, mut spec: Value| {
        spec["sources"] = source.clone();
        egress(&format!("shop/{name}"), spec)
    };
    let both = || json!([port(80, "http"), port(443, "https"), port(8443, "https")]);
    let nested =
        json!(["0.0.0.0/0", "::/0", "198.51.100.0/24", "198.51.100.7/32", "2001:db8::/32", "10.9.0.2"]);
    // Everything, and the address of a service.
    let any = json!(["0.0.0.0/0", "198.51.100.7/32", "2001:db8::/32", "10.9.0.1"]);
    shop(
        "what_may_leave_the_mesh",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (443, 8443, Https)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            group(
                "shop/some",
                &json!([{"name": "some", "pathRegex": "/some/[0-9]+", "methods": ["GET"], "headers": [{"x-a": "b"}]}]),
            ),
            of(
                "by-name",
                json!({"hosts": ["a.example", "b.example", "xn--bcher-kva.example", "dialled"], "ports": both()}),
            ),
            of(
                "some-requests",
                json!({
                    "hosts": ["a.example", "c.example"], "ports": [port(80, "http")],
                    "matches": [{"apiGroup": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "name": "some"}],
                }),
            ),
            of(
                "in-networks",
                json!({"hosts": ["*.example", "b.example", "other.test"], "ipAddresses": ["198.51.100.0/24"], "ports": both()}),
            ),
            of("any-name", json!({"ipAddresses": any, "ports": both()})),
            of(
                "anything",
                json!({"ipAddresses": nested, "ports": [port(5432, "tcp"), port(3306, "tcp-server-first")]}),
            ),
            of(
                "again",
                json!({"ipAddresses": ["0.0.0.0/1", "198.51.100.0/25"], "ports": [port(5432, "tcp"), port(9000, "tcp")]}),
            ),
        ],
    )
}

fn what_a_server_is_asked_about() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    shop(
        "what_a_server_is_asked_about",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
            upstream_setting(
                "shop/b",
                "b",
                json!({"rateLimit": {"local": {"http": {"requests": 1, "unit": "minute"}}}}),
            ),
            external_authorization(&json!({
                "enable": true, "address": "opa.opa.svc.cluster.local", "port": 9191, "timeout": "2s",
                "statPrefix": "inbound-_1", "failureModeAllow": true,
            })),
        ],
    )
}

fn what_is_traced_for_a_collector_at_an_address() -> Mesh {
    let path = format!("/spans?a=%41&b={}", "x".repeat(240));
    let collector = json!({"enable": true, "address": "2001:db8::7", "port": 1, "endpoint": path, "samplingPercent": 0.01});
    shop(
        "what_is_traced_for_a_collector_at_an_address",
        vec![
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            tracing(&collector),
        ],
    )
}

fn what_is_traced() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    let out = json!({
        "sources": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}],
        "hosts": ["h.example"], "ports": [{"number": 80, "protocol": "http"}],
    });
    shop(
        "what_is_traced",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
            egress("shop/out", out),
            tracing(&json!({"enable": true, "samplingPercent": 12.5})),
        ],
    )
}

fn how_many_requests_are_let_in() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = |protocol: &str| json!({"name": "b", "port": {"number": 8080, "protocol": protocol}});
    let ways = json!({"backends": [backend("http"), backend("https")], "sources": [office]});
    let limit =
        |requests: u32, unit: &str, burst: u32| json!({"requests": requests, "unit": unit, "burst": burst});
    let mut answered = limit(1, "second", 0);
    answered["responseStatusCode"] = 503.into();
    answered["responseHeadersToAdd"] = json!([
        {"name": "Retry-After", "value": "1"}, {"name": "x-why", "value": "100 % of %REQ(cookie)%"},
        {"name": "x-why", "value": "and"}, {"name": "content-type", "value": "text/html"},
    ]);
    let route = |path: &str, limit: &Value| json!({"path": path, "rateLimit": {"local": limit}});
    shop(
        "how_many_requests_are_let_in",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/peers", "b", &[], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            group("shop/buy", &json!([{"name": "buy", "pathRegex": "/buy"}])),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("HTTPRouteGroup", "buy")]),
            ingress("shop/ways", ways),
            upstream_setting(
                "shop/b",
                "b",
                json!({
                    "rateLimit": {"local": {"http": limit(100, "minute", 20)}},
                    "httpRoutes": [route("/buy", &answered), route("/.*[.]png$", &limit(u32::MAX, "second", u32::MAX))],
                }),
            ),
            upstream_setting(
                "shop/peers",
                "peers",
                json!({"rateLimit": {"local": {"http": limit(1, "hour", 0)}}}),
            ),
            upstream_setting("shop/db", "db", json!({"rateLimit": {"local": {"http": limit(1, "hour", 0)}}})),
        ],
    )
}

fn how_many_connections_are_let_in() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend =
        |port: u16, protocol: &str| json!({"name": "b", "port": {"number": port, "protocol": protocol}});
    let ways = json!({"backends": [backend(8080, "http"), backend(8081, "https")], "sources": [office]});
    let rate = |connections: u32, burst: u32| json!({"rateLimit": {"local": {"tcp": {"connections": connections, "unit": "minute", "burst": burst}}}});
    shop(
        "how_many_connections_are_let_in",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/peers", "b", &[], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/ways", ways),
            upstream_setting("shop/b", "b", rate(100, 20)),
            upstream_setting("shop/peers", "peers", rate(u32::MAX, u32::MAX)),
            upstream_setting("shop/db", "db", rate(1, 0)),
        ],
    )
}

fn ports_that_are_open_to_an_ingress() -> Mesh {
    let gateway = json!({"kind": "Service", "name": "db", "namespace": "shop"});
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let six = json!({"kind": "IPRange", "name": "2001:db8::/32"});
    let principal = |name: &str| json!({"kind": "AuthenticatedPrincipal", "name": name});
    let backend =
        |port: u16, protocol: &str| json!({"name": "b", "port": {"number": port, "protocol": protocol}});
    let with_tls = |port: u16, tls: Value| {
        let mut backend = backend(port, "https");
        backend["tls"] = tls;
        backend
    };
    let names = json!(["shop.example", "*.shop.example"]);
    shop(
        "ports_that_are_open_to_an_ingress",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2), (82, 8082, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            group(
                "shop/buy",
                &json!([{"name": "buy", "pathRegex": "/buy", "headers": [{"host": "shop\\.example"}]}]),
            ),
            ingress(
                "shop/clear",
                json!({
                    "backends": [backend(8080, "http"), backend(8081, "http")],
                    "sources": [gateway, office, six],
                }),
            ),
            ingress(
                "shop/some",
                json!({
                    "backends": [backend(8080, "http"), with_tls(8080, json!({"skipClientCertValidation": true, "sniHosts": names}))],
                    "sources": [office],
                    "matches": [{"kind": "HTTPRouteGroup", "name": "buy"}],
                }),
            ),
            ingress(
                "shop/mutual",
                json!({
                    "backends": [with_tls(8080, json!({"skipClientCertValidation": false})), backend(8082, "https")],
                    "sources": [principal("gateway.ingress.cluster.local"), principal("other.example"), gateway],
                }),
            ),
        ],
    )
}

fn applications_at_the_address_of_their_pod() -> Mesh {
    shop(
        "applications_at_the_address_of_their_pod",
        vec![
            pod_ip_mode(),
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/b1"], &[("TCPRoute", "all")]),
        ],
    )
}

fn shop(name: &'static str, inputs: Vec<Input>) -> Mesh {
    let mut all = vec![
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1"]),
        pod("shop/b1", "shop/b1", "b", &["10.1.0.2"]),
        pod("shop/b2", "shop/b2", "b", &["10.1.0.3"]),
        pod("shop/db", "shop/db", "db", &["10.1.0.4"]),
    ];
    all.extend(inputs);
    let pods: Vec<String> = ["a", "b1", "b2", "db"].map(|name| format!("shop/{name}")).into();
    Mesh { name, accounts: pods.clone(), pods, inputs: all }
}

fn http_routes_and_tcp_ports() -> Mesh {
    let matches = json!([
        {"name": "buy", "pathRegex": "/buy/[a-z]+(/.*)?", "methods": ["GET", "HEAD"]},
        {"name": "user", "pathRegex": "/", "headers": [{"user-agent": "curl/.*"}, {"host": "b(\\.shop)?"}]},
        {"name": "any", "methods": ["*"]},
        {"name": "large", "pathRegex": "/([a-z0-9]{1,20}/){5}[^/]+"},
    ]);
    let of_db = [(3306, 3306, TcpServerFirst), (5432, 5432, Tcp), (443, 8443, Https)];
    shop(
        "http_routes_and_tcp_ports",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
            service("shop/db", "db", &["10.9.0.2"], &of_db),
            group("shop/routes", &matches),
            tcp("shop/mysql", &[3306]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a", "shop/db"], &[("HTTPRouteGroup", "routes")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "mysql")]),
            target("shop/to-db-too", "shop/db", &["shop/b1"], &[("TCPRoute", "all")]),
        ],
    )
}

fn every_form_of_expression_that_is_read() -> Mesh {
    let forms = [
        "",
        "()",
        "^$",
        "(?:)*|b",
        "[[:alpha:]_]*?",
        r"[^/\d\x7f]+",
        r"\x41\x{41}\a\t\.\/\_",
        "(?P<name>a){2,3}",
        "(?i:a)b",
        r"^\Aa\bb\Bc\z$",
        "(a|b||c)?",
    ];
    let matches: Vec<_> = forms
        .iter()
        .enumerate()
        .map(|(i, form)| json!({"name": i.to_string(), "pathRegex": form, "headers": [{"x-value": form}]}))
        .collect();
    let routes = group("shop/forms", &json!(matches));
    let Input::Source(SourceEvent::Upsert(Object::HttpRouteGroup(read))) = &routes else {
        panic!("a group is a group")
    };
    assert_eq!(read.matches.len(), forms.len(), "none of them is refused");
    shop(
        "every_form_of_expression_that_is_read",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            routes,
            split("shop/s", "b", &[("b", 1)], &["forms"]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("HTTPRouteGroup", "forms")]),
        ],
    )
}

fn nothing_is_allowed() -> Mesh {
    let ports = [(80, 8080, Http), (90, 9090, Tcp)];
    shop("nothing_is_allowed", vec![service("shop/b", "b", &["10.9.0.1"], &ports)])
}

fn permissive_with_egress() -> Mesh {
    shop(
        "permissive_with_egress",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (90, 9090, Tcp)]),
            service("shop/nobody", "nobody", &["10.9.0.3"], &[(80, 8080, Http)]),
            mesh_config(true, true),
        ],
    )
}

fn splits_by_weight_and_by_match() -> Mesh {
    let ports = [(80, 8080, Http), (90, 9090, Tcp)];
    shop(
        "splits_by_weight_and_by_match",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &ports),
            service("shop/b-v1", "b", &["10.9.0.2"], &ports),
            service("shop/db", "db", &["10.9.0.3"], &ports),
            group("shop/beta", &json!([{"name": "beta", "headers": [{"x-beta": "yes|true"}]}])),
            tcp("shop/all", &[]),
            split("shop/s1", "b", &[("b-v1", 1_000_000), ("db", 1_000_000)], &["beta"]),
            split("shop/s2", "b", &[("b-v1", 90), ("db", 10), ("gone", 5), ("b", 0)], &[]),
            // db is a backend that a may not call.
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
        ],
    )
}

fn both_address_families_and_headless_services() -> Mesh {
    let mesh = shop("both_address_families_and_headless_services", Vec::new());
    let inputs = vec![
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1", "fd00::1"]),
        pod("shop/b1", "shop/b1", "b", &["fd00::2"]),
        pod("shop/b2", "shop/b2", "b", &["10.1.0.3", "fd00::3"]),
        pod_that("shop/db", "shop/db", "db", &[], false),
        service("shop/b", "b", &["10.9.0.1", "fd00:9::1"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        service("shop/b-pods", "b", &[], &[(8080, 8080, Http), (90, 9090, Tcp)]),
        service("shop/db", "db", &["fd00:9::2"], &[(80, 8080, Http2)]),
        mesh_config(true, false),
    ];
    Mesh { inputs, ..mesh }
}

fn several_protocols_on_one_port_and_shared_addresses() -> Mesh {
    shop(
        "several_protocols_on_one_port_and_shared_addresses",
        vec![
            service("shop/b-http", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/b-grpc", "b", &["10.9.0.2"], &[(80, 8080, Http2), (81, 8080, Tcp)]),
            service("shop/b-tcp", "b", &["10.9.0.3"], &[(80, 8080, Tcp)]),
            service("shop/b-same", "b", &["10.9.0.3"], &[(80, 8080, Http)]),
            mesh_config(true, true),
        ],
    )
}

fn services_that_keep_their_callers() -> Mesh {
    let ports = [(80, 8080, Http), (81, 8081, Http2), (90, 9090, Tcp)];
    shop(
        "services_that_keep_their_callers",
        vec![
            keeping_callers(service("shop/b", "b", &["10.9.0.1", "fd00:9::1"], &ports)),
            keeping_callers(service("shop/b-pods", "b", &[], &[(8080, 8080, Http), (9090, 9090, Tcp)])),
            service("shop/db", "db", &["10.9.0.2"], &ports),
            split("shop/s", "db", &[("db", 1), ("b", 1)], &[]),
            mesh_config(true, false),
        ],
    )
}

fn the_longest_names() -> Mesh {
    let long = "x".repeat(63);
    let account = format!("{long}/{long}.{long}.{long}");
    let pod_name = format!("{long}/p");
    let inputs = vec![
        namespace(&long),
        pod(&pod_name, &account, "a", &["10.1.0.1"]),
        service(&account, "a", &["10.9.0.1"], &[(65535, 65535, TcpServerFirst), (80, 8080, Http)]),
        mesh_config(true, true),
    ];
    Mesh { name: "the_longest_names", accounts: vec![account], pods: vec![pod_name], inputs }
}
