//! Tests a machine without a pod: it calls and is called as a pod is, under policy, with a bootstrap and
//! interception from `smc vm bootstrap`.

use std::os::unix::fs::PermissionsExt;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route};
use crate::{DENIED, VARIANTS, fetch, get, hello, start, start_with};
use smc_lab::{LabHandle, Variant};

const MACHINE: &str = "servers/legacy";

/// [`Mesh::web`] with the machine `servers/legacy` behind `web` and behind `legacy`, a service of its own,
/// which selects nothing. Its service account is `legacy`.
fn mesh() -> Mesh {
    Mesh::web().with("any.yaml", &any_route()).with("machine-legacy.yaml", &machine("legacy, web"))
}

/// The machine behind these services. Its address is the lab's to choose.
fn machine(services: &str) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: legacy, namespace: servers}}
---
apiVersion: v1
kind: Service
metadata: {{name: legacy, namespace: servers}}
spec:
  ports:
    - {{name: http, port: 80, targetPort: web}}
    - {{name: tcp-lines, port: 7000}}
---
apiVersion: mesh.smc.dev/v1alpha1
kind: MeshWorkload
metadata:
  name: legacy
  namespace: servers
  annotations:
    lab.mesh.smc.dev/command: \"[smc-lab, echo, --http, '8080', --grpc, '9090', --tcp, '7000', --name, legacy]\"
spec:
  addresses: [192.0.2.10]
  serviceAccountName: legacy
  services: [{services}]
  ports:
    - {{name: web, number: 8080}}
"
    )
}

/// `client` of the namespace `clients` may use every route of the service account `account` of `servers`, and
/// its port 7000.
fn grant(account: &str, client: &str) -> String {
    format!(
        "apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {{name: lines-{account}, namespace: servers}}
spec: {{matches: {{ports: [7000]}}}}
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{name: {client}-{account}-http, namespace: servers}}
spec:
  destination: {{kind: ServiceAccount, name: {account}, namespace: servers}}
  sources: [{{kind: ServiceAccount, name: {client}, namespace: clients}}]
  rules: [{{kind: HTTPRouteGroup, name: any}}]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{name: {client}-{account}-tcp, namespace: servers}}
spec:
  destination: {{kind: ServiceAccount, name: {account}, namespace: servers}}
  sources: [{{kind: ServiceAccount, name: {client}, namespace: clients}}]
  rules: [{{kind: TCPRoute, name: lines-{account}}}]
"
    )
}

/// Waits until exactly these answer at `url`.
async fn eventually_just(lab: &LabHandle, url: &str, answering: &[&str]) {
    eventually(&format!("{answering:?} answer"), async || {
        let args = ["--url", url, "--count", "40", "--keep-alive"];
        let results = lab.fetch("clients/alice", &args).await.map_err(|error| error.chain())?;
        let mut names: Vec<_> = results.iter().filter_map(|result| result.pod()).collect();
        let all = names.len() == results.len();
        names.sort_unstable();
        names.dedup();
        if all && names == answering { Ok(()) } else { Err(format!("{names:?} {:?}", results[0])) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_called_and_calls_as_policy_says() {
    let [delta, sotw] = VARIANTS.map(takes_part);
    tokio::join!(delta, sotw);
}

async fn takes_part(variant: Variant) {
    let lab = start_with(&mesh(), |options| options.variant = variant).await;
    let listed = lab.smc_json(&["proxy", "list"]).await.unwrap();
    let proxies = listed["proxies"].as_array().unwrap();
    let proxy = proxies.iter().find(|proxy| proxy["workload"] == "machine/servers/legacy").unwrap();
    assert_eq!((&proxy["service"], &proxy["participant"]), (&"legacy".into(), &true.into()), "{proxy}");

    // Nothing is allowed: neither to the machine nor from it.
    for (from, to) in [("clients/alice", "legacy.servers"), (MACHINE, "web-v1.servers")] {
        assert_eq!(get(&lab, from, &format!("http://{to}/")).await, DENIED, "{variant:?} {from}");
        assert_eq!(hello(&lab, from, &format!("{to}:7000")).await, DENIED, "{variant:?} {from}");
    }
    // Without a sidecar there is no way to it: its own proxy stands before its application.
    let address = lab.pod_ip(MACHINE).await.unwrap();
    assert_eq!(get(&lab, "outside/stranger", &format!("http://{address}:8080/")).await, DENIED);

    lab.apply("grant.yaml", &grant("legacy", "alice")).await.unwrap();
    eventually_get(&lab, "clients/alice", "http://legacy.servers/", "200").await;
    let answer = fetch(&lab, "clients/alice", &["--url", "http://legacy.servers/"]).await;
    assert_eq!(answer.pod(), Some("legacy"), "{answer:?}");
    eventually("lines reach the machine", async || {
        let outcome = hello(&lab, "clients/alice", "legacy.servers:7000").await;
        if outcome == "answered" { Ok(()) } else { Err(outcome) }
    })
    .await;
    assert_eq!(get(&lab, "clients/bob", "http://legacy.servers/").await, DENIED, "{variant:?}");
    // It was mutual TLS, by the machine's own service certificate.
    let stats = lab.envoy_admin(MACHINE, "/stats?filter=ssl.handshake").await.unwrap().body;
    assert!(stats.lines().any(|line| !line.ends_with(": 0")), "{stats}");
    let certificates = lab.envoy_admin(MACHINE, "/certs").await.unwrap().body;
    assert!(certificates.contains("spiffe://cluster.local/ns/servers/sa/legacy"), "{certificates}");

    // The machine calls a pod.
    let from_machine =
        grant("web-v1", "x").replace("name: x, namespace: clients", "name: legacy, namespace: servers");
    lab.apply("from-machine.yaml", &from_machine).await.unwrap();
    eventually_get(&lab, MACHINE, "http://web-v1.servers/", "200").await;
    assert_eq!(get(&lab, MACHINE, "http://web-v2.servers/").await, DENIED, "{variant:?}");
    lab.remove("from-machine.yaml").await.unwrap();
    eventually_get(&lab, MACHINE, "http://web-v1.servers/", DENIED).await;
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_behind_its_services_until_it_is_drained_or_gone() {
    let mesh = mesh()
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("grant.yaml", &grant("legacy", "alice"));
    let lab = start(&mesh).await;
    let url = "http://web.servers/";
    eventually_just(&lab, url, &["legacy", "web-v1", "web-v2"]).await;

    // A split onto the machine, of a service whose other leaf is pods.
    lab.apply("split.yaml", SPLIT).await.unwrap();
    eventually_just(&lab, "http://books.servers/", &["legacy", "web-v1"]).await;
    lab.apply("split.yaml", &SPLIT.replace("web-v1, weight: 50", "web-v1, weight: 0")).await.unwrap();
    eventually_just(&lab, "http://books.servers/", &["legacy"]).await;

    let drained = machine("legacy, web").replace("  addresses:", "  drained: true\n  addresses:");
    lab.apply("machine-legacy.yaml", &drained).await.unwrap();
    eventually_just(&lab, url, &["web-v1", "web-v2"]).await;
    lab.apply("machine-legacy.yaml", &machine("legacy")).await.unwrap();
    eventually_just(&lab, "http://legacy.servers/", &["legacy"]).await;
    eventually_just(&lab, url, &["web-v1", "web-v2"]).await;

    // Declared to be another identity, it is not served by the certificate of the first one.
    let other = machine("legacy, web").replace("serviceAccountName: legacy", "serviceAccountName: web-v1");
    lab.apply("machine-legacy.yaml", &other).await.unwrap();
    eventually_just(&lab, url, &["legacy", "web-v1", "web-v2"]).await;
    let certificates = lab.envoy_admin(MACHINE, "/certs").await.unwrap().body;
    assert!(certificates.contains("ns/servers/sa/web-v1"), "{certificates}");

    lab.remove("machine-legacy.yaml").await.unwrap();
    lab.wait_gone(MACHINE, crate::SETTLE).await.unwrap();
    eventually_just(&lab, url, &["web-v1", "web-v2"]).await;
    lab.stop().await.unwrap();
}

const SPLIT: &str = "apiVersion: v1
kind: Service
metadata: {name: books, namespace: servers}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: books, namespace: servers}
spec:
  service: books
  backends:
    - {service: web-v1, weight: 50}
    - {service: legacy, weight: 50}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_released_machine_is_out_and_a_new_bootstrap_brings_it_back() {
    let lab = start_with(&mesh().with("grant.yaml", &grant("legacy", "alice")), |options| {
        options.controller_args = vec!["--release-grace".to_owned(), "2s".to_owned()];
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://legacy.servers/", "200").await;

    let released = lab.smc(&["vm", "release", MACHINE]).await.unwrap();
    assert_eq!(released.status, 0, "{released:?}");
    assert!(released.stdout.contains("certificates released: 1"), "{released:?}");
    eventually("the machine's proxy is refused", async || {
        let listed = lab.smc_json(&["proxy", "list"]).await.map_err(|error| error.chain())?;
        let proxies = listed["proxies"].as_array().cloned().unwrap_or_default();
        let proxy = proxies.into_iter().find(|proxy| proxy["workload"] == "machine/servers/legacy");
        let proxy = proxy.ok_or("it is not listed")?;
        if proxy["participant"] == false { Ok(()) } else { Err(proxy.to_string()) }
    })
    .await;

    // The lab makes a new bootstrap for a machine that it starts again.
    let again = machine("legacy, web").replace("--name, legacy", "--name, again");
    lab.apply("machine-legacy.yaml", &again).await.unwrap();
    eventually_just(&lab, "http://legacy.servers/", &["again"]).await;

    let directory = tempfile::tempdir().unwrap();
    let written = directory.path().join("legacy");
    let output = written.to_str().unwrap();
    let extra = ["--xds-replica", "0=mesh.example:15128", "--exclude-inbound-port", "9100"];
    let argv = [&["vm", "bootstrap", MACHINE, "--output", output][..], &extra].concat();
    let made = lab.smc(&argv).await.unwrap();
    assert_eq!(made.status, 0, "{made:?}");
    let mode = |name: &str| std::fs::metadata(written.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    for name in ["envoy.json", "smc.env", "smc-init.service", "smc-envoy.service", "smc-proxy.conf"] {
        assert_eq!(mode(name), 0o600, "{name}");
        let text = std::fs::read_to_string(written.join(name)).unwrap();
        assert_eq!(text.contains("PRIVATE KEY"), name == "envoy.json", "{name}");
    }
    let bootstrap = std::fs::read_to_string(written.join("envoy.json")).unwrap();
    assert!(bootstrap.contains("mesh.example") && bootstrap.contains(".legacy.servers"), "{bootstrap}");
    let environment = std::fs::read_to_string(written.join("smc.env")).unwrap();
    let flags = "SMC_INIT_FLAGS=--exclude-inbound-port=22 --exclude-inbound-port=9100\n";
    assert!(environment.contains(flags), "{environment}");
    for unknown in ["servers/nothing", "servers/web-v1"] {
        let refused = lab.smc(&["vm", "bootstrap", unknown, "--output", output]).await.unwrap();
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.stderr.contains(&format!("there is no MeshWorkload {unknown}")), "{refused:?}");
    }

    // A machine that is taken out of the mesh leaves no certificate that could be used.
    lab.remove("machine-legacy.yaml").await.unwrap();
    eventually("its certificates are released", async || {
        let status = lab.smc_json(&["proxy", "list"]).await.map_err(|error| error.chain())?;
        let proxies = status["proxies"].as_array().cloned().unwrap_or_default();
        let states: Vec<_> = proxies
            .iter()
            .filter(|proxy| proxy["service"] == "legacy")
            .flat_map(|proxy| proxy["certificates"].as_array().cloned().unwrap_or_default())
            .map(|certificate| certificate["state"].clone())
            .collect();
        let all = states.iter().all(|state| *state == "released");
        if all && !states.is_empty() { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    lab.stop().await.unwrap();
}

/// What `smc init` programs for a machine can be taken away again, and then nothing of it is left.
#[tokio::test(flavor = "multi_thread")]
async fn interception_of_a_machine_leaves_ssh_alone_and_can_be_removed() {
    let lab = start(&mesh()).await;
    let rules = async || {
        let saved = lab.exec_as(MACHINE, 0, &["iptables-save", "-t", "nat"]).await.unwrap();
        assert_eq!(saved.status, 0, "{saved:?}");
        saved.stdout
    };
    assert!(
        rules().await.contains("-A SMC_PROXY_INBOUND -p tcp -m tcp --dport 22 -j RETURN"),
        "{}",
        rules().await
    );
    // Twice, as `systemctl stop` of a unit that has failed before would.
    for _ in 0..2 {
        let removed = lab.exec_as(MACHINE, 0, &["/run/smc-lab/smc", "init", "--remove"]).await.unwrap();
        assert_eq!(removed.status, 0, "{removed:?}");
        assert!(!rules().await.contains("SMC_"), "{}", rules().await);
    }
    lab.stop().await.unwrap();
}
