//! Tests of the unattended demo against a scripted stage with short rounds: meshes that enforce
//! policy, and meshes that do not.

use super::super::scripted_stage::{ENFORCING, Script, Scripted};
use super::super::verdict::Mismatch;
use super::*;

/// Generous, as a busy machine plays rounds slowly. Tests that wait for a limit shorten it.
const PLAN: Plan = Plan {
    settle_max: Duration::from_mins(1),
    window_requests: 400,
    window_max: Duration::from_mins(1),
    converge_max: Duration::from_mins(1),
    upgrade_max: Duration::from_mins(1),
    grace: Duration::from_millis(20),
};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_mesh_that_enforces_policy_passes() {
    let report = run(&mut Scripted::new(ENFORCING), &PLAN).await.unwrap();
    assert!(report.ok, "{:#?}", report.mismatches);
    assert_eq!(report.windows.len(), 2);
    assert!(report.windows.iter().all(|window| window.requests >= 400));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["windows"][1]["weights"], serde_json::json!({ "v1": 10, "v2": 90 }));
    assert_eq!(json["upgrade"][0]["gaps_ms"], serde_json::json!([20, 40]));
    assert_eq!(json["calls"].as_array().unwrap().len(), EXPECTATIONS.len());
}

#[tokio::test]
async fn a_mesh_that_never_works_fails_after_the_time_to_settle() {
    let started = Instant::now();
    let plan = Plan { settle_max: SHORT, ..PLAN };
    let report = run(&mut Scripted::new(Script { works_from: u64::MAX, ..ENFORCING }), &plan).await.unwrap();
    assert!(report.mismatches.contains(&Mismatch::NeverSettled), "{:#?}", report.mismatches);
    assert!(!report.ok);
    assert!(started.elapsed() < PLAN.settle_max);
}

#[tokio::test]
async fn a_thief_served_once_while_the_mesh_was_starting_fails() {
    let report =
        run(&mut Scripted::new(Script { thief_served_at: Some(3), ..ENFORCING }), &PLAN).await.unwrap();
    assert!(
        matches!(&report.mismatches[..], [Mismatch::Breach(edge, 1)] if edge.from == "bookthief"),
        "{:#?}",
        report.mismatches
    );
}

#[tokio::test]
async fn a_split_that_is_acknowledged_and_ignored_fails() {
    let report = run(&mut Scripted::new(Script { ignores_split: true, ..ENFORCING }), &PLAN).await.unwrap();
    assert!(
        matches!(&report.mismatches[..], [Mismatch::UnexpectedShare(WEIGHTS_AFTER, _)]),
        "{:#?}",
        report.mismatches
    );
}

#[tokio::test]
async fn a_split_that_is_never_acknowledged_fails_in_bounded_time() {
    let started = Instant::now();
    let plan = Plan { converge_max: SHORT, ..PLAN };
    let report =
        run(&mut Scripted::new(Script { never_acknowledges: true, ..ENFORCING }), &plan).await.unwrap();
    assert_eq!(report.mismatches, vec![Mismatch::NotConverged, Mismatch::MissingWindow(1)]);
    assert!(started.elapsed() < PLAN.converge_max);
}

#[tokio::test]
async fn an_upgrade_that_never_ends_fails_in_bounded_time() {
    let plan = Plan { upgrade_max: SHORT, ..PLAN };
    let report = run(&mut Scripted::new(Script { never_upgrades: true, ..ENFORCING }), &plan).await.unwrap();
    assert_eq!(report.mismatches, [Mismatch::NotUpgraded]);
}

#[tokio::test]
async fn a_mesh_without_traffic_fails_in_bounded_time() {
    let plan = Plan { window_max: SHORT, ..PLAN };
    let report =
        run(&mut Scripted::new(Script { silent_from: Some(100), ..ENFORCING }), &plan).await.unwrap();
    assert!(
        report.mismatches.iter().any(|m| matches!(m, Mismatch::TooFewRequests(WEIGHTS_BEFORE, _, 400))),
        "{:#?}",
        report.mismatches
    );
}
