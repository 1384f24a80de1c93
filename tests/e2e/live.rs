//! Tests policy changes while traffic flows.

use std::time::Duration;

use crate::eventually::{eventually, eventually_answering, eventually_get};
use crate::mesh::{Mesh, allow, any_route, mesh_config, pod, routes};
use crate::metrics::connections;
use crate::{DENIED, SETTLE, VARIANTS, get, start, start_with};
use smc_lab::Variant;

#[tokio::test(flavor = "multi_thread")]
async fn added_and_removed_targets_take_effect_on_open_connections_too() {
    let [delta, sotw] = VARIANTS.map(follows_http_policy);
    tokio::join!(delta, sotw);
}

async fn follows_http_policy(variant: Variant) {
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("other.yaml", &routes("other", "    - {name: other, pathRegex: '/other'}"))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        // Remains when the first target is removed, so that alice's sidecar still routes her
        // requests and the server's sidecar refuses them.
        .with("alice-other.yaml", &allow("alice-other", "alice", &["HTTPRouteGroup/other"]));
    let lab = start_with(&mesh, |options| options.variant = variant).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, DENIED);

    lab.apply("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", "200").await;

    // Alice sends requests over one connection while her access is removed. Requests alternate
    // between the servers, which get the update one after the other.
    let args = ["--url", "http://web.servers/", "--keep-alive", "--count", "100000", "--interval", "20ms"];
    let mut calls = lab.call("clients/alice", &args);
    calls.more(20, SETTLE).await.unwrap();
    let before = connections(&lab, "clients/alice", "servers/web|80").await;
    lab.remove("alice.yaml").await.unwrap();
    let refused = "alice to be refused by both servers";
    calls
        .until(refused, SETTLE, |results| results.iter().rev().take(20).all(|one| one.status == Some(403)))
        .await
        .unwrap();
    let after = connections(&lab, "clients/alice", "servers/web|80").await;
    let results = calls.stop();
    for result in &results {
        assert!(matches!(result.status, Some(200 | 403)), "{variant:?} {result:?}");
        assert_eq!(result.connection, 1, "{variant:?}: alice had to connect again: {result:?}");
    }
    assert!(results[..20].iter().all(|result| result.status == Some(200)), "{variant:?}");
    assert_eq!(before, after, "{variant:?}: her sidecar had to connect again");
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/other").await, "200");
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "200");

    lab.apply("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    lab.stop().await.unwrap();
}

/// Policy is asked when a request begins, and a chunked response, a watch or a websocket may go on for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_longer_allowed_ends_in_bounded_time() {
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("other.yaml", &routes("other", "    - {name: other, pathRegex: '/other'}"))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-other.yaml", &allow("alice-other", "alice", &["HTTPRouteGroup/other"]));
    let lab = start_with(&mesh, |options| {
        options.controller_args = ["--max-stream-duration", "12s"].map(str::to_owned).to_vec();
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let url = "http://web.servers/stream/50000";
    let mut stream = lab.call("clients/alice", &["--url", url, "--timeout", "55s"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.remove("alice.yaml").await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "403").await;
    stream.more(1, SETTLE).await.unwrap();
    let result = stream.stop().remove(0);
    assert_eq!(result.status, Some(200), "it began while it was allowed: {result:?}");
    assert!(result.failure.is_some(), "the body was interrupted: {result:?}");
    assert!((11_000..20_000).contains(&result.millis), "{result:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissive_switch_works_both_ways_and_broken_yaml_changes_nothing() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(false))).await;
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, DENIED);
    lab.apply("mesh-config.yaml", &mesh_config(true)).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", "200").await;

    lab.apply("mesh-config.yaml", "kind: MeshConfig\nspec: [unbalanced\n").await.unwrap();
    eventually("the broken file is a problem", async || {
        let problems = lab.smc_json(&["mesh", "problems"]).await.map_err(|error| error.chain())?.to_string();
        if problems.contains("mesh-config.yaml") { Ok(()) } else { Err(problems) }
    })
    .await;
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "200");

    lab.apply("mesh-config.yaml", &mesh_config(false)).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", DENIED).await;
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_are_followed() {
    let mesh = Mesh::web().with("mesh-config.yaml", &mesh_config(true));
    let lab = start(&mesh).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    lab.apply("pod-web-v3.yaml", &pod("servers", "web-v3", "web")).await.unwrap();
    lab.wait_ready("servers/web-v3", crate::SETTLE).await.unwrap();
    eventually_answering(&lab, &["web-v1", "web-v2", "web-v3"]).await;
    lab.remove("pod-web-v1.yaml").await.unwrap();
    lab.wait_gone("servers/web-v1", crate::SETTLE).await.unwrap();
    eventually_answering(&lab, &["web-v2", "web-v3"]).await;
    lab.stop().await.unwrap();
}
