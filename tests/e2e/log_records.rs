//! Tests what a collector of OpenTelemetry is sent of what sidecars log, and what one that is away means.

use serde_json::{Value, json};
use smc_lab::LabHandle;

use crate::access_log::telemetry;
use crate::eventually::{eventually, eventually_get};
use crate::lost_nodes::change;
use crate::mesh::{Mesh, allow, any_route, pod, service, tcp_route};
use crate::{fetch, get, hello, outcome, start};

/// An ExtensionService with this host.
fn extension_service(namespace: &str, name: &str, host: &str) -> String {
    format!(
        "apiVersion: config.openservicemesh.io/v1alpha2\nkind: ExtensionService\nmetadata: {{name: {name}, \
         namespace: {namespace}}}\nspec: {{host: {host}, port: 90, protocol: h2c}}\n"
    )
}

/// The `spec` of a Telemetry, with this format and these attributes, that names an ExtensionService.
fn sent_to(namespace: &str, format: &str, attributes: &str) -> String {
    format!(
        "accessLog: {{format: '{format}', openTelemetry: {{extensionService: {{namespace: {namespace}, name: \
         otel}}, attributes: {attributes}}}}}"
    )
}

/// The servers send what they log to `otel.outside`.
fn mesh() -> Mesh {
    let attributes = "{code: '%RESPONSE_CODE%', peer: '%DOWNSTREAM_PEER_URI_SAN%'}";
    Mesh::web()
        .with("pod-otel.yaml", &pod("outside", "otel", "otel"))
        .with("service-otel.yaml", &service("outside", "otel", "app: otel"))
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
        .with("otel.yaml", &extension_service("servers", "otel", "otel.outside.svc"))
        .with("log.yaml", &telemetry("servers", "log", &sent_to("servers", "T %REQ(:PATH)%", attributes)))
}

/// The records so far whose body has this text.
fn records(lab: &LabHandle, text: &str) -> Vec<Value> {
    let log = lab.logs("outside/otel", "echo").unwrap();
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["body"].to_string().contains(text)).collect()
}

/// Makes a request until the collector has a record with this text, which it returns.
async fn recorded(lab: &LabHandle, text: &str, request: impl AsyncFn()) -> Value {
    eventually(&format!("a record with {text}"), async || {
        request().await;
        if records(lab, text).is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    records(lab, text).remove(0)
}

async fn ask(lab: &LabHandle, path: &str) {
    assert_eq!(get(lab, "clients/alice", &format!("http://web-v1.servers{path}")).await, "200", "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_is_sent_what_is_logged_with_attributes() {
    let lab = start(&mesh()).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let record = recorded(&lab, "/text", async || ask(&lab, "/text").await).await;
    let alice = "spiffe://cluster.local/ns/clients/sa/alice";
    assert_eq!(record["body"], "T /text");
    assert_eq!(record["attributes"], json!({"code": "200", "peer": alice}));
    let resource = &record["resource"];
    assert_eq!(resource["log_name"], "inbound-logs", "{resource}");
    assert!(resource["node_name"].as_str().is_some_and(|name| !name.is_empty()), "{resource}");
    eventually("it is logged as well", async || {
        let log = lab.logs("servers/web-v1", "envoy").unwrap();
        if log.contains("T /text") { Ok(()) } else { Err(log) }
    })
    .await;
    // A connection without requests, and no client's.
    assert_eq!(hello(&lab, "clients/alice", "web-v1.servers:7000").await, "answered");
    recorded(&lab, "T -", async || {}).await;
    let called =
        records(&lab, "").into_iter().filter(|record| record["resource"]["log_name"] == "outbound-logs");
    assert_eq!(called.collect::<Vec<_>>(), Vec::<Value>::new());

    // A format in JSON, for calls: what an application chose stays in its value.
    let json = r#"{"path": "%REQ(:PATH)%", "said": ["%REQ(X-SAID)%", 1.5, true]}"#;
    lab.apply("all.yaml", &extension_service("smc-system", "otel", "otel.outside.svc")).await.unwrap();
    lab.apply("calls.yaml", &telemetry("clients", "calls", &sent_to("smc-system", json, "{}")))
        .await
        .unwrap();
    let said = r#"x-said: ","path":"forged"}"#;
    let url = "http://web-v1.servers/json";
    let call = async || {
        fetch(&lab, "clients/alice", &["--url", url, "-H", said]).await;
    };
    let record = recorded(&lab, "forged", call).await;
    assert_eq!(record["body"], json!({"path": "/json", "said": [r#"","path":"forged"}"#, "1.5", "true"]}));
    assert_eq!(record["resource"]["log_name"], "outbound-logs");

    // SMC's own fields, where no format is declared.
    let own = sent_to("smc-system", "", "{}").replace("format: '', ", "");
    lab.apply("calls.yaml", &telemetry("clients", "calls", &own)).await.unwrap();
    let record = recorded(&lab, "\"upstream_peer\":", async || ask(&lab, "/own").await).await;
    assert_eq!((&record["body"]["status"], &record["body"]["path"]), (&json!("200"), &json!("/own")));

    // One of another tenant is none, and is said.
    lab.apply("calls.yaml", &telemetry("clients", "calls", &sent_to("servers", "F %REQ(:PATH)%", "{}")))
        .await
        .unwrap();
    eventually("the format is in force", async || {
        ask(&lab, "/foreign").await;
        let log = lab.logs("clients/alice", "envoy").unwrap();
        if log.contains("F /foreign") { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await;
    let problems = lab.smc(&["mesh", "problems"]).await.unwrap().stdout;
    assert!(problems.contains("a namespace that is neither this one nor the control plane's"), "{problems}");
    // What the same sidecar would have sent before comes before.
    lab.apply("calls.yaml", &telemetry("clients", "calls", &sent_to("smc-system", "L %REQ(:PATH)%", "{}")))
        .await
        .unwrap();
    recorded(&lab, "L /last", async || ask(&lab, "/last").await).await;
    assert_eq!(records(&lab, "F /"), Vec::<Value>::new());
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_of_logs_that_is_away_costs_its_records_alone() {
    let lab = start(&mesh()).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let url = ["--url", "http://web-v1.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
    let mut calls = lab.call("clients/alice", &url);
    calls.more(10, crate::SETTLE).await.unwrap();
    recorded(&lab, "T /first", async || ask(&lab, "/first").await).await;
    let many = async || {
        let args = ["--url", "http://web-v1.servers/", "--count", "200"];
        for answer in lab.fetch("clients/alice", &args).await.unwrap() {
            assert!(outcome(&answer) == "200" && answer.millis < 4000, "{answer:?}");
        }
    };

    // Its node is lost without a word: sidecars wait for answers, and no request does.
    change(&lab, "-I", "outside/otel").await;
    many().await;
    calls.more(100, crate::SETTLE).await.unwrap();
    change(&lab, "-D", "outside/otel").await;
    recorded(&lab, "T /found", async || ask(&lab, "/found").await).await;

    // It goes, and comes back; then it is at no address, and then its object goes.
    lab.remove("pod-otel.yaml").await.unwrap();
    many().await;
    lab.apply("pod-otel.yaml", &pod("outside", "otel", "otel")).await.unwrap();
    recorded(&lab, "T /back", async || ask(&lab, "/back").await).await;
    lab.apply("otel.yaml", &extension_service("servers", "otel", "nothing.example")).await.unwrap();
    many().await;
    lab.remove("otel.yaml").await.unwrap();
    eventually("the problem is said", async || {
        let problems = lab.smc(&["mesh", "problems"]).await.unwrap().stdout;
        if problems.contains("ExtensionService servers/otel, which does not exist (yet)") {
            Ok(())
        } else {
            Err(problems)
        }
    })
    .await;
    many().await;
    calls.more(50, crate::SETTLE).await.unwrap();
    let failed: Vec<_> =
        calls.stop().into_iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    lab.stop().await.unwrap();
}
