//! Tests `inboundExternalAuthorization`: which requests a server is asked about, and what its answers, its
//! silence and edits mean.

use smc_lab::{FetchResult, LabHandle};

use crate::eventually::eventually;
use crate::mesh::{Mesh, allow, any_route, pod, service, settings, tcp_route};
use crate::{DENIED, fetch, hello, outcome, start};

const ALLOW: &str = "x-ext-authz: allow";

/// A MeshConfig with these fields of a server's, beside where it is.
fn asking(fields: &str) -> String {
    settings(&format!(
        "traffic: {{inboundExternalAuthorization: {{enable: true, address: opa.outside.svc, port: 80, {fields}}}}}"
    ))
}

/// Alice may call the servers, bob may not; `opa.outside` is a server that can be asked.
fn mesh() -> Mesh {
    Mesh::web()
        .with("pod-opa.yaml", &pod("outside", "opa", "opa"))
        .with("service-opa.yaml", &service("outside", "opa", "app: opa"))
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
}

async fn ask(lab: &LabHandle, pod: &str, path: &str, header: &str) -> FetchResult {
    fetch(lab, pod, &["--url", &format!("http://web.servers{path}"), "-H", header]).await
}

async fn eventually_answered(lab: &LabHandle, header: &str, expected: &str) {
    eventually(&format!("{header}: {expected}"), async || {
        let answer = outcome(&ask(lab, "clients/alice", "/", header).await);
        if answer == expected { Ok(()) } else { Err(answer) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_decides_about_what_policy_allows() {
    let lab = start(&mesh().with("mesh-config.yaml", &asking("statPrefix: opa"))).await;
    eventually_answered(&lab, ALLOW, "200").await;
    let denied = ask(&lab, "clients/alice", "/", "x-other: 1").await;
    assert_eq!(
        (outcome(&denied), &*denied.headers["x-ext-authz-check-result"]),
        ("403".to_owned(), "denied")
    );
    let alice = "spiffe://cluster.local/ns/clients/sa/alice";
    assert_eq!(denied.headers["x-ext-authz-seen"], format!("{alice} GET /"));

    // It may add headers, and change none by which the mesh says who calls.
    let passed = ask(&lab, "clients/alice", "/", ALLOW).await;
    let seen =
        |answer: &FetchResult, name: &str| answer.body["headers"][name].as_str().unwrap_or("").to_owned();
    assert_eq!(seen(&passed, "x-ext-authz-check-result"), "allowed");
    assert!(!passed.body.to_string().contains("forged"), "{passed:?}");
    assert_eq!((&passed.body["path"], &passed.body["method"]), (&"/".into(), &"GET".into()));
    for header in [ALLOW, "x-ext-authz: strip"] {
        let passed = ask(&lab, "clients/alice", "/", header).await;
        assert!(seen(&passed, "x-forwarded-client-cert").contains(alice), "{passed:?}");
    }
    // It judges the path that policy judged.
    let passed = ask(&lab, "clients/alice", "/public/../private?a=b", ALLOW).await;
    assert_eq!(seen(&passed, "x-ext-authz-seen"), format!("{alice} GET /private?a=b"));

    // What policy denies it is not asked about, and other protocols neither.
    let bob = ask(&lab, "clients/bob", "/", ALLOW).await;
    assert_eq!((outcome(&bob), bob.headers.get("x-ext-authz-seen")), (DENIED.to_owned(), None));
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_lets_nothing_pass_unless_that_was_wanted() {
    let lab = start(&mesh().with("mesh-config.yaml", &asking("timeout: 1s"))).await;
    eventually_answered(&lab, ALLOW, "200").await;
    lab.remove("pod-opa.yaml").await.unwrap();
    eventually_answered(&lab, ALLOW, "403").await;
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");

    lab.apply("mesh-config.yaml", &asking("failureModeAllow: true")).await.unwrap();
    eventually_answered(&lab, "x-other: 1", "200").await;
    assert_eq!(outcome(&ask(&lab, "clients/bob", "/", ALLOW).await), DENIED, "policy decides first");
    lab.apply("pod-opa.yaml", &pod("outside", "opa", "opa")).await.unwrap();
    eventually_answered(&lab, "x-other: 1", "403").await;

    // A name that resolves to nothing, and what is no name.
    for address in ["nothing.example", "no server"] {
        let config = asking("").replace("opa.outside.svc", address);
        lab.apply("mesh-config.yaml", &config).await.unwrap();
        eventually_answered(&lab, ALLOW, "403").await;
        lab.apply("mesh-config.yaml", &asking("")).await.unwrap();
        eventually_answered(&lab, ALLOW, "200").await;
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn turning_authorization_on_and_off_fails_no_request_that_it_allows() {
    let off = settings("traffic: {inboundExternalAuthorization: {enable: false}}");
    let lab = start(&mesh().with("mesh-config.yaml", &off)).await;
    eventually_answered(&lab, ALLOW, "200").await;
    let url = [
        "--url",
        "http://web.servers/",
        "-H",
        ALLOW,
        "--keep-alive",
        "--count",
        "100000",
        "--interval",
        "10ms",
    ];
    let mut calls = lab.call("clients/alice", &url);
    calls.more(10, crate::SETTLE).await.unwrap();
    for edit in ["timeout: 1s", "timeout: 2s", "statPrefix: other"] {
        lab.apply("mesh-config.yaml", &asking(edit)).await.unwrap();
        eventually_answered(&lab, "x-other: 1", "403").await;
        calls.more(50, crate::SETTLE).await.unwrap();
    }
    lab.apply("mesh-config.yaml", &off).await.unwrap();
    eventually_answered(&lab, "x-other: 1", "200").await;
    calls.more(200, crate::SETTLE).await.unwrap();
    let failed: Vec<_> =
        calls.stop().into_iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    lab.stop().await.unwrap();
}
