//! Tests UpstreamTrafficSettings: what each caller's sidecar asks of a service at a time, and that an edit of
//! them, or of Retries, ends nothing that is under way.

use std::time::Duration;

use smc_lab::LabHandle;
use smc_lab::tools::LoadResult;
use tokio::time::{Instant, sleep};

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, connection_settings, mesh_config, retry, upstream_setting};
use crate::metrics::counter;
use crate::{DENIED, fetch, start, tcp_outcome};

/// OSM's guide on circuit breaking.
const ONE: &str =
    "tcp: {maxConnections: 1}, http: {maxRequests: 1, maxPendingRequests: 1, maxRequestsPerConnection: 1}";

/// Twenty connections that ask a slow path for a while.
async fn load(lab: &LabHandle, pod: &str) -> LoadResult {
    let args = ["--url", "http://web-v1.servers/delay/100", "--connections", "20", "--duration", "2s"];
    lab.load(pod, &args).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_asks_no_more_at_a_time_than_a_service_can_bear() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let free = load(&lab, "clients/alice").await;
    assert_eq!(free.failures, 0, "{free:?}");

    lab.apply("setting.yaml", &connection_settings(ONE)).await.unwrap();
    eventually("some requests are refused", async || {
        let bound = load(&lab, "clients/alice").await;
        if bound.failures > 0 { Ok(()) } else { Err(format!("{bound:?}")) }
    })
    .await;
    let bound = load(&lab, "clients/alice").await;
    // One at a time takes a tenth of a second each, and one may wait beside it.
    assert!((5..=45).contains(&bound.requests), "{bound:?}");
    assert!(bound.failures > 0 && bound.error.as_ref().is_some_and(|why| why.contains("503")), "{bound:?}");
    let of_cluster =
        async |what: &str| counter(&lab, "clients/alice", &format!("cluster.servers/web-v1|80.{what}")).await;
    assert!(of_cluster("upstream_rq_pending_overflow").await > 0);
    // No other service, and a caller that asks one after the other is never refused.
    for url in ["http://web-v2.servers/", "http://web-v1.servers/"] {
        let args = ["--url", url, "--count", "30"];
        let results = lab.fetch("clients/alice", &args).await.unwrap();
        assert!(results.iter().all(|result| result.status == Some(200)), "{results:?}");
    }

    assert!(of_cluster("upstream_cx_max_requests").await > 0);

    // Over TCP, too; each caller's sidecar counts for itself.
    let mut first = lab.connect_tcp("clients/alice", "web-v1.servers:7000");
    assert!(first.send_line("hello").await.unwrap().reply.is_some());
    let lines = ["web-v1.servers:7000", "--send", "hello", "--timeout", "5s"];
    assert_eq!(tcp_outcome(&lab.tcp("clients/alice", &lines).await.unwrap()), DENIED);
    assert_eq!(tcp_outcome(&lab.tcp("clients/bob", &lines).await.unwrap()), "answered");
    assert!(first.send_line("again").await.unwrap().reply.is_some());

    lab.remove("setting.yaml").await.unwrap();
    eventually("nothing is refused any more", async || {
        let free = load(&lab, "clients/alice").await;
        if free.failures == 0 && free.requests > 100 { Ok(()) } else { Err(format!("{free:?}")) }
    })
    .await;
    lab.stop().await.unwrap();
}

/// How many edits, and how long the answer goes on that is under way meanwhile, in milliseconds.
const EDITS: u32 = 100;
const STREAM_MS: u32 = 25_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_edits_of_limits_and_retries_end_nothing_that_is_under_way() {
    // The filter is there with the first limit; its buckets are what the edits change.
    let setting = |edit: u32| {
        let lines = format!(
            "connectionSettings: {{tcp: {{maxConnections: {}}}, http: {{maxRequests: {}}}}}
  rateLimit: {{local: {{http: {{requests: {}, unit: second}}}}}}
  httpRoutes: [{{path: /some, rateLimit: {{local: {{requests: {}, unit: second}}}}}}]",
            10 + edit,
            20 + edit,
            100 + edit,
            1 + edit,
        );
        upstream_setting("web-v1", &lines)
    };
    let mesh = Mesh::web().with("mesh-config.yaml", &mesh_config(true)).with("setting.yaml", &setting(0));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let mut lines = lab.connect_tcp("clients/alice", "web-v1.servers:7000");
    assert!(lines.send_line("hello").await.unwrap().reply.is_some());
    let (url, begun) = (format!("http://web-v1.servers/stream/{STREAM_MS}"), Instant::now());
    let args = ["--url", &url, "--timeout", "60s"];
    let stream = async { (fetch(&lab, "clients/alice", &args).await, begun.elapsed()) };
    let edits = async {
        for edit in 1..=EDITS {
            lab.apply("setting.yaml", &setting(edit)).await.unwrap();
            let retries = retry(&format!("retryOn: 5xx, numRetries: {}", edit % 10));
            lab.apply("retry.yaml", &retries).await.unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    };
    let ((result, ended), edited) = tokio::join!(stream, edits);
    assert!(ended > edited, "the answer went on for {ended:?}, the edits for {edited:?}");
    let updates = counter(&lab, "clients/alice", "cluster_manager.cluster_modified").await;
    assert!(updates >= u64::from(EDITS / 4), "edits that came together are one: {updates}");
    let limits =
        "extension_config_discovery.http_filter.rate_limit_inbound_8080_http_servers/web-v1.config_reload";
    let updates = counter(&lab, "servers/web-v1", limits).await;
    assert!(updates >= u64::from(EDITS / 4), "edits that came together are one: {updates}");
    assert_eq!((result.status, result.failure), (Some(200), None), "{result:?}");
    assert!(lines.send_line("still here").await.unwrap().reply.is_some());
    lab.stop().await.unwrap();
}
