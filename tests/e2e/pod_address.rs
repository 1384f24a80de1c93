//! Tests `sidecar.localProxyMode` of the MeshConfig: applications that listen on their pod's address only.

use smc_lab::LabHandle;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, pod, settings, tcp_route};
use crate::{hello, outcome, start_with};

/// A pod whose application listens on the pod's own addresses only. It is ready as soon as it runs: the lab
/// probes at the loopback address.
fn at_its_own_address(name: &str) -> String {
    let yaml = pod("servers", name, "web");
    let bound = yaml.replace("--name,", "--bind, $(POD_IP), --name,").replace(
        "      readinessProbe:\n        tcpSocket: {port: 8080}\n",
        "      env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]\n",
    );
    assert!(bound.contains("--bind") && bound.contains("fieldPath") && !bound.contains("readinessProbe"));
    bound
}

fn local_proxy_mode(mode: &str) -> String {
    settings(&format!("sidecar: {{localProxyMode: {mode}}}"))
}

/// Waits until alice reaches the application, or does not, in every protocol.
async fn eventually_reached(lab: &LabHandle, reached: bool) {
    let status = if reached { "200" } else { "503" };
    eventually_get(lab, "clients/alice", "http://web-v1.servers/", status).await;
    eventually(&format!("HTTP/2 and gRPC: {status}"), async || {
        let grpc = ["--url", "http://web-v1.servers:90/echo.Echo/Say", "--grpc"];
        for args in [&["--url", "http://web-v1.servers/", "--http2"][..], &grpc] {
            let results = lab.fetch("clients/alice", args).await.map_err(|error| error.chain())?;
            let answered = results.iter().all(|result| result.pod() == Some("web-v1"));
            if answered != reached {
                return Err(format!("{args:?}: {results:?}"));
            }
        }
        Ok(())
    })
    .await;
    let answered = hello(lab, "clients/alice", "web-v1.servers:7000").await == "answered";
    assert_eq!(answered, reached, "TCP");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_at_its_pods_address_is_reached_in_that_mode() {
    let mesh = Mesh::web()
        .with("pod-web-v1.yaml", &at_its_own_address("web-v1"))
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]));
    let lab = start_with(&mesh, |_| {}).await;
    eventually_reached(&lab, false).await;
    lab.apply("config.yaml", &local_proxy_mode("PodIP")).await.unwrap();
    eventually_reached(&lab, true).await;
    // One that listens everywhere is reached, too.
    eventually_get(&lab, "clients/alice", "http://web-v2.servers/", "200").await;
    // The mode opens no way around the policy: bob has no grant, and the pod itself has none when it calls
    // itself by its service. The sidecar does not know the service for them.
    for (caller, denied) in [("clients/bob", "denied"), ("servers/web-v1", "denied")] {
        let results = lab.fetch(caller, &["--url", "http://web-v1.servers/"]).await.unwrap();
        assert_eq!(outcome(&results[0]), denied, "{caller}");
    }
    // With a grant, the pod's call of its own service passes its inbound listener, once.
    let own = allow("own", "alice", &["HTTPRouteGroup/any"])
        .replace("name: alice, namespace: clients", "name: web-v1, namespace: servers");
    lab.apply("own.yaml", &own).await.unwrap();
    eventually_get(&lab, "servers/web-v1", "http://web-v1.servers/", "200").await;
    let result = lab.get("servers/web-v1", "http://web-v1.servers/").await.unwrap();
    let caller = result.body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
    assert!(caller.contains("URI=spiffe://cluster.local/ns/servers/sa/web-v1"), "{result:?}");
    lab.apply("config.yaml", &local_proxy_mode("Localhost")).await.unwrap();
    eventually_reached(&lab, false).await;
    lab.stop().await.unwrap();
}
