//! Tests what the lab's `ready` promises, and its commands that break the controller.

use std::process::Command;

use smc_lab::{Lab, beside};

use crate::eventually::eventually_answering;
use crate::mesh::{Mesh, allow, any_route, pod};
use crate::{SETTLE, get, start};

fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
}

/// Without a wait: the lab calls a Pod ready once its callers know it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_pod_that_is_ready_succeeds_at_once() {
    let lab = start(&mesh()).await;
    assert_eq!(get(&lab, "clients/alice", "http://web-v2.servers/").await, "200", "at the start");
    for round in 1..=3 {
        lab.remove("pod-web-v2.yaml").await.unwrap();
        lab.wait_gone("servers/web-v2", SETTLE).await.unwrap();
        lab.apply("pod-web-v2.yaml", &pod("servers", "web-v2", "web")).await.unwrap();
        lab.wait_ready("servers/web-v2", SETTLE).await.unwrap();
        assert_eq!(get(&lab, "clients/alice", "http://web-v2.servers/").await, "200", "round {round}");
    }
    lab.stop().await.unwrap();
}

fn controller(lab: &Lab, args: &[&str]) -> (bool, String) {
    let output = Command::new(beside("smc-lab").unwrap())
        .args([&["controller"][..], args, &["--name", lab.name()]].concat())
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_is_killed_stopped_and_started_by_commands() {
    let lab = start(&mesh()).await;
    for (action, status) in [("kill", "signal: 9"), ("stop", "exit status: 0")] {
        let (ended, printed) = controller(&lab, &[action]);
        assert!(ended && printed.contains(status), "{action}: {printed}");
        assert_ne!(lab.smc(&["proxy", "list"]).await.unwrap().status, 0, "it still answers");
        let (again, printed) = controller(&lab, &[action]);
        assert!(!again, "{action}: {printed}");
        let (started, printed) = controller(&lab, &["start", "0"]);
        assert!(started && printed.contains("ready"), "{printed}");
        assert_eq!(lab.smc(&["proxy", "list"]).await.unwrap().status, 0);
    }
    let (unknown, printed) = controller(&lab, &["kill", "7"]);
    assert!(!unknown && printed.contains('7'), "{printed}");
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    lab.stop().await.unwrap();
}
