//! Tests egress: the switch, and that it does not bypass policy.

use crate::eventually::eventually_get;
use crate::mesh::{Mesh, allow, any_route, egress};
use crate::{DENIED, fetch, get, hello, start};

#[tokio::test(flavor = "multi_thread")]
async fn egress_opens_external_addresses_and_no_service_that_policy_denies() {
    let mesh = Mesh::web()
        .with("mesh-config.yaml", &egress(false))
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let address = async |pod: &str| lab.pod_ip(pod).await.unwrap();
    let (stranger, server) = (address("outside/stranger").await, address("servers/web-v1").await);
    let (outside, lines) = (format!("http://{stranger}:8080/"), format!("{stranger}:7000"));
    for pod in ["clients/alice", "clients/bob"] {
        assert_eq!(get(&lab, pod, &outside).await, DENIED, "{pod}");
        assert_eq!(hello(&lab, pod, &lines).await, DENIED, "{pod}");
    }

    lab.apply("mesh-config.yaml", &egress(true)).await.unwrap();
    for pod in ["clients/alice", "clients/bob"] {
        eventually_get(&lab, pod, &outside, "200").await;
        assert_eq!(hello(&lab, pod, &lines).await, "answered", "{pod}");
    }
    // The request leaves unchanged: the mesh adds no header.
    let seen = fetch(&lab, "clients/alice", &["--url", &outside]).await;
    assert_eq!(seen.pod(), Some("stranger"));
    assert!(!seen.body["headers"].to_string().contains("x-forwarded"), "{seen:?}");
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");
    // Egress gives bob no other path to the servers.
    for url in ["http://web.servers/".to_owned(), format!("http://{server}:8080/")] {
        assert_eq!(get(&lab, "clients/bob", &url).await, DENIED, "{url}");
    }
    for target in ["web.servers:7000".to_owned(), format!("{server}:7000"), format!("{server}:7001")] {
        assert_eq!(hello(&lab, "clients/bob", &target).await, DENIED, "{target}");
    }

    lab.apply("mesh-config.yaml", &egress(false)).await.unwrap();
    for pod in ["clients/alice", "clients/bob"] {
        eventually_get(&lab, pod, &outside, DENIED).await;
        assert_eq!(hello(&lab, pod, &lines).await, DENIED, "{pod}");
    }
    lab.stop().await.unwrap();
}
