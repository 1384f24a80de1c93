//! Tests UpstreamTrafficSettings: how many requests and connections each sidecar of a service lets in over
//! time, which of them count, and that no edit of other policy gives a caller more.

use std::time::Duration;

use smc_lab::{FetchResult, LabHandle};
use tokio::time::Instant;

use crate::eventually::{eventually, eventually_get};
use crate::ingress::{GATEWAY, ingress, mesh};
use crate::mesh::{Mesh, allow, mesh_config, routes, upstream_setting};
use crate::metrics::counter;
use crate::{hello, start};

const SERVER: &str = "http://web-v1.servers";

/// Some requests one after the other.
async fn requests(lab: &LabHandle, pod: &str, url: &str, count: usize) -> Vec<FetchResult> {
    let args = ["--url", url, "--count", &count.to_string()];
    let results = lab.fetch(pod, &args).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(results.len(), count);
    results
}

/// How many of them have this status.
fn with(results: &[FetchResult], status: u16) -> usize {
    results.iter().filter(|result| result.status == Some(status)).count()
}

/// Waits until a limit is in effect by which the answer has this header `x-limit`, and returns how many
/// requests were let in since the call.
async fn let_in_until(lab: &LabHandle, pod: &str, path: &str, edition: &str) -> usize {
    let (url, mut let_in) = (format!("{SERVER}{path}"), 0);
    let mut refused = async || {
        let results = requests(lab, pod, &url, 1).await;
        if results[0].headers.get("x-limit").is_some_and(|seen| seen == edition) {
            return Ok(());
        }
        let_in += with(&results, 200);
        Err(format!("{results:?}"))
    };
    eventually(&format!("edition {edition} refuses"), &mut refused).await;
    let_in
}

/// A limit of requests whose answer says of which edition it is.
fn limit(amount: u32, unit: &str, edition: &str) -> String {
    format!("requests: {amount}, unit: {unit}, responseHeadersToAdd: [{{name: x-limit, value: {edition}}}]")
}

fn service_limit(limit: &str) -> String {
    upstream_setting("web-v1", &format!("rateLimit: {{local: {{http: {{{limit}}}}}}}"))
}

/// The same, with another limit for a path.
fn with_path(service: &str, path: &str) -> String {
    let lines = format!(
        "rateLimit: {{local: {{http: {{{service}}}}}}}
  httpRoutes: [{{path: /status/200, rateLimit: {{local: {{{path}}}}}}}]"
    );
    upstream_setting("web-v1", &lines)
}

/// OSM's guide on local rate limits: three in a minute, a burst, a path.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_lets_in_so_many_requests_in_a_unit_of_time() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    let get = format!("{SERVER}/");
    eventually_get(&lab, "clients/alice", &get, "200").await;
    lab.apply("limit.yaml", &service_limit(&limit(3, "hour", "one"))).await.unwrap();
    let_in_until(&lab, "clients/alice", "/", "one").await;
    // What the sidecar of the service counts is the same for all callers, over new connections, too.
    let refused = requests(&lab, "clients/bob", &get, 10).await;
    assert_eq!(with(&refused, 429), 10, "{refused:?}");
    assert_eq!(refused[0].body, "local_rate_limited");
    let count = "inbound_8080_http.http_local_rate_limit.rate_limited";
    assert!(counter(&lab, "servers/web-v1", count).await >= 11);
    // Other pods, and the same pod by the name of a service without a limit.
    for url in ["http://web-v2.servers/", "http://web.servers/"] {
        let results = requests(&lab, "clients/alice", url, 20).await;
        assert_eq!(with(&results, 200), 20, "{url}: {results:?}");
    }

    // An edit of the limit itself begins with a full bucket, which the burst makes larger.
    let burst = limit(3, "hour", "two") + ", burst: 7, responseStatusCode: 503";
    lab.apply("limit.yaml", &service_limit(&burst)).await.unwrap();
    let let_in = let_in_until(&lab, "clients/alice", "/", "two").await;
    assert!((10..=11).contains(&let_in), "{let_in}");
    let refused = requests(&lab, "clients/alice", &get, 1).await;
    assert_eq!(with(&refused, 503), 1, "{refused:?}");
    let grpc = lab.fetch("clients/alice", &["--url", "http://web-v1.servers:90/", "--grpc"]).await.unwrap();
    assert_eq!(grpc[0].status, Some(200), "another port has buckets of its own: {grpc:?}");

    // A path counts by itself, and what it lets in the service does not count.
    lab.apply("limit.yaml", &with_path(&limit(4, "hour", "three"), &limit(2, "hour", "three")))
        .await
        .unwrap();
    let let_in = let_in_until(&lab, "clients/alice", "/", "three").await;
    assert!((4..=5).contains(&let_in), "{let_in}");
    let let_in = let_in_until(&lab, "clients/alice", "/status/200?a=b", "three").await;
    assert_eq!(let_in, 2);
    // Another answer is a filter of its own, which connections from before do not have.
    let other = limit(2, "hour", "four") + ", responseStatusCode: 503";
    lab.apply("limit.yaml", &with_path(&limit(4, "hour", "three"), &other)).await.unwrap();
    let_in_until(&lab, "clients/alice", "/status/200", "four").await;
    let refused = requests(&lab, "clients/alice", &format!("{SERVER}/status/200"), 10).await;
    assert_eq!(with(&refused, 503), 10, "{refused:?}");

    // The connections that are drained then have the filter as long as there are any.
    lab.remove("limit.yaml").await.unwrap();
    let drained = Instant::now() + Duration::from_secs(6);
    eventually("nothing is refused any more", async || {
        let results = requests(&lab, "clients/alice", &get, 20).await;
        assert_eq!(with(&results, 200) + with(&results, 429), 20, "{results:?}");
        if with(&results, 200) == 20 && Instant::now() > drained {
            Ok(())
        } else {
            Err(format!("{results:?}"))
        }
    })
    .await;
    lab.stop().await.unwrap();
}

/// The route configuration changes with each: Envoy would begin with full buckets, were they there.
#[tokio::test(flavor = "multi_thread")]
async fn no_edit_of_other_policy_lets_more_in_and_denied_callers_use_up_nothing() {
    let group =
        |edit: u32| routes("any", &format!("    - {{name: any, pathRegex: '/({edit})?.*', methods: ['*']}}"));
    let lab = start(
        &Mesh::web()
            .with("any.yaml", &group(0))
            .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"])),
    )
    .await;
    let get = format!("{SERVER}/");
    eventually_get(&lab, "clients/alice", &get, "200").await;
    lab.apply("limit.yaml", &with_path(&limit(30, "hour", "one"), &limit(3, "hour", "path"))).await.unwrap();
    // The path says when the limits are there, without using up that of the service.
    let_in_until(&lab, "clients/alice", "/status/200", "path").await;
    let denied = requests(&lab, "clients/bob", &get, 60).await;
    assert_eq!(with(&denied, 200) + with(&denied, 429), 0, "{denied:?}");
    let let_in = let_in_until(&lab, "clients/alice", "/", "one").await;
    assert_eq!(let_in, 30);

    let updates = async || {
        counter(&lab, "servers/web-v1", "http.inbound_8080_http.rds.inbound_8080_http.config_reload").await
    };
    let before = updates().await;
    let mut let_in = 0;
    for edit in 1..=10 {
        lab.apply("any.yaml", &group(edit)).await.unwrap();
        eventually("the edit arrives", async || {
            if updates().await >= before + u64::from(edit) { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        for path in ["/", "/status/200"] {
            let results = requests(&lab, "clients/alice", &format!("{SERVER}{path}"), 5).await;
            let_in += with(&results, 200);
            assert_eq!(with(&results, 200) + with(&results, 429), 5, "{results:?}");
        }
    }
    // Thirty in an hour are one in two minutes.
    assert!(let_in <= 1, "{let_in} more were let in");
    lab.stop().await.unwrap();
}

/// Each by its own name, whatever the answers are.
#[tokio::test(flavor = "multi_thread")]
async fn services_that_share_a_port_are_limited_each_by_its_own_name() {
    let setting = |service: &str, amount: u32, status: u16| {
        let limit = format!("requests: {amount}, unit: hour, responseStatusCode: {status}");
        upstream_setting(service, &format!("rateLimit: {{local: {{http: {{{limit}}}}}}}"))
    };
    let mesh = Mesh::web()
        .with("mesh-config.yaml", &mesh_config(true))
        .with("peers.yaml", &setting("peers", 1, 429))
        .with("web.yaml", &setting("web", 2, 500))
        .with("web-v1.yaml", &setting("web-v1", 6, 503));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", &format!("{SERVER}/"), "503").await;
    // The limit of another service of the port is untouched, and its filter counts none of these.
    let refused = requests(&lab, "clients/bob", &format!("{SERVER}/"), 10).await;
    assert_eq!(with(&refused, 503), 10, "{refused:?}");
    let refused = requests(&lab, "clients/bob", "http://web.servers/", 20).await;
    assert_eq!((with(&refused, 200), with(&refused, 500)), (4, 16), "two in each of two pods: {refused:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_in_from_outside_is_limited_as_well() {
    let lab = start(&mesh().with("ingress.yaml", &ingress("way", "http", "", GATEWAY))).await;
    let address = lab.pod_ip("servers/web-v1").await.unwrap();
    let target = if address.is_ipv6() {
        format!("http://[{address}]:8080/")
    } else {
        format!("http://{address}:8080/")
    };
    eventually_get(&lab, "edge/gateway", &target, "200").await;
    // Of a service that is not the one that the IngressBackend names, and leads to the same port.
    lab.apply("limit.yaml", &service_limit(&limit(5, "hour", "one"))).await.unwrap();
    eventually("the gateway is limited", async || {
        let results = requests(&lab, "edge/gateway", &target, 10).await;
        if with(&results, 429) >= 5 { Ok(()) } else { Err(format!("{results:?}")) }
    })
    .await;
    // Who is denied is denied, and uses up nothing of the mesh's either.
    let let_in = let_in_until(&lab, "clients/alice", "/", "one").await;
    assert!(let_in >= 5, "{let_in}");
    lab.stop().await.unwrap();
}

/// How many connections to the server's port without HTTP are answered, until one is not.
async fn connections(lab: &LabHandle) -> usize {
    for count in 0..50 {
        if hello(lab, "clients/alice", "web-v1.servers:7000").await != "answered" {
            return count;
        }
    }
    50
}

fn connection_limit(amount: u32) -> String {
    let limit = format!("{{connections: {amount}, unit: hour}}");
    upstream_setting("web-v1", &format!("rateLimit: {{local: {{tcp: {limit}}}}}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_lets_in_so_many_connections_in_a_unit_of_time() {
    let mesh = Mesh::open_to_alice();
    let lab = start(&mesh).await;
    let url = format!("{SERVER}/");
    eventually_get(&lab, "clients/alice", &url, "200").await;
    assert_eq!(connections(&lab).await, 50);
    lab.apply("limit.yaml", &connection_limit(10)).await.unwrap();
    eventually("a connection is refused", async || {
        if connections(&lab).await < 50 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
    assert_eq!(connections(&lab).await, 0);
    let refused = "local_rate_limit.inbound_7000_tcp.rate_limited";
    assert!(counter(&lab, "servers/web-v1", refused).await > 0);
    assert!(lab.logs("servers/web-v1", "envoy").unwrap().contains("URX"), "a refusal is logged");

    // Other policy fills no bucket.
    lab.apply("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/bob", &url, "200").await;
    assert_eq!(connections(&lab).await, 0);
    let of_http = counter(&lab, "servers/web-v1", "local_rate_limit.inbound_8080_http.rate_limited").await;
    assert_eq!(of_http, 0, "each port has a bucket of its own");

    // Another number is another bucket, which is full.
    lab.apply("limit.yaml", &connection_limit(20)).await.unwrap();
    eventually("the larger limit", async || match connections(&lab).await {
        0 => Err("nothing is let in".to_owned()),
        20 => Ok(()),
        other => panic!("{other} are let in"),
    })
    .await;

    lab.remove("limit.yaml").await.unwrap();
    eventually("nothing is refused any more", async || match connections(&lab).await {
        50 => Ok(()),
        other => Err(format!("{other}")),
    })
    .await;
    lab.stop().await.unwrap();
}
