//! The way out of the mesh: a switch, and no way around policy.

use crate::mesh::{Mesh, allow, any_route, egress};
use crate::{DENIED, eventually_get, fetch, get, hello, start};

#[tokio::test(flavor = "multi_thread")]
async fn egress_opens_the_way_to_strangers_and_to_no_service_that_one_may_not_use() {
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
    // It leaves as it was: nothing that the mesh adds to requests.
    let seen = fetch(&lab, "clients/alice", &["--url", &outside]).await;
    assert_eq!(seen.pod(), Some("stranger"));
    assert!(!seen.body["headers"].to_string().contains("x-forwarded"), "{seen:?}");
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");
    // No way in for bob by going around.
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
