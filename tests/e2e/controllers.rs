//! What controllers obey of a MeshConfig while they run: how much they log, and how many sidecars they serve.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_lab::LabHandle;

use crate::eventually::eventually;
use crate::mesh::{Mesh, allow, any_route, pod, settings};
use crate::{get, start};

/// A line that a controller logs at `debug` for each acknowledged update.
const DEBUG_LINE: &str = "update acknowledged";

/// How often the controller has logged such a line.
fn logged(lab: &LabHandle) -> usize {
    lab.controller_logs().unwrap().matches(DEBUG_LINE).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_of_the_mesh_config_is_obeyed_at_once() {
    let lab = start(&Mesh::web()).await;
    assert_eq!(logged(&lab), 0);
    let level = |name: &str| settings(&format!("observability: {{osmLogLevel: {name}}}"));
    let said = async |words: &str| {
        eventually(words, async || {
            let log = lab.controller_logs().unwrap();
            if log.contains(words) { Ok(()) } else { Err(log.lines().last().unwrap_or_default().to_owned()) }
        })
        .await;
    };
    lab.apply("mesh-config.yaml", &level("debug")).await.unwrap();
    said("the MeshConfig has changed the log level level=\"debug\"").await;
    // What concerns sidecars is logged now.
    lab.apply("pod-late.yaml", &pod("servers", "late", "late")).await.unwrap();
    lab.wait_ready("servers/late", crate::SETTLE).await.unwrap();
    assert!(logged(&lab) > 0);
    lab.remove("mesh-config.yaml").await.unwrap();
    said("the MeshConfig has changed the log level level=\"that of the flag\"").await;
    let before = logged(&lab);
    lab.remove("pod-late.yaml").await.unwrap();
    lab.apply("pod-later.yaml", &pod("servers", "later", "later")).await.unwrap();
    lab.wait_ready("servers/later", crate::SETTLE).await.unwrap();
    assert_eq!(logged(&lab), before);
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_serves_as_many_sidecars_as_the_mesh_config_says() {
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    let most = |number: usize| settings(&format!("sidecar: {{maxDataPlaneConnections: {number}}}"));
    // The streams, by the address and port of the proxy: one that is opened again has another port.
    let streams = async || {
        let listed = lab.smc_json(&["proxy", "list"]).await.unwrap();
        let proxies = listed["proxies"].as_array().cloned().unwrap_or_default();
        let streams = proxies.iter().filter_map(|proxy| proxy["streams"].as_array()).flatten();
        streams.map(|stream| stream["peer"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let before = streams().await;
    let connected = before.len();
    assert!(connected > 1);
    // Fewer than there are: none of them is dropped, and updates go on.
    lab.apply("mesh-config.yaml", &most(1)).await.unwrap();
    lab.sync().await.unwrap();
    lab.remove("alice.yaml").await.unwrap();
    eventually("the change of policy", async || {
        let found = get(&lab, "clients/alice", "http://web-v1.servers/").await;
        if found == crate::DENIED || found == "404" { Ok(()) } else { Err(found) }
    })
    .await;
    assert_eq!(streams().await, before);
    // Another is refused, until the limit allows it.
    lab.apply("pod-late.yaml", &pod("servers", "late", "late")).await.unwrap();
    eventually("a refusal", async || {
        let log = lab.controller_logs().unwrap();
        if log.contains("the most that sidecar.maxDataPlaneConnections") {
            Ok(())
        } else {
            Err(String::new())
        }
    })
    .await;
    assert!(lab.wait_ready("servers/late", Duration::from_secs(1)).await.is_err());
    lab.apply("mesh-config.yaml", &most(connected + 1)).await.unwrap();
    lab.wait_ready("servers/late", Duration::from_mins(1)).await.unwrap();
    let after = streams().await;
    assert!(after.is_superset(&before) && after.len() == connected + 1, "{before:?}, {after:?}");
    lab.stop().await.unwrap();
}
