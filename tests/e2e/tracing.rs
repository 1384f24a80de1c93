//! Tests `tracing`: the spans that sidecars report, whose decision they heed, and what a collector that is
//! away means.

use std::net::SocketAddr;

use serde_json::Value;
use smc_lab::{FetchResult, LabHandle};

use crate::eventually::eventually;
use crate::ingress::{self, GATEWAY};
use crate::mesh::{Mesh, allow, any_route, pod, routes, service, settings, tcp_route};
use crate::{fetch, hello, outcome, start};

/// A trace that an application has begun.
const BEGUN: &str = "0af7651916cd43dd8448eb211c80319c";

/// A MeshConfig with these fields of the collector's, beside where it is.
fn tracing(fields: &str) -> String {
    settings(&format!(
        "observability: {{tracing: {{enable: true, address: jaeger.outside.svc, port: 80, {fields}}}}}"
    ))
}

/// The mesh, with `jaeger.outside`, which takes spans.
fn collected(mesh: Mesh) -> Mesh {
    mesh.with("pod-jaeger.yaml", &pod("outside", "jaeger", "jaeger"))
        .with("service-jaeger.yaml", &service("outside", "jaeger", "app: jaeger"))
}

/// Alice may call the servers, bob may get one path.
fn mesh() -> Mesh {
    collected(Mesh::web())
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with(
            "granted.yaml",
            &routes("granted", "    - {name: granted, pathRegex: '/granted$', methods: [GET]}"),
        )
        .with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/granted"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
}

async fn call(lab: &LabHandle, pod: &str, path: &str, headers: &[&str]) -> FetchResult {
    let url = format!("http://web-v1.servers{path}");
    let headers = headers.iter().flat_map(|header| ["-H", header]);
    fetch(lab, pod, &["--url", &url].into_iter().chain(headers).collect::<Vec<_>>()).await
}

/// The spans of requests for this path so far.
fn spans(lab: &LabHandle, path: &str) -> Vec<Value> {
    let log = lab.logs("outside/jaeger", "echo").unwrap();
    let spans = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    spans.filter(|span| span["tags"]["http.url"].as_str().is_some_and(|url| url.ends_with(path))).collect()
}

/// Waits until both sidecars have reported a request; returns the caller's span and the server's.
async fn both(lab: &LabHandle, path: &str) -> (Value, Value) {
    let of = |kind: &str| spans(lab, path).into_iter().find(|span| span["kind"] == kind);
    eventually(&format!("two spans of {path}"), async || {
        let both = of("CLIENT").is_some() && of("SERVER").is_some();
        if both { Ok(()) } else { Err(format!("{:?}", spans(lab, path))) }
    })
    .await;
    (of("CLIENT").unwrap(), of("SERVER").unwrap())
}

/// Waits until requests are traced, or are not: the application sees it by the headers.
async fn eventually_traced(lab: &LabHandle, traced: bool) {
    eventually(&format!("traced: {traced}"), async || {
        let answer = call(lab, "clients/alice", "/probe", &[]).await;
        let has = |name: &str| answer.body["headers"][name].is_string();
        let found = (outcome(&answer), has("x-b3-traceid"), has("traceparent"));
        if found == ("200".to_owned(), traced, traced) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_one_trace_through_both_sidecars() {
    let lab = start(&mesh().with("mesh-config.yaml", &tracing(""))).await;
    eventually_traced(&lab, true).await;
    let answer = call(&lab, "clients/alice", "/first?a=b", &[]).await;
    let (client, server) = both(&lab, "/first?a=b").await;
    assert_eq!((&server["traceId"], &server["parentId"]), (&client["traceId"], &client["id"]));
    assert_eq!(answer.body["headers"]["x-b3-traceid"], server["traceId"], "the application goes on with it");
    for (span, name) in [(&client, "alice.clients"), (&server, "web-v1.servers")] {
        let service = span["localEndpoint"]["serviceName"].as_str().unwrap();
        assert!(service.starts_with(name), "{span}");
        assert_eq!(span["tags"]["http.status_code"], "200", "{span}");
    }

    // What an application calls its request stays, byte for byte.
    let id = "7d9a2a1c-5d0e-4b3f-8a57-0c2d5a6b7c8d";
    let answer = call(&lab, "clients/alice", "/named", &[&format!("x-request-id: {id}")]).await;
    assert_eq!(answer.body["headers"]["x-request-id"], id);

    // What the server's sidecar refuses is reported, too. What the caller's closes has no request.
    assert_eq!(outcome(&call(&lab, "clients/bob", "/refused", &[]).await), "403");
    let (client, server) = both(&lab, "/refused").await;
    for span in [&client, &server] {
        assert_eq!(span["tags"]["http.status_code"], "403", "{span}");
    }
    assert_eq!(hello(&lab, "clients/alice", "web-v1.servers:7000").await, "answered");

    // A trace that the application has begun goes on, in either form of headers.
    let w3c = format!("traceparent: 00-{BEGUN}-b7ad6b7169203331-01");
    call(&lab, "clients/alice", "/w3c", &[&w3c]).await;
    let (client, server) = both(&lab, "/w3c").await;
    assert_eq!((client["traceId"].as_str(), server["traceId"].as_str()), (Some(BEGUN), Some(BEGUN)));
    assert_eq!(client["parentId"], "b7ad6b7169203331");
    let id = format!("x-b3-traceid: {BEGUN}");
    let one = format!("b3: {BEGUN}-b7ad6b7169203331-1");
    let answer = call(&lab, "clients/alice", "/one", &[&one]).await;
    let (client, server) = both(&lab, "/one").await;
    assert_eq!((&client["traceId"], &server["parentId"]), (&BEGUN.into(), &client["id"]));
    let seen = answer.body["headers"]["b3"].as_str().unwrap();
    assert!(seen.contains(server["id"].as_str().unwrap()), "{seen}");
    let b3 = [&*id, "x-b3-spanid: b7ad6b7169203331", "x-b3-sampled: 1"];
    call(&lab, "clients/alice", "/b3", &b3).await;
    assert_eq!(both(&lab, "/b3").await.1["traceId"], BEGUN);
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_for_requests_that_bring_no_decision() {
    let lab = start(&mesh().with("mesh-config.yaml", &tracing("samplingPercent: 0"))).await;
    eventually_traced(&lab, true).await;
    let sampled = |flag: &str| format!("traceparent: 00-{BEGUN}-b7ad6b7169203331-{flag}");
    for headers in [
        &[][..],
        &[&*sampled("00")],
        &["x-b3-sampled: 0"],
        // What makes Envoy trace where it is asked by those that it trusts.
        &["x-envoy-force-trace: true"],
        &["x-client-trace-id: 1"],
        &["x-request-id: 7d9a2a1c-5d0e-ab3f-8a57-0c2d5a6b7c8d"],
    ] {
        let answer = call(&lab, "clients/alice", "/quiet", headers).await;
        assert_eq!(outcome(&answer), "200", "{headers:?}");
        assert_eq!(answer.body["headers"]["x-b3-sampled"], "0", "{headers:?}");
    }
    // The same sidecars report one that brings a decision.
    call(&lab, "clients/alice", "/loud", &[&sampled("01")]).await;
    both(&lab, "/loud").await;
    assert_eq!(spans(&lab, "/quiet"), Vec::<Value>::new());

    // An application that makes the header which is drawn by draws itself: 4,999 and 5,000 of 10,000.
    lab.apply("mesh-config.yaml", &tracing("samplingPercent: 50")).await.unwrap();
    for (id, expected) in [
        ("00001387-5d0e-4b3f-8a57-0c2d5a6b7c8d", "1"),
        ("00001388-5d0e-4b3f-8a57-0c2d5a6b7c8d", "0"),
        ("000013870-and-more", "1"),
        ("no number", "0"),
    ] {
        eventually(&format!("{id}: {expected}"), async || {
            let answer = call(&lab, "clients/alice", "/drawn", &[&format!("x-request-id: {id}")]).await;
            let drawn = &answer.body["headers"]["x-b3-sampled"];
            if drawn == expected { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_continues_its_trace_and_forces_none() {
    let mesh = collected(ingress::mesh())
        .with("ingress.yaml", &ingress::ingress("way", "http", "", GATEWAY))
        .with("mesh-config.yaml", &tracing("samplingPercent: 0"));
    let lab = start(&mesh).await;
    let server = SocketAddr::new(lab.pod_ip("servers/web-v1").await.unwrap(), 8080);
    let ask = async |pod: &str, path: &str, header: &str| {
        fetch(&lab, pod, &["--url", &format!("http://{server}{path}"), "-H", header]).await
    };
    for header in ["x-other: 1", "x-envoy-force-trace: true", "x-client-trace-id: 1"] {
        eventually(&format!("{header}: not traced"), async || {
            let answer = ask("edge/gateway", "/quiet", header).await;
            let sampled = &answer.body["headers"]["x-b3-sampled"];
            if outcome(&answer) == "200" && sampled == "0" { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }
    let begun = format!("traceparent: 00-{BEGUN}-b7ad6b7169203331-01");
    for (pod, path, status) in [("edge/gateway", "/in", "200"), ("edge/bystander", "/out", "403")] {
        assert_eq!(outcome(&ask(pod, path, &begun).await), status);
        eventually(&format!("a span of {path}"), async || {
            let spans = spans(&lab, path);
            let found = spans.iter().any(|span| {
                span["traceId"] == BEGUN
                    && span["kind"] == "SERVER"
                    && span["tags"]["http.status_code"] == status
            });
            if found { Ok(()) } else { Err(format!("{spans:?}")) }
        })
        .await;
    }
    assert_eq!(spans(&lab, "/quiet"), Vec::<Value>::new());
    lab.stop().await.unwrap();
}

/// The server of external authorization is in the trace, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_to_a_server_is_a_span_of_its_own() {
    let asking =
        "  traffic: {inboundExternalAuthorization: {enable: true, address: jaeger.outside.svc, port: 80}}\n";
    let lab = start(&mesh().with("mesh-config.yaml", &(tracing("") + asking))).await;
    eventually("an answer", async || {
        let answer = call(&lab, "clients/alice", "/asked", &["x-ext-authz: allow"]).await;
        let was_asked = answer.body["headers"]["x-ext-authz-check-result"] == "allowed";
        if was_asked && answer.body["headers"]["x-b3-traceid"].is_string() {
            Ok(())
        } else {
            Err(outcome(&answer))
        }
    })
    .await;
    let (_, server) = both(&lab, "/asked").await;
    eventually("its span", async || {
        let log = lab.logs("outside/jaeger", "echo").unwrap();
        let mut spans = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = spans.any(|span| {
            span["traceId"] == server["traceId"]
                && span["name"].as_str().is_some_and(|name| name.contains("Authorization.Check"))
        });
        if found { Ok(()) } else { Err(log) }
    })
    .await;
    lab.stop().await.unwrap();
}

/// A MeshConfig with a collector at this path of `jaeger.outside`.
fn reported_to(endpoint: &str) -> String {
    tracing(&format!("endpoint: {endpoint}"))
}

/// Waits until alice's sidecar reports to this URL.
async fn eventually_reported_to(lab: &LabHandle, url: &str) {
    eventually(&format!("reports to {url}"), async || {
        let listeners = lab.envoy_admin("clients/alice", "/config_dump?resource=dynamic_listeners").await;
        if listeners.unwrap().body.contains(url) { Ok(()) } else { Err("another".to_owned()) }
    })
    .await;
}

/// Makes requests that alice's sidecar reports, none of which fails or waits for a collector.
async fn reported_requests(lab: &LabHandle) {
    let args = ["--url", "http://web-v1.servers/", "--count", "100"];
    for answer in lab.fetch("clients/alice", &args).await.unwrap() {
        assert!(answer.status == Some(200) && answer.millis < 4000, "{answer:?}");
    }
}

/// A statistic of alice's sidecar.
async fn statistic(lab: &LabHandle, name: &str) -> u64 {
    let answer = lab.envoy_admin("clients/alice", &format!("/stats?filter={name}$")).await.unwrap();
    let value = answer.body.trim().rsplit_once(": ").and_then(|(_, value)| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {answer:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_its_traces_alone() {
    let lab = start(&mesh()).await;
    eventually_traced(&lab, false).await;
    let url = ["--url", "http://web-v1.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
    let mut calls = lab.call("clients/alice", &url);
    calls.more(10, crate::SETTLE).await.unwrap();

    // It fails, and then it takes connections and answers none.
    lab.apply("mesh-config.yaml", &reported_to("/status/500")).await.unwrap();
    eventually_reported_to(&lab, "/status/500").await;
    reported_requests(&lab).await;
    eventually("lost reports", async || {
        let lost = statistic(&lab, "tracing.zipkin.reports_dropped").await;
        if lost > 0 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
    lab.apply("mesh-config.yaml", &reported_to("/delay/60000")).await.unwrap();
    eventually_reported_to(&lab, "/delay/60000").await;
    for _ in 0..3 {
        reported_requests(&lab).await;
        let connections = statistic(&lab, "cluster.outbound-traces.upstream_cx_active").await;
        assert!(connections < 10, "{connections} connections of some 20 reports");
    }

    // It goes, and comes back. Then it is at no address, and then nothing is traced.
    lab.apply("mesh-config.yaml", &tracing("")).await.unwrap();
    eventually_reported_to(&lab, "/api/v2/spans").await;
    lab.remove("pod-jaeger.yaml").await.unwrap();
    reported_requests(&lab).await;
    lab.apply("pod-jaeger.yaml", &pod("outside", "jaeger", "jaeger")).await.unwrap();
    eventually("traces again", async || {
        call(&lab, "clients/alice", "/back", &[]).await;
        if spans(&lab, "/back").is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    let elsewhere = tracing("").replace("jaeger.outside.svc", "nothing.example");
    lab.apply("mesh-config.yaml", &elsewhere).await.unwrap();
    eventually_reported_to(&lab, "nothing.example").await;
    reported_requests(&lab).await;
    lab.remove("mesh-config.yaml").await.unwrap();
    eventually_traced(&lab, false).await;
    calls.more(50, crate::SETTLE).await.unwrap();
    let failed: Vec<_> =
        calls.stop().into_iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    lab.stop().await.unwrap();
}
