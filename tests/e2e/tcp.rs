//! Tests TCP policy: enforced before the application sees a connection, and followed while
//! connections are open.

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, tcp_route};
use crate::{DENIED, SETTLE, VARIANTS, hello, start_with, tcp_outcome};
use smc_lab::{LabHandle, Variant};

const SERVERS: [&str; 2] = ["servers/web-v1", "servers/web-v2"];

/// Enough tries to reach both servers, which alternate.
const TRIES: u32 = 6;

/// Waits for the greeting of the server that speaks first, and returns the outcome.
async fn greeted(lab: &LabHandle, pod: &str) -> String {
    let args = ["web.servers:7001", "--read-first", "--send", "hello"];
    tcp_outcome(&lab.tcp(pod, &args).await.unwrap())
}

/// Returns how many TCP connections the applications of both servers have accepted.
fn accepted(lab: &LabHandle) -> usize {
    let logs = SERVERS.map(|pod| lab.logs(pod, "echo").unwrap());
    logs.iter().flat_map(|log| log.lines()).filter(|line| line.starts_with("accepted ")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_grant_never_reaches_a_server_that_speaks_first() {
    let [delta, sotw] = VARIANTS.map(follows_tcp_policy);
    tokio::join!(delta, sotw);
}

async fn follows_tcp_policy(variant: Variant) {
    // Alice may use the service over HTTP, so her own sidecar forwards her TCP connections to it:
    // the server's sidecar refuses them.
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000, 7001]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start_with(&mesh, |options| options.variant = variant).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;

    for _ in 0..TRIES {
        for pod in ["clients/alice", "clients/bob"] {
            assert_eq!(greeted(&lab, pod).await, DENIED, "{variant:?} {pod}");
            assert_eq!(hello(&lab, pod, "web.servers:7000").await, DENIED, "{variant:?} {pod}");
        }
    }
    assert_eq!(accepted(&lab), 0, "{variant:?}: an application was connected");
    eventually("the log of a server tells who was refused", async || {
        let logs = SERVERS.map(|pod| lab.logs(pod, "envoy").unwrap());
        let refused = |line: &&str| {
            line.contains("/ns/clients/sa/alice\"") && line.contains("\"tls_failure\":\"TLS_error")
        };
        let found = logs.iter().flat_map(|log| log.lines()).any(|line| refused(&line));
        if found { Ok(()) } else { Err(logs.join("\n")) }
    })
    .await;

    let grant = allow("alice-tcp", "alice", &["TCPRoute/lines"]);
    lab.apply("alice-tcp.yaml", &grant).await.unwrap();
    eventually_alice_is(&lab, "answered").await;
    assert!(accepted(&lab) > 0);
    assert_eq!(greeted(&lab, "clients/bob").await, DENIED, "{variant:?}");
    let mut open = lab.connect_tcp("clients/alice", "web.servers:7000");
    assert_eq!(tcp_outcome(&open.send_line("hello").await.unwrap()), "answered", "{variant:?}");

    lab.remove("alice-tcp.yaml").await.unwrap();
    eventually_alice_is(&lab, DENIED).await;
    let before = accepted(&lab);
    for _ in 0..TRIES {
        assert_eq!(greeted(&lab, "clients/alice").await, DENIED, "{variant:?}");
        assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, DENIED, "{variant:?}");
    }
    assert_eq!(accepted(&lab), before, "{variant:?}: an application was connected");
    // An open connection ends when the filter chain that accepted it has drained.
    let ended = async {
        while open.send_line("still there?").await.is_ok_and(|result| result.failure.is_none()) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(SETTLE, ended).await.expect("the open connection ends");
    assert_eq!(crate::get(&lab, "clients/alice", "http://web.servers/").await, "200", "{variant:?}");

    lab.apply("alice-tcp.yaml", &grant).await.unwrap();
    eventually_alice_is(&lab, "answered").await;
    lab.stop().await.unwrap();
}

/// Waits until both servers give alice this outcome on both ports.
async fn eventually_alice_is(lab: &LabHandle, expected: &str) {
    eventually(&format!("alice is {expected} by both servers"), async || {
        for _ in 0..TRIES {
            let hello = hello(lab, "clients/alice", "web.servers:7000").await;
            let greeted = greeted(lab, "clients/alice").await;
            if [&*hello, &*greeted] != [expected; 2] {
                return Err(format!("{hello}, {greeted}"));
            }
        }
        Ok(())
    })
    .await;
}
