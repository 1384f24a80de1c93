//! Tests what callers notice of a node that is lost without a word: packets to and from one of two pods
//! vanish, no connection is closed, and Kubernetes takes the pod for ready.

use std::time::Duration;

use smc_lab::{FetchResult, LabHandle};
use tokio::time::Instant;

use crate::eventually::{eventually, eventually_by, eventually_get};
use crate::mesh::{Mesh, mesh_config};
use crate::{start, tcp_outcome};

/// The pods of the service, of which the first is lost.
const PODS: [&str; 2] = ["web-v1", "web-v2"];

/// In which a request is answered, or fails.
const ANSWERED: Duration = Duration::from_secs(7);

/// In which two connections time out, one after the other, and an idle one is given up.
const NOTICED: Duration = Duration::from_secs(20);

/// In which a request is answered that meets no lost pod, on a busy machine.
const PROMPT: Duration = Duration::from_secs(3);

/// After which a pod that is back gets requests again: it is left out for half a minute, and Envoy looks
/// every ten seconds.
const LEFT_OUT: Duration = Duration::from_mins(1);

/// How long a client waits, so that the sidecar's answer is seen.
const PATIENCE: &str = "20s";

/// A gRPC call, on the one connection that a sidecar has with each pod.
const GRPC: [&str; 5] = ["--grpc", "--url", "http://web.servers:90/echo.Echo/Say", "--body", "hello"];

/// A request over HTTP/1.1.
const HTTP: [&str; 2] = ["--url", "http://web.servers/"];

/// A line over TCP.
const LINES: [&str; 5] = ["web.servers:7000", "--send", "hello", "--timeout", PATIENCE];

async fn calls(lab: &LabHandle, call: &[&str], count: &str) -> Vec<FetchResult> {
    let more = ["--count", count, "--interval", "50ms", "--timeout", PATIENCE];
    lab.fetch("clients/alice", &[call, &more].concat()).await.unwrap()
}

fn took(result: &FetchResult) -> Duration {
    Duration::from_millis(result.millis)
}

/// Whether both pods answer, and nothing fails.
async fn both_answer(lab: &LabHandle, call: &[&str]) -> Result<(), String> {
    let results = calls(lab, call, "20").await;
    let pods = results.iter().map(|result| match (result.status, result.pod()) {
        (Some(200), Some(pod)) => Ok(pod.to_owned()),
        _ => Err(format!("{result:?}")),
    });
    let mut pods = pods.collect::<Result<Vec<_>, _>>()?;
    pods.sort();
    pods.dedup();
    if pods == PODS { Ok(()) } else { Err(format!("{pods:?}")) }
}

/// Loses (`-I`) or finds (`-D`) the node of a pod.
pub(crate) async fn change(lab: &LabHandle, action: &str, pod: &str) {
    let address = lab.pod_ip(pod).await.unwrap().to_string();
    for end in ["-d", "-s"] {
        let command = ["iptables", "--wait", "5", action, "FORWARD", end, &address, "-j", "DROP"];
        let changed = lab.exec_on_node(&command).await.unwrap();
        assert_eq!(changed.status, 0, "{changed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_lost_without_a_word_is_avoided_until_it_is_back() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    for call in [&GRPC[..], &HTTP] {
        eventually("both pods answer", async || both_answer(&lab, call).await).await;
    }
    let mut silent = lab.connect_tcp("clients/alice", "web-v1.servers:7000");
    assert!(silent.send_line("hello").await.unwrap().reply.is_some());

    change(&lab, "-I", "servers/web-v1").await;
    let lost = Instant::now();
    while lost.elapsed() < NOTICED {
        for result in calls(&lab, &GRPC, "10").await {
            assert!(took(&result) < ANSWERED, "{:?} after the loss: {result:?}", lost.elapsed());
        }
    }
    for call in [&GRPC[..], &HTTP] {
        // The first ones over HTTP/1.1 find no connection that lives, and try to make one.
        for (count, limit) in [("6", ANSWERED), ("40", PROMPT)] {
            for result in calls(&lab, call, count).await {
                assert_eq!((result.status, result.pod()), (Some(200), Some(PODS[1])), "{result:?}");
                assert!(took(&result) < limit, "{result:?}");
            }
        }
    }
    for (count, limit) in [(6, ANSWERED), (20, PROMPT)] {
        for _ in 0..count {
            let start = Instant::now();
            let answered = lab.tcp("clients/alice", &LINES).await.unwrap();
            assert_eq!(tcp_outcome(&answered), "answered", "{:?}", start.elapsed());
            assert!(start.elapsed() < limit, "{:?}", start.elapsed());
        }
    }
    let said = tokio::time::timeout(PROMPT, silent.send_line("still there?")).await;
    let closed = said.expect("the connection is closed").is_ok_and(|result| result.failure.is_some());
    assert!(closed, "a connection on which nothing was sent is known to be dead");

    change(&lab, "-D", "servers/web-v1").await;
    let back = Instant::now() + LEFT_OUT;
    for call in [&GRPC[..], &HTTP] {
        eventually_by(back, "both pods answer again", async || both_answer(&lab, call).await).await;
    }
    lab.stop().await.unwrap();
}
