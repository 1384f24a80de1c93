//! The port of probes.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::overload::v3::{OverloadManager, ResourceMonitor, resource_monitor};
use envoy_types::pb::envoy::extensions::resource_monitors::downstream_connections::v3::DownstreamConnectionsConfig;
use envoy_types::util::pack_any;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::sidecar::{App, PROBES, Sidecar, kubelets};

/// A bootstrap with a low bound on all connections, as `--sidecar-connections` makes it.
fn few_connections(_: Ipv4Addr, _: u16, _: &Path) -> Bootstrap {
    let config = DownstreamConnectionsConfig { max_active_downstream_connections: 40 };
    let monitor = ResourceMonitor {
        name: "envoy.resource_monitors.global_downstream_max_connections".to_owned(),
        config_type: Some(resource_monitor::ConfigType::TypedConfig(pack_any(config))),
    };
    let manager = OverloadManager { resource_monitors: vec![monitor], ..OverloadManager::default() };
    Bootstrap { overload_manager: Some(manager), ..Bootstrap::default() }
}

/// A Pod with a probe of each kind that is passed on, a hook, and one that Envoy checks.
fn pod(app: &App) -> Value {
    let headers = json!([{"name": "X-Probe", "value": "100 %"}, {"name": "Host", "value": "shop.example"}]);
    json!({"metadata": {"name": "a"}, "spec": {"containers": [{
        "name": "a", "image": "a",
        "livenessProbe": {"httpGet": {"port": app.port, "path": "/healthz?full=1", "httpHeaders": headers}},
        "readinessProbe": {"httpGet": {"port": app.port, "path": "/healthz?full=1"}},
        "startupProbe": {"tcpSocket": {"port": app.port}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"httpGet": {"port": app.port, "path": "/stop"}}},
    }]}})
}

fn probes(sidecar: &Sidecar) -> [&Value; 3] {
    let container = &sidecar.pod["spec"]["containers"][0];
    [&container["livenessProbe"], &container["readinessProbe"], &container["lifecycle"]["preStop"]]
}

/// The kubelet follows a redirect that has a target, and takes one without for an answer (`net/http`, and
/// the kubelet's `pkg/probe/http`).
#[tokio::test]
async fn a_probe_that_is_redirected_is_answered_and_leads_nowhere() {
    let app = App::start().await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{
        "name": "a", "image": "a", "readinessProbe": {"httpGet": {"port": app.port, "path": "/moved"}},
    }]}});
    let sidecar = Sidecar::start(&pod, few_connections).await;
    let get = &probes(&sidecar)[1]["httpGet"];
    let answer = sidecar.answer(PROBES, &kubelets(sidecar.address, get)).await.unwrap().to_lowercase();
    assert!(answer.starts_with("http/1.1 302 ") && !answer.contains("location"), "{answer}");
    assert_eq!(app.heard().await.len(), 1);
}

/// Its static listeners are there after Envoy's own patience, and so are the probes of a pod that runs.
#[tokio::test]
async fn a_sidecar_is_ready_once_a_controller_has_answered_it() {
    let app = App::start().await;
    let sidecar = Sidecar::start_without_controller(&pod(&app), few_connections).await;
    for _ in 0..10 {
        assert_eq!(sidecar.ready().await, "503");
        assert_eq!(sidecar.probe(probes(&sidecar)[1]).await, "200", "the application's own");
    }
    sidecar.configure().await;
}

#[tokio::test]
async fn who_does_not_know_a_path_gets_nothing_from_the_port_of_probes() {
    let app = App::start().await;
    let sidecar = Sidecar::start(&pod(&app), few_connections).await;
    for probe in probes(&sidecar) {
        assert_eq!(sidecar.probe(probe).await, "200", "{probe}");
    }
    app.heard().await;
    let known = sidecar.paths();
    assert!(known.len() >= 5, "{known:?}");
    let mut tried = vec!["/".to_owned(), "/ready".to_owned(), "/stats".to_owned(), "*".to_owned()];
    for path in &known {
        let (token, rest) = path.trim_start_matches('/').split_once('/').unwrap();
        let other = format!("{}0", &token[..token.len() - 1]);
        tried.extend([
            format!("/{rest}"),
            format!("//{rest}"),
            format!("/{other}/{rest}"),
            format!("/{}/{rest}", token.to_uppercase()),
            format!("/{}/{rest}", &token[1..]),
            format!("/{token}"),
            format!("/{token}/"),
            format!("/{token}/{rest}/"),
            format!("/{token}/{rest}%20"),
            format!("/{token}/{rest}/../quitquitquit"),
            format!("/{token}/quitquitquit"),
            format!("/{token}/http/{}/", app.port),
            format!("/{token}/http/{}/other", app.port),
            format!("/{token}/http/{}/stop?", app.port),
            format!("/{token}/9/http/{}/stop", app.port),
            // As the former version had it.
            format!("/http/{}/stop", app.port),
            format!("/http/{}/healthz?full=1", app.port),
            format!("/tcp/{}", app.port),
        ]);
    }
    for path in tried.iter().filter(|path| !known.contains(*path)) {
        let answer = sidecar.ask(PROBES, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert!(["404", "400"].contains(&&*answer), "{path}: {answer}");
    }
    assert_eq!(app.heard().await, Vec::<String>::new());
}

/// Who can read the Pod knows the paths, and can ask what the kubelet asks.
#[tokio::test]
async fn who_knows_a_path_passes_nothing_of_a_request_to_the_application() {
    let app = App::start().await;
    let sidecar = Sidecar::start(&pod(&app), few_connections).await;
    let own = format!("{}:{PROBES}", sidecar.address);
    for (probe, target, host, declared) in [
        (0, "/healthz?full=1", "shop.example", "x-probe: 100 %\r\n"),
        (1, "/healthz?full=1", &*own, ""),
        (2, "/stop", &*own, ""),
    ] {
        let get = &probes(&sidecar)[probe]["httpGet"];
        let expected = format!(
            "GET {target} HTTP/1.1\r\nhost: {host}\r\n{declared}user-agent: kube-probe/smc\r\naccept: */*\r\n\r\n"
        );
        assert_eq!(sidecar.ask(PROBES, &kubelets(sidecar.address, get)).await, "200");
        let heard = app.heard().await;
        assert_eq!(heard, std::slice::from_ref(&expected), "the kubelet's own");
        let path = get["path"].as_str().unwrap();
        for request in strange(path) {
            let answer = sidecar.ask(PROBES, &request).await;
            for heard in app.heard().await {
                assert_eq!(heard, expected, "{request:?}: {answer}");
            }
        }
        for method in
            ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", "CONNECT"]
        {
            sidecar
                .ask(PROBES, &format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
                .await;
            assert_eq!(app.heard().await, Vec::<String>::new(), "{method}");
        }
        for body in [
            "Content-Length: 1\r\n\r\nx",
            "Content-Length: 0\r\n\r\n",
            "Content-Length: 35\r\n\r\nDELETE /all HTTP/1.1\r\nHost: a\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: Chunked\r\nx-smc-body:\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "Content-Length: 1\r\nConnection: content-length\r\n\r\nx",
            "Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
        ] {
            let answer = sidecar.ask(PROBES, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{body}")).await;
            assert_ne!(answer, "200", "{body:?}");
            assert_eq!(app.heard().await, Vec::<String>::new(), "{body:?}");
        }
    }
}

/// Requests that say more than the kubelet's.
fn strange(path: &str) -> Vec<String> {
    let headers = [
        "X-HTTP-Method-Override: DELETE",
        "X-HTTP-Method: DELETE",
        "X-Method-Override: DELETE",
        "X-Original-URL: /admin",
        "X-Rewrite-URL: /admin",
        "X-Original-Method: DELETE",
        "Authorization: Basic YTpi",
        "Proxy-Authorization: Basic YTpi",
        "Cookie: session=1",
        "X-Forwarded-User: root",
        "X-Remote-User: root",
        "Remote-User: root",
        "Forwarded: for=127.0.0.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "X-Forwarded-Host: evil",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Port: 1",
        "X-Forwarded-Prefix: /x",
        "X-Forwarded-Client-Cert: By=a",
        "Via: 1.1 a",
        "X-Probe: 2",
        "x-probe: 100 %, 2",
        "User-Agent: evil",
        "Accept: text/evil",
        "Accept-Encoding: gzip",
        "Referer: http://a/",
        "Origin: http://a",
        "Range: bytes=0-1",
        "If-None-Match: *",
        "X-Request-Id: 1",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "grpc-timeout: 1n",
        "TE: trailers",
        "Trailer: a",
        "Keep-Alive: 1",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA",
        "Upgrade: websocket\r\nConnection: Upgrade",
        "Connection: host, x-probe",
        "Expect: 100-continue",
        "x-envoy-original-path: /admin",
        "x-envoy-upstream-rq-timeout-ms: 1",
        "x-envoy-retry-on: 5xx",
        "x-envoy-decorator-operation: a",
        "x-envoy-original-host: a",
        "x-smc-body: 0",
        "a:b",
        "a: ",
        "Host: evil",
        "Content-Type: text/evil",
        "Content-Encoding: gzip",
        "Max-Forwards: 0",
        "X-Anything: 1",
    ];
    let one = headers.iter().map(|header| format!("GET {path} HTTP/1.1\r\nHost: evil\r\n{header}\r\n\r\n"));
    let all = headers.iter().filter(|header| !header.contains("Upgrade") && !header.starts_with("Host"));
    let all = all.copied().collect::<Vec<_>>().join("\r\n");
    let more = [
        format!("GET {path} HTTP/1.1\r\nHost: evil\r\n{all}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: evil\r\n\r\nDELETE /all HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET http://evil{path} HTTP/1.1\r\nHost: evil\r\n\r\n"),
        format!("GET {path} HTTP/1.0\r\nX-Anything: 1\r\n\r\n"),
        format!("GET {path}#x HTTP/1.1\r\nHost: evil\r\n\r\n"),
    ];
    one.chain(more).collect()
}

/// The sockets are opened again as soon as they are closed. Each says another part of a request, or none.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_silent_sockets_fail_no_probe() {
    let app = App::start().await;
    let sidecar = Sidecar::start(&pod(&app), few_connections).await;
    let mut silent = JoinSet::new();
    for number in 0..100 {
        let said = [
            "",
            "GET",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
        ][number % 4];
        let address = sidecar.address;
        silent.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect((address, PROBES)).await else { continue };
                let _ = stream.write_all(said.as_bytes()).await;
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        });
    }
    sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    let mut failed = Vec::new();
    for number in 0_u32..20 {
        for probe in probes(&sidecar) {
            let answer = sidecar.probe(probe).await;
            if answer != "200" {
                failed.push((number, answer));
            }
        }
        let answer = sidecar.ready().await;
        if answer != "200" {
            failed.push((number, answer));
        }
        sleep_until(begun + Duration::from_millis(500) * (number + 1)).await;
    }
    silent.shutdown().await;
    assert_eq!(failed, []);
}
