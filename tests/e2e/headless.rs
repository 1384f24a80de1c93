//! Services without an address of their own: clients dial a pod, at the port that it listens on.

use crate::mesh::{Mesh, allow, any_route, tcp_route};
use crate::{eventually_get, get, start};

const PODS: &str = "apiVersion: v1
kind: Service
metadata: {name: pods, namespace: servers}
spec:
  clusterIP: None
  selector: {app: web}
  ports:
    - {name: http, port: 80, targetPort: web}
    - {name: tcp-lines, port: 70, targetPort: 7000}
";

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_headless_service_are_reached_where_they_listen_by_whom_policy_allows() {
    let mesh = Mesh::web()
        .with("pods.yaml", PODS)
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        // Two targets: in one, the ports of the TCPRoute would limit the HTTP routes as well.
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-lines.yaml", &allow("alice-lines", "alice", &["TCPRoute/lines"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://pods.servers:8080/", "200").await;
    let lines = lab.tcp("clients/alice", &["pods.servers:7000", "--send", "hello"]).await.unwrap();
    assert!(lines.reply.as_deref().is_some_and(|reply| reply.contains("hello")), "{lines:?}");
    assert_eq!(get(&lab, "clients/bob", "http://pods.servers:8080/").await, "denied");
    lab.stop().await.unwrap();
}
