//! Tests IngressBackends: what of outside the mesh gets in, by which way, and that nothing else does.

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, mesh_config, namespace, pod, routes, settings};
use crate::{DENIED, SETTLE, fetch, get, outcome, start};
use serde_json::Value;
use smc_lab::{LabHandle, TcpResult};

/// A namespace of the mesh without sidecars: that of a gateway, as OSM's guides have it.
const EDGE: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: edge
  labels: {openservicemesh.io/monitored-by: smc}
  annotations: {openservicemesh.io/sidecar-injection: disabled}
";

const GATEWAY_SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: gateway, namespace: edge}
spec:
  selector: {app: gateway}
  ports: [{name: http, port: 80, targetPort: 8080}]
";

/// The web mesh, in which alice may call `web`, with a gateway and a pod that is none beside it.
fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("edge.yaml", EDGE)
        .with("gateway.yaml", &pod("edge", "gateway", "gateway"))
        .with("gateway-service.yaml", GATEWAY_SERVICE)
        .with("bystander.yaml", &pod("edge", "bystander", "bystander"))
}

/// An IngressBackend for port 8080 of `web`, with these lines of its `backends` and `sources`.
fn ingress(name: &str, protocol: &str, more: &str, sources: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: IngressBackend
metadata: {{name: {name}, namespace: servers}}
spec:
  backends: [{{name: web, port: {{number: 8080, protocol: {protocol}}}{more}}}]
  sources: [{sources}]
"
    )
}

const GATEWAY: &str = "{kind: Service, namespace: edge, name: gateway}";

/// The address of the server's port.
async fn server(lab: &LabHandle) -> String {
    let address = lab.pod_ip("servers/web-v1").await.unwrap();
    if address.is_ipv6() { format!("[{address}]:8080") } else { format!("{address}:8080") }
}

/// Sends a request over TLS from a pod, and returns the whole of what happened.
async fn over_tls(lab: &LabHandle, pod: &str, target: &str, name: &str, path: &str) -> TcpResult {
    let request = format!(r"GET {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
    let args = ["smc-lab", "tls", target, "--server-name", name, "--send", &request];
    let output = lab.exec(pod, &args).await.unwrap();
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The status of what [`over_tls`] got.
fn status(result: &TcpResult) -> String {
    let line = result.reply.as_deref().unwrap_or_default();
    line.split(' ').nth(1).map_or_else(|| format!("{result:?}"), str::to_owned)
}

async fn eventually_over_tls(
    lab: &LabHandle,
    pod: &str,
    target: &str,
    name: &str,
    path: &str,
    expected: &str,
) {
    eventually(&format!("{pod} gets {path} of {name}: {expected}"), async || {
        let found = status(&over_tls(lab, pod, target, name, path).await);
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_named_gets_in_in_clear_text_and_nothing_else_does() {
    let lab = start(&mesh()).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let target = format!("http://{}/", server(&lab).await);
    let others = ["edge/bystander", "outside/stranger", "clients/bob"];
    for pod in ["edge/gateway"].iter().chain(&others) {
        assert_eq!(get(&lab, pod, &target).await, DENIED, "{pod}, before anything is opened");
    }

    lab.apply("ingress.yaml", &ingress("web", "http", "", GATEWAY)).await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, "200").await;
    for pod in ["edge/bystander", "outside/stranger"] {
        assert_eq!(get(&lab, pod, &target).await, "403", "{pod}");
    }
    // A pod of the mesh has no other way for it: its own sidecar knows where the address leads.
    assert_eq!(get(&lab, "clients/bob", &target).await, DENIED);
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");

    // Nothing that a client says of itself counts.
    let gateway = lab.pod_ip("edge/gateway").await.unwrap();
    for header in ["x-forwarded-for", "x-real-ip", "forwarded", "x-envoy-external-address"] {
        let said = format!("{header}: {}{gateway}", if header == "forwarded" { "for=" } else { "" });
        let answer = fetch(&lab, "edge/bystander", &["--url", &target, "-H", &said]).await;
        assert_eq!(outcome(&answer), "403", "{said}");
    }
    // What the gateway says of its client passes, and what it says of an identity does not.
    let args = [
        &["--url", &target, "-H", "x-forwarded-for: 203.0.113.7", "-H", "x-forwarded-proto: https"][..],
        &["-H", "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/clients/sa/alice"],
        &["-H", "x-envoy-retry-on: 5xx", "-H", "host: shop.example"],
    ];
    let answer = fetch(&lab, "edge/gateway", &args.concat()).await;
    let seen = |name: &str| answer.body["headers"][name].clone();
    assert_eq!(seen("x-forwarded-for"), "203.0.113.7", "{answer:?}");
    assert_eq!(seen("x-forwarded-proto"), "https", "{answer:?}");
    assert_eq!(seen("host"), "shop.example", "{answer:?}");
    assert_eq!(seen("x-forwarded-client-cert"), Value::Null, "{answer:?}");
    assert_eq!(seen("x-envoy-retry-on"), Value::Null, "{answer:?}");

    // Another port of the pod, and another pod that the object does not name, stay closed.
    let address = lab.pod_ip("clients/alice").await.unwrap();
    assert_eq!(get(&lab, "edge/gateway", &format!("http://{address}:8080/")).await, DENIED);
    let lines = server(&lab).await.replace("8080", "7000");
    assert_eq!(crate::hello(&lab, "edge/gateway", &lines).await, DENIED);

    lab.remove("ingress.yaml").await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, DENIED).await;
    lab.stop().await.unwrap();
}

/// A connection that is open stays open while gateways come and go, and requests on it are judged by what
/// holds.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_come_and_go_end_no_connection() {
    let mesh = mesh().with("ingress.yaml", &ingress("web", "http", "", GATEWAY));
    let lab = start(&mesh).await;
    let target = format!("http://{}/", server(&lab).await);
    eventually_get(&lab, "edge/gateway", &target, "200").await;
    let args = ["--url", &target, "--keep-alive", "--count", "100000", "--interval", "10ms"];
    let mut calls = lab.call("edge/gateway", &args);
    calls.more(10, SETTLE).await.unwrap();
    for round in 0..3 {
        lab.apply("gateway-2.yaml", &pod("edge", "gateway-2", "gateway")).await.unwrap();
        lab.wait_ready("edge/gateway-2", SETTLE).await.unwrap();
        eventually_get(&lab, "edge/gateway-2", &target, "200").await;
        lab.remove("gateway-2.yaml").await.unwrap();
        lab.wait_gone("edge/gateway-2", SETTLE).await.unwrap();
        // So does an edit of the object, and of another one.
        let range = format!("{GATEWAY}, {{kind: IPRange, name: 192.0.2.{round}/32}}");
        lab.apply("ingress.yaml", &ingress("web", "http", "", &range)).await.unwrap();
        lab.apply("other.yaml", &ingress("other", "http", "", &range)).await.unwrap();
    }
    calls.more(50, SETTLE).await.unwrap();
    let results = calls.stop();
    let failed: Vec<_> = results.iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(results.iter().all(|result| result.connection == 1), "the gateway had to connect again");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_an_ingress_are_those_that_its_groups_match() {
    let shop = "    - {name: buy, pathRegex: /buy, methods: [GET], headers: [{host: shop\\.example}]}";
    let object = ingress("web", "http", "", GATEWAY);
    let matching = |name: &str| format!("{object}  matches: [{{kind: HTTPRouteGroup, name: {name}}}]\n");
    let mesh = mesh().with("shop.yaml", &routes("shop", shop)).with("ingress.yaml", &matching("shop"));
    let lab = start(&mesh).await;
    let base = format!("http://{}", server(&lab).await);
    let buy = format!("{base}/buy");
    eventually("the request that matches gets in", async || {
        let answer = fetch(&lab, "edge/gateway", &["--url", &buy, "-H", "host: shop.example"]).await;
        if outcome(&answer) == "200" { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    for (path, host) in
        [("/buy", "other.example"), ("/sell", "shop.example"), ("/buy/../sell", "shop.example")]
    {
        let (url, host) = (format!("{base}{path}"), format!("host: {host}"));
        let answer = fetch(&lab, "edge/gateway", &["--url", &url, "-H", &host]).await;
        assert_eq!(outcome(&answer), "403", "{path} of {host}");
    }
    // A group that is not there allows nothing.
    lab.apply("ingress.yaml", &matching("gone")).await.unwrap();
    eventually("the request that matched is refused", async || {
        let answer = fetch(&lab, "edge/gateway", &["--url", &buy, "-H", "host: shop.example"]).await;
        if outcome(&answer) == "403" { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    let problems = lab.smc(&["mesh", "problems"]).await.unwrap();
    assert!(problems.stdout.contains("names HTTPRouteGroup servers/gone"), "{problems:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_over_tls_is_judged_by_address_certificate_and_name() {
    let skip = |names: &str| {
        ingress("web", "https", &format!(", tls: {{skipClientCertValidation: true{names}}}"), GATEWAY)
    };
    let lab = start(&mesh().with("ingress.yaml", &skip(""))).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let target = server(&lab).await;
    eventually_over_tls(&lab, "edge/gateway", &target, "shop.example", "/", "200").await;
    assert_eq!(status(&over_tls(&lab, "edge/bystander", &target, "shop.example", "/").await), "403");
    // Clear text is another protocol, which is not opened.
    assert_eq!(get(&lab, "edge/gateway", &format!("http://{target}/")).await, DENIED);
    // By the name that sidecars use, a client has to be one.
    let as_sidecar = over_tls(&lab, "edge/gateway", &target, "web.servers.svc.cluster.local", "/").await;
    assert!(
        as_sidecar.error.as_deref().is_some_and(|error| error.contains("CertificateRequired")),
        "{as_sidecar:?}"
    );
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");

    lab.apply("ingress.yaml", &skip(", sniHosts: [shop.example, '*.shop.example']")).await.unwrap();
    eventually_over_tls(&lab, "edge/gateway", &target, "other.example", "/", "403").await;
    for (name, expected) in [
        ("shop.example", "200"),
        ("SHOP.example", "200"),
        ("a.shop.example", "200"),
        ("xshop.example", "403"),
    ] {
        assert_eq!(status(&over_tls(&lab, "edge/gateway", &target, name, "/").await), expected, "{name}");
    }

    // Beside a backend that wants certificates, one that does without them still does.
    let principal = format!("{GATEWAY}, {{kind: AuthenticatedPrincipal, name: gateway.example}}");
    lab.apply("other.yaml", &ingress("other", "https", "", &principal)).await.unwrap();
    eventually("the other one is in force", async || {
        let dump = lab.envoy_admin("servers/web-v1", "/config_dump?resource=dynamic_active_secrets").await;
        let dump = dump.map_err(|error| error.chain())?;
        if dump.body.contains("root-cert-for-optional-ingress:8080") {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    for (pod, name, expected) in [
        ("edge/gateway", "shop.example", "200"),
        ("edge/gateway", "other.example", "403"),
        ("edge/bystander", "shop.example", "403"),
    ] {
        assert_eq!(status(&over_tls(&lab, pod, &target, name, "/").await), expected, "{pod} {name}");
    }
    lab.remove("other.yaml").await.unwrap();

    // With a principal, a client has to show a certificate of the mesh's CA for it.
    lab.apply("ingress.yaml", &ingress("web", "https", "", &principal)).await.unwrap();
    eventually("a client without a certificate is refused", async || {
        let result = over_tls(&lab, "edge/gateway", &target, "shop.example", "/").await;
        let refused = result.error.as_deref().is_some_and(|error| error.contains("CertificateRequired"));
        if refused { Ok(()) } else { Err(format!("{result:?}")) }
    })
    .await;
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");
    lab.stop().await.unwrap();
}

/// In permissive mode, too, an ingress is let in where an object says so, and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn permissive_mode_lets_no_ingress_in_and_the_flag_closes_all() {
    let mesh = mesh().with("mesh-config.yaml", &mesh_config(true));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/bob", "http://web.servers/", "200").await;
    let target = format!("http://{}/", server(&lab).await);
    assert_eq!(get(&lab, "edge/gateway", &target).await, DENIED);
    lab.apply("ingress.yaml", &ingress("web", "http", "", GATEWAY)).await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, "200").await;
    assert_eq!(get(&lab, "edge/bystander", &target).await, "403");
    let ignored = settings("featureFlags: {enableIngressBackendPolicy: false}");
    lab.apply("mesh-config.yaml", &ignored).await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, DENIED).await;
    // A namespace that leaves the mesh takes its gateways with it.
    lab.apply("mesh-config.yaml", &mesh_config(false)).await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, "200").await;
    lab.apply("edge.yaml", &namespace("edge", false)).await.unwrap();
    eventually_get(&lab, "edge/gateway", &target, "403").await;
    lab.stop().await.unwrap();
}

/// The answer to a request that `edge/bystander` sends to a gateway, as a client of the gateway.
async fn by_gateway(lab: &LabHandle, port: u16) -> (String, Value) {
    let nginx = lab.pod_ip("edge/nginx").await.unwrap();
    let url = format!("http://{nginx}:{port}/");
    let args = ["--url", &url, "-H", "host: shop.example"];
    let answer = fetch(lab, "edge/bystander", &args).await;
    (outcome(&answer), answer.body["headers"].clone())
}

/// As OSM's guide has it for ingress-nginx, of which nginx is what connects: in clear text, and over TLS with
/// the mesh's certificate verified by the name of the identity behind the backend.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_brings_requests_in_and_verifies_where_it_brings_them() {
    #[expect(clippy::disallowed_methods, reason = "where make put nginx")]
    let nginx = std::env::var("SMC_NGINX").expect("SMC_NGINX names an nginx (make sets it)");
    let lab = start(&mesh()).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(path, open).unwrap();
    let roots = lab.smc(&["ca", "roots"]).await.unwrap();
    assert!(roots.stdout.starts_with("-----BEGIN CERTIFICATE-----"), "{roots:?}");
    std::fs::write(directory.path().join("roots.pem"), &roots.stdout).unwrap();
    // A pod's user may not read where it was.
    std::fs::copy(nginx, directory.path().join("nginx")).unwrap();
    let target = server(&lab).await;
    // Each on a port of its own: clear text, the right name, the name of another identity.
    let tls = |name: &str| {
        format!(
            "proxy_pass https://{target}; proxy_ssl_verify on; proxy_ssl_trusted_certificate {path}/roots.pem; \
             proxy_ssl_verify_depth 2; proxy_ssl_name {name};"
        )
    };
    let server = |port: u16, to: &str| {
        format!(
            "server {{ listen {port}; location / {{ {to} proxy_http_version 1.1; proxy_set_header host $host; \
                 proxy_set_header x-forwarded-for $remote_addr; }} }}\n"
        )
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {path}/{name};\n")).concat();
    let config = format!(
        "daemon off;\npid {path}/pid;\nerror_log stderr info;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{}{}{}}}\n",
        server(8001, &format!("proxy_pass http://{target};")),
        server(8002, &tls("web-v1.servers.cluster.local")),
        server(8003, &tls("alice.clients.cluster.local")),
    );
    std::fs::write(directory.path().join("nginx.conf"), config).unwrap();
    let command = format!("[{path}/nginx, -p, {path}, -c, {path}/nginx.conf, -e, stderr]");
    let pod = pod("edge", "nginx", "gateway");
    let (before, after) = pod.split_once("      command: ").unwrap();
    let after = after.split_once('\n').unwrap().1.replace("8080", "8001");
    lab.apply("nginx.yaml", &format!("{before}      command: {command}\n{after}")).await.unwrap();
    lab.wait_ready("edge/nginx", SETTLE).await.unwrap();
    assert_ne!(by_gateway(&lab, 8001).await.0, "200", "nothing is opened yet");

    lab.apply("ingress.yaml", &ingress("web", "http", "", GATEWAY)).await.unwrap();
    eventually("nginx gets in in clear text", async || {
        let (status, headers) = by_gateway(&lab, 8001).await;
        if status != "200" {
            return Err(status);
        }
        let client = lab.pod_ip("edge/bystander").await.unwrap().to_string();
        assert_eq!((&headers["host"], &headers["x-forwarded-for"]), (&"shop.example".into(), &client.into()));
        Ok(())
    })
    .await;
    let https = ingress("web", "https", ", tls: {skipClientCertValidation: true}", GATEWAY);
    lab.apply("ingress.yaml", &https).await.unwrap();
    eventually("nginx gets in over TLS", async || {
        let (status, _) = by_gateway(&lab, 8002).await;
        if status == "200" { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(by_gateway(&lab, 8003).await.0, "502", "the server is not who nginx asked for");
    assert_ne!(by_gateway(&lab, 8001).await.0, "200", "clear text is not opened any more");
    lab.stop().await.unwrap();
}
