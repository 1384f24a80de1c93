//! Allow all traffic first, then close with the policy for what was seen.

use std::collections::BTreeSet;

use smc_lab::LabHandle;
use smc_mesh::policy::{Destinations, PortServers, Suggestion};
use smc_sidecar::statistics::{CALLS_PATH, called};
use smc_types::ids::ServiceAccountId;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, mesh_config};
use crate::{DENIED, fetch, get, hello, start};

/// Where the service ports lead, as the controller lists it.
async fn destinations(lab: &LabHandle) -> Destinations {
    let listed = lab.smc_json(&["mesh", "services"]).await.unwrap();
    let mut destinations = Destinations::new();
    for service in listed["services"].as_array().unwrap() {
        for port in service["ports"].as_array().unwrap() {
            let number = |port: &serde_json::Value| u16::try_from(port["port"].as_u64().unwrap()).unwrap();
            let servers = port["servers"].as_array().unwrap().iter();
            let servers = servers
                .map(|server| (server["service_account"].as_str().unwrap().parse().unwrap(), number(server)))
                .collect();
            let http = matches!(port["protocol"].as_str().unwrap(), "http" | "http2");
            let name = service["name"].as_str().unwrap().parse().unwrap();
            destinations.insert((name, number(port)), PortServers { http, servers });
        }
    }
    destinations
}

/// The policy for what the sidecar of `pod` has counted, which it is asked for as `smc mesh policy --suggest`
/// does, but from outside of the mesh.
async fn suggested(lab: &LabHandle, pod: &str) -> Suggestion {
    let url = format!("http://{}:15010{CALLS_PATH}", lab.pod_ip(pod).await.unwrap());
    let answer = fetch(lab, "outside/stranger", &["--url", &url]).await;
    let account: ServiceAccountId = pod.parse().unwrap();
    let mut suggestion = Suggestion::default();
    let called = called(answer.body.as_str().unwrap()).unwrap();
    suggestion.add(&account, &called, &destinations(lab).await);
    suggestion
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_that_closes_with_the_suggested_policy_serves_what_it_served() {
    let mesh = Mesh::web().with("mesh-config.yaml", &mesh_config(true));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");

    let suggestion = suggested(&lab, "clients/alice").await;
    assert_eq!(suggestion.notes().count(), 0, "{suggestion}");
    let seen: BTreeSet<_> =
        suggestion.calls().iter().map(|call| (call.destination.name(), call.port, call.http)).collect();
    let expected =
        [("web-v1", 7000, false), ("web-v1", 8080, true), ("web-v2", 7000, false), ("web-v2", 8080, true)];
    assert_eq!(seen, expected.into());

    lab.apply("suggested.yaml", &suggestion.to_string()).await.unwrap();
    lab.apply("mesh-config.yaml", &mesh_config(false)).await.unwrap();
    eventually("the mesh is closed", async || {
        let outcome = get(&lab, "clients/bob", "http://web.servers/").await;
        if outcome == DENIED { Ok(()) } else { Err(outcome) }
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://web.servers/any/path", "200").await;
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7001").await, DENIED, "a port that was not called");
    lab.stop().await.unwrap();
}
