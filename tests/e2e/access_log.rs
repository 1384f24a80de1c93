//! What sidecars log: real Envoys, for each of the three settings, and in the forms that Telemetries say. The
//! refusal of a connection without HTTP is in the tests of TCP.

use smc_lab::LabHandle;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, namespace, pod, routes, settings, tcp_route};
use crate::{fetch, get, hello, start};

/// The mesh's settings with this log.
fn logging(log: &str) -> String {
    settings(&format!("observability: {{accessLog: {log}}}"))
}

/// The namespace of the servers with this log of its own.
fn servers(log: &str) -> String {
    format!("{}  annotations: {{mesh.smc.dev/access-log: {log}}}\n", namespace("servers", true))
}

/// The lines of a log that are about requests and connections.
fn lines(lab: &LabHandle, pod: &str) -> Vec<serde_json::Value> {
    let log = lab.logs(pod, "envoy").unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter(|line| line["start_time"].is_string()).collect()
}

/// The statuses, by path, of the requests in a log.
fn requests(lab: &LabHandle, pod: &str, path: &str) -> Vec<u64> {
    let all = lines(lab, pod);
    all.iter().filter(|line| line["path"] == path).filter_map(|line| line["status"].as_u64()).collect()
}

/// Waits until a sidecar has logged this status for this path.
async fn logged(lab: &LabHandle, pod: &str, path: &str, status: u64) {
    eventually("the log has the request", async || {
        let found = requests(lab, pod, path);
        if found.contains(&status) { Ok(()) } else { Err(format!("{pod} {path}: {found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_logged_and_all_where_a_person_wants_it() {
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("get.yaml", &routes("get", "    - {name: get, pathRegex: '.*', methods: [GET]}"))
        .with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/get"]))
        .with("alice-lines.yaml", &allow("alice-lines", "alice", &["TCPRoute/lines"]));
    let lab = start(&mesh).await;
    let url = "http://web-v1.servers/";
    eventually_get(&lab, "clients/alice", url, "200").await;

    // The default: what fails, at both ends, and nothing that works.
    for path in ["works/1", "status/404", "status/503", "status/403"] {
        get(&lab, "clients/alice", &format!("{url}{path}")).await;
    }
    assert_eq!(hello(&lab, "clients/alice", "web-v1.servers:7000").await, "answered");
    // A call of gRPC is a POST, which bob may not send. Its status is 200 all the same.
    for (pod, method) in [("clients/alice", "Works"), ("clients/bob", "Refused")] {
        let url = format!("http://web-v1.servers:90/echo.Echo/{method}");
        fetch(&lab, pod, &["--grpc", "--url", &url, "--body", "hello"]).await;
    }
    for pod in ["clients/bob", "servers/web-v1"] {
        logged(&lab, pod, "/echo.Echo/Refused", 200).await;
    }
    for pod in ["clients/alice", "servers/web-v1"] {
        assert_eq!(requests(&lab, pod, "/echo.Echo/Works"), [0_u64; 0], "{pod}");
    }
    for pod in ["clients/alice", "servers/web-v1"] {
        logged(&lab, pod, "/status/503", 503).await;
        logged(&lab, pod, "/status/403", 403).await;
        assert_eq!(requests(&lab, pod, "/works/1"), [0_u64; 0], "{pod}");
        assert_eq!(requests(&lab, pod, "/status/404"), [0_u64; 0], "{pod}");
        assert!(lines(&lab, pod).iter().all(|line| line["status"].is_u64()), "{pod} has logged a connection");
    }

    // The namespace's own setting goes before that of the mesh.
    lab.apply("mesh-config.yaml", &logging("all")).await.unwrap();
    lab.apply("namespace-servers.yaml", &servers("none")).await.unwrap();
    eventually("the caller logs all, and the server nothing", async || {
        let before = requests(&lab, "servers/web-v1", "/status/500").len();
        get(&lab, "clients/alice", &format!("{url}works/2")).await;
        get(&lab, "clients/alice", &format!("{url}status/500")).await;
        let caller = requests(&lab, "clients/alice", "/works/2");
        let server = requests(&lab, "servers/web-v1", "/status/500").len();
        if caller.contains(&200) && server == before { Ok(()) } else { Err(format!("{caller:?} {server}")) }
    })
    .await;
    let answered = async || {
        assert_eq!(hello(&lab, "clients/alice", "web-v1.servers:7000").await, "answered");
        let is_one = |line: &serde_json::Value| {
            line["upstream_cluster"].as_str().is_some_and(|name| name.contains("7000"))
        };
        lines(&lab, "clients/alice").iter().filter(|line| is_one(line)).count()
    };
    eventually("the caller logs connections", async || match answered().await {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    })
    .await;
    lab.stop().await.unwrap();
}

/// A Telemetry of a namespace with this `spec`.
pub(crate) fn telemetry(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1\nkind: Telemetry\nmetadata: {{name: {name}, namespace: \
         {namespace}}}\nspec: {{{spec}}}\n"
    )
}

/// The lines in the log of a pod that end with this path: those of a format that ends with it.
pub(crate) fn requests_as_text(lab: &LabHandle, pod: &str, path: &str) -> Vec<String> {
    let log = lab.logs(pod, "envoy").unwrap();
    log.lines().filter(|line| line.ends_with(&format!(" /{path}"))).map(str::to_owned).collect()
}

/// Asks for a path until the log of a pod has this line; of one in JSON, in any order.
async fn logs_line(lab: &LabHandle, pod: &str, path: &str, line: &str) {
    eventually(&format!("{pod} logs {line:?}"), async || {
        get(lab, "clients/alice", &format!("http://{}/{path}", pod.replace("servers/", "") + ".servers"))
            .await;
        let log = lab.logs(pod, "envoy").unwrap();
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let is_line =
            |found: &str| found == line || json(found).is_some_and(|found| json(line) == Some(found));
        if log.lines().any(is_line) { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await;
}

/// Asks for a path until the log of web-v1 has a line with SMC's own fields for it.
async fn logs_own_fields(lab: &LabHandle, path: &str) {
    eventually(&format!("SMC's own fields are logged for {path}"), async || {
        get(lab, "clients/alice", &format!("http://web-v1.servers/{path}")).await;
        match requests(lab, "servers/web-v1", &format!("/{path}")) {
            found if found.is_empty() => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telemetry_says_how_the_pods_that_it_selects_log() {
    // Two pods of one service account.
    let second = pod("servers", "web-v2", "web").replace("Name: web-v2", "Name: web-v1");
    let text = "T %REQ(:METHOD)% %REQ(:PATH)% %RESPONSE_CODE% %DOWNSTREAM_PEER_URI_SAN%";
    let of_first = telemetry(
        "servers",
        "first",
        &format!("selector: {{version: web-v1}}, accessLog: {{format: '{text}'}}"),
    );
    let mesh = Mesh::web()
        .with("pod-web-v2.yaml", &second)
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("first.yaml", &of_first)
        // It selects no pod of its own namespace.
        .with(
            "elsewhere.yaml",
            &telemetry("clients", "elsewhere", "selector: {app: web}, accessLog: {format: E}"),
        );
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    eventually_get(&lab, "clients/alice", "http://web-v2.servers/", "200").await;
    let alice = "spiffe://cluster.local/ns/clients/sa/alice";

    // All requests, where no one says which.
    logs_line(&lab, "servers/web-v1", "text", &format!("T GET /text 200 {alice}")).await;
    get(&lab, "clients/alice", "http://web-v2.servers/unlogged").await;

    // One for the whole namespace leaves those alone that are selected.
    let json = r#"{"path": "%REQ(:PATH)%", "is": {"code": "%RESPONSE_CODE%", "json": [true, "%PROTOCOL% %REQ(X-NONE)%"]}}"#;
    let of_all = telemetry("servers", "all", &format!("accessLog: {{format: '{json}'}}"));
    lab.apply("all.yaml", &of_all).await.unwrap();
    let line = r#"{"is":{"code":200,"json":[true,"HTTP/1.1 -"]},"path":"/json"}"#;
    logs_line(&lab, "servers/web-v2", "json", line).await;
    logs_line(&lab, "servers/web-v1", "json", &format!("T GET /json 200 {alice}")).await;
    assert!(!lab.logs("servers/web-v2", "envoy").unwrap().contains("/unlogged"), "nothing fails");

    // What Envoy would refuse is SMC's to say, and what was in force ends.
    lab.apply("first.yaml", &of_first.replace("%RESPONSE_CODE%", "%BOGUS%")).await.unwrap();
    logs_own_fields(&lab, "own").await;
    let problems = lab.smc(&["mesh", "problems"]).await.unwrap().stdout;
    for words in
        ["spec.accessLog.format", "the operator BOGUS", "Telemetry clients/elsewhere", "holds for no sidecar"]
    {
        assert!(problems.contains(words), "{words}: {problems}");
    }

    // One of the control plane's namespace means all that have none of their own.
    lab.apply("mesh.yaml", &telemetry("smc-system", "mesh", "accessLog: {format: 'M %REQ(:PATH)%'}"))
        .await
        .unwrap();
    logs_line(&lab, "servers/web-v2", "with-both", &line.replace("json\"}", "with-both\"}")).await;
    lab.remove("all.yaml").await.unwrap();
    logs_line(&lab, "servers/web-v2", "mesh", "M /mesh").await;
    // The first one still holds for the other pod, which logs SMC's own fields.
    logs_own_fields(&lab, "kept").await;
    assert_eq!(requests_as_text(&lab, "servers/web-v1", "kept"), Vec::<String>::new());
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_a_format_fail_no_request() {
    let of = |format: &str| telemetry("servers", "all", &format!("accessLog: {{format: '{format}'}}"));
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("all.yaml", &of("0 %REQ(:PATH)%"));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let url = ["--url", "http://web-v1.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
    let mut calls = lab.call("clients/alice", &url);
    calls.more(10, crate::SETTLE).await.unwrap();
    for edit in 1..6 {
        lab.apply("all.yaml", &of(&format!("{edit} %REQ(:PATH)%"))).await.unwrap();
        logs_line(&lab, "servers/web-v1", "edit", &format!("{edit} /edit")).await;
        calls.more(50, crate::SETTLE).await.unwrap();
    }
    lab.remove("all.yaml").await.unwrap();
    eventually("SMC's own fields are logged", async || {
        get(&lab, "clients/alice", "http://web-v1.servers/status/503").await;
        let found = requests(&lab, "servers/web-v1", "/status/503");
        if found.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    calls.more(50, crate::SETTLE).await.unwrap();
    let failed: Vec<_> =
        calls.stop().into_iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    lab.stop().await.unwrap();
}
