//! Tests TrafficSplit: shares, matches, shifts.

use std::collections::BTreeMap;

use crate::eventually::eventually;
use crate::mesh::{Mesh, allow, any_route, routes, split};
use crate::start;
use smc_lab::LabHandle;

/// Requests per measured share.
const REQUESTS: u32 = 800;
/// Accepted distance of a share from its expectation, in standard deviations of the binomial
/// distribution: at 5, one test in 1.7 million fails by chance.
const DEVIATIONS: f64 = 5.0;

fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
}

/// Counts the responses of each pod. Every request must succeed.
async fn answers(lab: &LabHandle, url: &str, count: u32, header: Option<&str>) -> BTreeMap<String, u32> {
    try_answers(lab, url, count, header).await.unwrap()
}

/// Counts the responses of each pod; an error if a request failed.
async fn try_answers(
    lab: &LabHandle,
    url: &str,
    count: u32,
    header: Option<&str>,
) -> Result<BTreeMap<String, u32>, String> {
    let count = count.to_string();
    let mut args = vec!["--url", url, "--count", &count, "--keep-alive"];
    if let Some(header) = header {
        args.extend(["-H", header]);
    }
    let results = lab.fetch("clients/alice", &args).await.map_err(|error| error.chain())?;
    let mut answers = BTreeMap::new();
    for result in &results {
        match (result.status, result.pod()) {
            (Some(200), Some(pod)) => *answers.entry(pod.to_owned()).or_insert(0) += 1,
            _ => return Err(format!("{result:?}")),
        }
    }
    Ok(answers)
}

/// Waits until exactly `pods` answer: after the start, endpoints arrive one by one.
async fn eventually_just(lab: &LabHandle, pods: &[&str], header: Option<&str>) {
    eventually(&format!("{pods:?} answer"), async || {
        let answers = try_answers(lab, "http://web.servers/", 60, header).await?;
        if answers.keys().eq(pods) { Ok(()) } else { Err(format!("{answers:?}")) }
    })
    .await;
}

fn assert_share(answers: &BTreeMap<String, u32>, pod: &str, share: f64) {
    let total = f64::from(answers.values().sum::<u32>());
    let observed = f64::from(answers.get(pod).copied().unwrap_or(0));
    let bound = DEVIATIONS * (total * share * (1.0 - share)).sqrt();
    assert!(
        (observed - total * share).abs() <= bound,
        "{pod}: {observed} of {total}, expected {share} ± {bound}"
    );
}

/// Waits until only this version answers. No request may fail meanwhile.
async fn shifts_to(lab: &LabHandle, pod: &str) {
    eventually(&format!("only {pod} answers"), async || {
        let answers = answers(lab, "http://web.servers/", 40, None).await;
        if answers.keys().eq([pod]) { Ok(()) } else { Err(format!("{answers:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_follow_the_weights_and_shift_without_a_failed_request() {
    let mesh = mesh().with("split.yaml", &split("web", &[("web-v1", 75), ("web-v2", 25)], &[]));
    let lab = start(&mesh).await;
    eventually_just(&lab, &["web-v1", "web-v2"], None).await;
    let before = answers(&lab, "http://web.servers/", REQUESTS, None).await;
    assert_share(&before, "web-v1", 0.75);
    assert_share(&before, "web-v2", 0.25);
    // The leaf services are still reachable directly.
    assert_share(&answers(&lab, "http://web-v2.servers/", 20, None).await, "web-v2", 1.0);

    // Weight 0 is legal and gets no traffic. No request fails during the shift, or `answers`
    // panics.
    lab.apply("split.yaml", &split("web", &[("web-v1", 0), ("web-v2", 5)], &[])).await.unwrap();
    shifts_to(&lab, "web-v2").await;
    assert_share(&answers(&lab, "http://web.servers/", 200, None).await, "web-v2", 1.0);

    // A backend that does not exist yet gets no traffic.
    lab.apply("split.yaml", &split("web", &[("web-v1", 1), ("web-v9", 9)], &[])).await.unwrap();
    shifts_to(&lab, "web-v1").await;
    let problems = lab.smc_json(&["mesh", "problems"]).await.unwrap().to_string();
    assert!(problems.contains("web-v9"), "{problems}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requests_that_match_are_split_and_several_groups_add_up() {
    let mesh = mesh()
        .with("canary.yaml", &routes("canary", "    - {name: canary, headers: {x-canary: 'yes'}}"))
        .with("early.yaml", &routes("early", "    - {name: early, pathRegex: '/early'}"))
        .with("split.yaml", &split("web", &[("web-v2", 1)], &["canary", "early"]));
    let lab = start(&mesh).await;
    eventually_just(&lab, &["web-v1", "web-v2"], None).await;
    eventually_just(&lab, &["web-v2"], Some("x-canary: yes")).await;
    assert_share(&answers(&lab, "http://web.servers/early/bird", 100, None).await, "web-v2", 1.0);
    // Other requests go to the root service, which selects both pods.
    let rest = answers(&lab, "http://web.servers/", 100, Some("x-canary: no")).await;
    assert_eq!(rest.len(), 2, "{rest:?}");
    lab.stop().await.unwrap();
}
