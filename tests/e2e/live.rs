//! Policy that changes while traffic flows.

use std::time::Duration;

use crate::mesh::{Mesh, allow, any_route, mesh_config, pod};
use crate::{eventually, eventually_get, get, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_comes_lets_in_and_one_that_goes_shuts_out_also_on_an_open_connection() {
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "denied");

    lab.apply("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", "200").await;

    // Alice calls over one connection, some 20 seconds at most, while she is shut out.
    let handle = lab.clone();
    let calls = tokio::spawn(async move {
        let args = ["--url", "http://web.servers/", "--keep-alive", "--count", "400", "--interval", "50ms"];
        handle.fetch("clients/alice", &args).await.unwrap()
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.remove("alice.yaml").await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "denied").await;
    let results = calls.await.unwrap();
    let first_refusal =
        results.iter().position(|result| result.status != Some(200)).expect("alice was never refused");
    assert!(first_refusal > 5, "alice was refused before her target went: {:?}", results[first_refusal]);
    assert!(
        results[first_refusal..].iter().all(|result| result.status != Some(200)),
        "alice got in after she was refused"
    );
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "200");

    lab.apply("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissive_switch_works_both_ways_and_broken_yaml_changes_nothing() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(false))).await;
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "denied");
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
    eventually_get(&lab, "clients/bob", "http://web.servers/", "denied").await;
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_and_go_are_followed() {
    let mesh = Mesh::web().with("mesh-config.yaml", &mesh_config(true));
    let lab = start(&mesh).await;
    let answering = async || {
        let results = lab
            .fetch("clients/alice", &["--url", "http://web.servers/", "--count", "60"])
            .await
            .map_err(|error| error.chain())?;
        let pods: std::collections::BTreeSet<String> =
            results.iter().filter_map(|result| result.pod().map(str::to_owned)).collect();
        Ok::<_, String>(pods.into_iter().collect::<Vec<_>>().join(","))
    };
    let expect = async |expected: &str| {
        eventually(&format!("{expected} answer"), async || {
            let pods = answering().await?;
            if pods == expected { Ok(()) } else { Err(pods) }
        })
        .await;
    };
    expect("web-v1,web-v2").await;
    lab.apply("pod-web-v3.yaml", &pod("servers", "web-v3", "web")).await.unwrap();
    lab.wait_ready("servers/web-v3", crate::SETTLE).await.unwrap();
    expect("web-v1,web-v2,web-v3").await;
    lab.remove("pod-web-v1.yaml").await.unwrap();
    lab.wait_gone("servers/web-v1", crate::SETTLE).await.unwrap();
    expect("web-v2,web-v3").await;
    lab.stop().await.unwrap();
}
