//! Tests Retries: which requests are sent again, whose, and how often.

use smc_lab::LabHandle;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, connection_settings, mesh_config, retry};
use crate::metrics::counter;
use crate::{fetch, start};

const SERVER: &str = "http://web-v1.servers";

/// What an application may answer, the last by closing the connection.
const STATUSES: [&str; 9] = [
    "/status/200",
    "/status/404",
    "/status/409",
    "/status/500",
    "/status/502",
    "/status/503",
    "/status/504",
    "/not-processed",
    "/abort",
];

/// How often the application is asked for one request of a pod. It numbers the requests that it gets.
async fn asked(lab: &LabHandle, pod: &str, args: &[&str]) -> Result<u64, String> {
    let number = async || {
        let result = fetch(lab, pod, &["--url", &format!("{SERVER}/")]).await;
        result.body["request"].as_u64().ok_or_else(|| format!("{result:?}"))
    };
    let before = number().await?;
    fetch(lab, pod, args).await;
    Ok(number().await? - before - 1)
}

async fn eventually_asked(lab: &LabHandle, pod: &str, path: &str, expected: u64) {
    let url = format!("{SERVER}{path}");
    eventually(&format!("{pod} asks {path} {expected} times"), async || {
        let count = asked(lab, pod, &["--url", &url]).await?;
        if count == expected { Ok(()) } else { Err(format!("{count} times")) }
    })
    .await;
}

/// OSM's test of the kind, and its guide.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_source_that_fail_are_sent_again_as_often_as_it_says() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    for pod in ["clients/alice", "clients/bob"] {
        eventually_get(&lab, pod, &format!("{SERVER}/"), "200").await;
        eventually_asked(&lab, pod, "/status/503", 1).await;
    }

    let five = "retryOn: 5xx, numRetries: 5, perTryTimeout: 5s, retryBackoffBaseInterval: 1ms";
    lab.apply("retry.yaml", &retry(five)).await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 6).await;
    let post = [&format!("{SERVER}/status/500")[..], "--method", "POST", "--body", "once"];
    for (pod, args, expected) in [
        ("clients/alice", &[&format!("{SERVER}/status/404")[..]][..], 1),
        ("clients/alice", &[&format!("{SERVER}/status/200")[..]], 1),
        ("clients/alice", &post, 6),
        ("clients/bob", &[&format!("{SERVER}/status/503")[..]], 1),
    ] {
        let args = [&["--url"], args].concat();
        assert_eq!(asked(&lab, pod, &args).await, Ok(expected), "{pod} {args:?}");
    }
    let limit = "cluster.servers/web-v1|80.upstream_rq_retry_limit_exceeded";
    assert!(counter(&lab, "clients/alice", limit).await > 0);

    // A time that is over for one try is a reason, too, and no request is without an end.
    let slow = "retryOn: '5xx,reset', numRetries: 2, perTryTimeout: 200ms, retryBackoffBaseInterval: 1ms";
    lab.apply("retry.yaml", &retry(slow)).await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 3).await;
    let late = fetch(&lab, "clients/alice", &["--url", &format!("{SERVER}/delay/20000")]).await;
    assert_eq!(late.status, Some(504), "{late:?}");
    assert!(late.millis < 10_000, "{late:?}");

    for (policy, expected) in [
        ("retryOn: 5xx, numRetries: 0", 1),
        ("retryOn: gateway-error, numRetries: 1, retryBackoffBaseInterval: 1ms", 2),
        ("retryOn: '5xx,no-such-thing', numRetries: 3, retryBackoffBaseInterval: 1ms", 4),
        ("retryOn: no-such-thing, numRetries: 3", 1),
    ] {
        lab.apply("retry.yaml", &retry(policy)).await.unwrap();
        eventually_asked(&lab, "clients/alice", "/status/503", expected).await;
    }
    lab.apply("retry.yaml", &retry(five)).await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 6).await;
    // What the service can bear counts in the place of the budget.
    let settings = connection_settings("http: {maxRetries: 0}");
    lab.apply("settings.yaml", &settings).await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 1).await;
    lab.remove("settings.yaml").await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 6).await;
    let off = mesh_config(true) + "  featureFlags: {enableRetryPolicy: false}\n";
    lab.apply("mesh-config.yaml", &off).await.unwrap();
    eventually_asked(&lab, "clients/alice", "/status/503", 1).await;
    let problems = lab.smc(&["mesh", "problems"]).await.unwrap();
    assert!(problems.stdout.contains("featureFlags.enableRetryPolicy"), "{problems:?}");
    lab.stop().await.unwrap();
}

/// Each condition with what Envoy's documents say of it, and how an answer of an application counts.
#[tokio::test(flavor = "multi_thread")]
async fn each_condition_means_the_answers_that_its_name_says() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", &format!("{SERVER}/"), "200").await;
    for (condition, again) in [
        ("5xx", &STATUSES[3..]),
        ("gateway-error", &STATUSES[4..]),
        ("retriable-4xx", &STATUSES[2..3]),
        ("reset", &[]),
        ("reset-before-request", &[]),
        ("connect-failure", &[]),
        ("refused-stream", &[]),
        ("envoy-ratelimited", &[]),
        ("unavailable", &[]),
    ] {
        // The number tells when a policy has arrived.
        let policy = format!("retryOn: '{condition},5xx', numRetries: 3, retryBackoffBaseInterval: 1ms");
        lab.apply("retry.yaml", &retry(&policy)).await.unwrap();
        eventually_asked(&lab, "clients/alice", "/status/500", 4).await;
        let policy = format!("retryOn: {condition}, numRetries: 1, retryBackoffBaseInterval: 1ms");
        lab.apply("retry.yaml", &retry(&policy)).await.unwrap();
        let of_error = 1 + u64::from(again.contains(&"/status/500"));
        eventually_asked(&lab, "clients/alice", "/status/500", of_error).await;
        for path in STATUSES {
            let expected = 1 + u64::from(again.contains(&path));
            let url = format!("{SERVER}{path}");
            assert_eq!(
                asked(&lab, "clients/alice", &["--url", &url]).await,
                Ok(expected),
                "{condition} {path}"
            );
        }
    }
    lab.stop().await.unwrap();
}
