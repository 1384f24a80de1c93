//! Tests IngressBackends: what of outside the mesh gets in, by which way, and that nothing else does.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, mesh_config, namespace, pod, routes, settings};
use crate::{DENIED, SETTLE, fetch, get, outcome, start, start_with};
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
pub(crate) fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("edge.yaml", EDGE)
        .with("gateway.yaml", &pod("edge", "gateway", "gateway"))
        .with("gateway-service.yaml", GATEWAY_SERVICE)
        .with("bystander.yaml", &pod("edge", "bystander", "bystander"))
}

/// An IngressBackend for port 8080 of `web`, with these lines of its `backends` and `sources`.
pub(crate) fn ingress(name: &str, protocol: &str, more: &str, sources: &str) -> String {
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

pub(crate) const GATEWAY: &str = "{kind: Service, namespace: edge, name: gateway}";

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

    // What the sidecar does is what the command says.
    let bystander = lab.pod_ip("edge/bystander").await.unwrap().to_string();
    for (flags, status, words) in [
        (&["--from", "edge/gateway"][..], 0, "IngressBackend servers/web lets it in, with all requests"),
        (&["--address", &bystander], 79, "has {bystander} not among its sources"),
        (&["--from", "edge/gateway", "--tls"], 79, "the port is opened in clear text (protocol http)"),
        (&["--from", "edge/nobody"], 79, "has no endpoints that the mesh knows"),
    ] {
        let verify = ["ingress", "verify", "--to", "servers/web-v1", "--port", "8080"];
        let said = lab.smc(&[&verify[..], flags].concat()).await.unwrap();
        let words = words.replace("{bystander}", &bystander);
        assert!(said.status == status && said.stdout.contains(&words), "{flags:?}: {said:?}");
    }
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
    let routes = lab.smc(&["ingress", "routes", "servers/web"]).await.unwrap();
    assert!(routes.stdout.contains("shop\\.example") && routes.stdout.contains("GET"), "{routes:?}");
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

/// A gateway connects over whatever family it likes, and brings in calls of gRPC like requests.
#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_brings_in_grpc_and_comes_over_both_families() {
    let grpc = ingress("grpc", "http", "", GATEWAY).replace("8080", "9090");
    let mesh = mesh().with("ingress.yaml", &ingress("web", "http", "", GATEWAY)).with("grpc.yaml", &grpc);
    let lab = start_with(&mesh, |options| options.dual_stack = true).await;
    let addresses = lab.pod("servers/web-v1").await.unwrap().addresses;
    assert_eq!(addresses.len(), 2);
    for address in addresses.iter().map(|address| SocketAddr::new(*address, 0)) {
        let at = |port: u16| SocketAddr::new(address.ip(), port);
        let url = format!("http://{}/", at(8080));
        eventually_get(&lab, "edge/gateway", &url, "200").await;
        assert_eq!(get(&lab, "edge/bystander", &url).await, "403", "{url}");
        let say = format!("http://{}/echo.Echo/Say", at(9090));
        for (pod, status) in [("edge/gateway", "0"), ("edge/bystander", "7")] {
            let answer = fetch(&lab, pod, &["--grpc", "--url", &say, "--body", "hello"]).await;
            let found = answer.headers.get("grpc-status").or(answer.trailers.get("grpc-status"));
            assert_eq!(found.map(String::as_str), Some(status), "{pod}: {answer:?}");
        }
    }
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

/// Starts nginx as the pod `edge/nginx`, a gateway: each port brings requests in by these directives. Its
/// files are in `directory`.
async fn start_nginx(lab: &LabHandle, directory: &Path, ports: &[(u16, String)]) {
    #[expect(clippy::disallowed_methods, reason = "where make put nginx")]
    let nginx = std::env::var("SMC_NGINX").expect("SMC_NGINX names an nginx (make sets it)");
    // A pod's user may not read where it was, and has to read what `smc ca gateway` wrote.
    std::fs::copy(nginx, directory.join("nginx")).unwrap();
    std::fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    for file in ["tls.key", "tls.crt", "ca.crt"].map(|file| directory.join(file)) {
        if file.exists() {
            std::fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        }
    }
    let path = directory.to_str().unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {path}/{name};\n")).concat();
    let servers = ports.iter().map(|(port, to)| {
        format!(
            "server {{ listen {port}; location / {{ {to} proxy_http_version 1.1; proxy_set_header host $host; \
                 proxy_set_header x-forwarded-for $remote_addr; }} }}\n"
        )
    });
    let servers: String = servers.collect();
    let config = format!(
        "daemon off;\npid {path}/pid;\nerror_log stderr info;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{servers}}}\n",
    );
    std::fs::write(directory.join("nginx.conf"), config).unwrap();
    let command = format!("[{path}/nginx, -p, {path}, -c, {path}/nginx.conf, -e, stderr]");
    let pod = pod("edge", "nginx", "gateway");
    let (before, after) = pod.split_once("      command: ").unwrap();
    let after = after.split_once('\n').unwrap().1.replace("8080", "8001");
    lab.apply("nginx.yaml", &format!("{before}      command: {command}\n{after}")).await.unwrap();
    lab.wait_ready("edge/nginx", SETTLE).await.unwrap();
}

/// nginx' directives for a backend over TLS that is verified by this name. Its ports would share the sessions
/// of a backend, and what they showed there.
fn verified(directory: &Path, target: &str, name: &str, roots: &str) -> String {
    let path = directory.display();
    format!(
        "proxy_pass https://{target}; proxy_ssl_verify on; proxy_ssl_trusted_certificate {path}/{roots}; \
         proxy_ssl_verify_depth 2; proxy_ssl_name {name}; proxy_ssl_session_reuse off;"
    )
}

async fn eventually_by_gateway(lab: &LabHandle, port: u16, sentence: &str) {
    eventually(sentence, async || {
        let (status, _) = by_gateway(lab, port).await;
        if status == "200" { Ok(()) } else { Err(status) }
    })
    .await;
}

/// As OSM's guide has it for ingress-nginx, of which nginx is what connects: in clear text, and over TLS with
/// the mesh's certificate verified by the name of the identity behind the backend.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_brings_requests_in_and_verifies_where_it_brings_them() {
    let lab = start(&mesh()).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let directory = tempfile::tempdir().unwrap();
    let roots = lab.smc(&["ca", "roots"]).await.unwrap();
    assert!(roots.stdout.starts_with("-----BEGIN CERTIFICATE-----"), "{roots:?}");
    std::fs::write(directory.path().join("roots.pem"), &roots.stdout).unwrap();
    let target = server(&lab).await;
    // Each on a port of its own: clear text, the right name, the name of another identity.
    let tls = |name: &str| verified(directory.path(), &target, name, "roots.pem");
    let ports = [
        (8001, format!("proxy_pass http://{target};")),
        (8002, tls("web-v1.servers.cluster.local")),
        (8003, tls("alice.clients.cluster.local")),
    ];
    start_nginx(&lab, directory.path(), &ports).await;
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
    eventually_by_gateway(&lab, 8002, "nginx gets in over TLS").await;
    assert_eq!(by_gateway(&lab, 8003).await.0, "502", "the server is not who nginx asked for");
    assert_ne!(by_gateway(&lab, 8001).await.0, "200", "clear text is not opened any more");
    lab.stop().await.unwrap();
}

/// As OSM's guide has it with mutual TLS: the certificate that MeshConfig asks for opens what names it, and
/// nothing else of the mesh.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_shows_the_certificate_that_mesh_config_asks_for() {
    let asks = |name: &str| {
        settings(&format!(
            "certificate: {{ingressGateway: {{subjectAltNames: [{name}], validityDuration: 24h, \
             secret: {{name: gateway, namespace: edge}}}}}}"
        ))
    };
    let lab = start(&mesh().with("mesh-config.yaml", &asks("nginx.edge.cluster.local"))).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let write = async || {
        let output = lab.smc(&["ca", "gateway", "--dir", path]).await.map_err(|error| error.chain())?;
        if output.status == 0 { Ok(()) } else { Err(output.stderr) }
    };
    eventually("there is a certificate", write).await;
    for (file, mode) in [("tls.key", 0o600), ("tls.crt", 0o600), ("ca.crt", 0o600)] {
        let found = std::fs::metadata(directory.path().join(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    let target = server(&lab).await;
    let own = "web-v1.servers.cluster.local";
    let tls = verified(directory.path(), &target, own, "ca.crt");
    let shown =
        format!("{tls} proxy_ssl_certificate {path}/tls.crt; proxy_ssl_certificate_key {path}/tls.key;");
    // With its certificate, without one, and with it where sidecars are served.
    let as_sidecar = shown.replace(own, "web.servers.svc.cluster.local") + " proxy_ssl_server_name on;";
    let as_sidecar = as_sidecar.replace("proxy_ssl_verify on", "proxy_ssl_verify off");
    let ports = [(8001, shown), (8002, tls.clone()), (8003, as_sidecar)];
    start_nginx(&lab, directory.path(), &ports).await;

    let principal = |name: &str| format!("{GATEWAY}, {{kind: AuthenticatedPrincipal, name: {name}}}");
    let opened = |name: &str| ingress("web", "https", "", &principal(name));
    lab.apply("ingress.yaml", &opened("nginx.edge.cluster.local")).await.unwrap();
    eventually("nginx gets in with its certificate", async || {
        let (status, headers) = by_gateway(&lab, 8001).await;
        if status != "200" {
            return Err(status);
        }
        let seen = headers["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned();
        assert!(seen.contains("DNS=nginx.edge.cluster.local") && !seen.contains("URI=spiffe"), "{seen}");
        Ok(())
    })
    .await;
    assert_ne!(by_gateway(&lab, 8002).await.0, "200", "without a certificate");
    assert_eq!(by_gateway(&lab, 8003).await.0, "502", "to a sidecar it is no sidecar");
    // Another principal, and another certificate.
    lab.apply("ingress.yaml", &opened("other.edge.cluster.local")).await.unwrap();
    eventually("nginx is not the one that is named", async || {
        let (status, _) = by_gateway(&lab, 8001).await;
        if status == "200" { Err(status) } else { Ok(()) }
    })
    .await;
    lab.apply("mesh-config.yaml", &asks("other.edge.cluster.local")).await.unwrap();
    eventually("the certificate has the other name", async || {
        write().await?;
        let status = lab.smc(&["ca", "status"]).await.map_err(|error| error.chain())?;
        assert!(status.stdout.contains("gateway"), "{status:?}");
        lab.remove("nginx.yaml").await.unwrap();
        lab.wait_gone("edge/nginx", SETTLE).await.unwrap();
        start_nginx(&lab, directory.path(), &ports).await;
        let (status, _) = by_gateway(&lab, 8001).await;
        if status == "200" { Ok(()) } else { Err(status) }
    })
    .await;
    lab.apply("mesh-config.yaml", &settings("traffic: {enableEgress: false}")).await.unwrap();
    eventually("there is none any more", async || match write().await {
        Ok(()) => Err("it is still there".to_owned()),
        Err(error) if error.contains("asks for no certificate") => Ok(()),
        Err(error) => panic!("{error}"),
    })
    .await;
    lab.stop().await.unwrap();
}
