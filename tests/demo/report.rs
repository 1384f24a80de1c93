//! Owns the output of the unattended demo: one JSON object with every figure that the verdict rests
//! on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::expectation::{EXPECTATIONS, Expected, expectation_of};
use super::manifests::Weights;
use super::tally::{Calls, Edge, Tally};
use super::upgrade::SidecarReport;
use super::verdict::{Mismatch, Observations, Window, judge, share_v2};

/// Durations of the phases.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Timings {
    /// Until every kind of call had its expected result. Absent if that never happened.
    pub settled_ms: Option<u64>,
    /// From writing the new split to the sidecar's acknowledgement. Absent if it came too late.
    pub converged_ms: Option<u64>,
    /// Duration of each window.
    pub windows_ms: Vec<u64>,
    /// Duration of the rolling upgrade. Absent if it did not end in time.
    pub upgraded_ms: Option<u64>,
}

/// The outcome of an unattended run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the observations match policy.
    pub ok: bool,
    /// All mismatches, if there are any.
    pub mismatches: Vec<Mismatch>,
    /// Durations of the phases.
    pub timings: Timings,
    /// The controller replica that led, and was killed before the split shifted. Absent if the run
    /// ended before that.
    pub leader_killed: Option<u16>,
    /// One per set of weights.
    pub windows: Vec<WindowReport>,
    /// What each sidecar noticed of the rolling upgrade. Absent if it did not end in time.
    pub upgrade: Option<Vec<SidecarReport>>,
    /// Each kind of call since the mesh settled, with the expected calls that never came and the
    /// unexpected ones.
    pub calls: Vec<CallReport>,
    /// Each kind of request that reached an application, since the first line.
    pub arrivals: Vec<ArrivalReport>,
}

/// A window's figures.
#[derive(Debug, Serialize)]
pub struct WindowReport {
    /// Weights of the split.
    pub weights: Weights,
    /// Requests to the bookstore that were answered.
    pub requests: u64,
    /// Requests by version.
    pub versions: BTreeMap<String, u64>,
    /// v2's share of the requests.
    pub share_v2: Option<f64>,
    /// v2's share by weight.
    pub share_v2_expected: f64,
    /// Largest accepted distance between the two.
    pub share_v2_bound: Option<f64>,
}

/// The figures of one kind of call.
#[derive(Debug, Serialize)]
pub struct CallReport {
    /// Name of the client.
    pub from: String,
    /// Name of the server.
    pub to: String,
    /// Method and path.
    pub request: String,
    /// The decision of policy: `allow`, `deny`, or `unknown` for a call that is not in the table.
    pub policy: &'static str,
    /// Number of calls.
    pub count: u64,
    /// Calls by result; those answered by an application are marked.
    pub results: BTreeMap<String, u64>,
    /// Calls by the identity that the server saw.
    pub identities: BTreeMap<String, u64>,
}

/// The figures of one kind of arrival.
#[derive(Debug, Serialize)]
pub struct ArrivalReport {
    /// Name of the server.
    pub at: String,
    /// SPIFFE ID of the client, if the server saw one.
    pub from: Option<String>,
    /// Method and path.
    pub request: String,
    /// Number of requests.
    pub count: u64,
}

impl Report {
    /// Judges the observations, and collects the figures.
    pub fn new(observations: &Observations, timings: Timings, leader_killed: Option<u16>) -> Self {
        let mismatches = judge(observations);
        Self {
            ok: mismatches.is_empty(),
            mismatches,
            timings,
            leader_killed,
            windows: observations.windows.iter().map(window_report).collect(),
            upgrade: observations.upgraded.clone(),
            calls: call_reports(observations.settled.as_ref().unwrap_or(&observations.since_start)),
            arrivals: observations
                .since_start
                .arrivals
                .iter()
                .map(|(arrival, count)| ArrivalReport {
                    at: arrival.at.clone(),
                    from: arrival.from.clone(),
                    request: arrival.request.clone(),
                    count: *count,
                })
                .collect(),
        }
    }
}

fn window_report(window: &Window) -> WindowReport {
    let versions = window.tally.versions();
    let share = share_v2(window);
    WindowReport {
        weights: window.weights,
        requests: versions.values().sum(),
        versions,
        share_v2: share.map(|share| share.observed),
        share_v2_expected: window.weights.share_v2(),
        share_v2_bound: share.map(|share| share.bound),
    }
}

fn call_reports(tally: &Tally) -> Vec<CallReport> {
    let never = Calls::default();
    let expected = EXPECTATIONS.iter().map(|expectation| {
        let edge = Edge {
            from: expectation.from.to_owned(),
            to: expectation.to.to_owned(),
            request: expectation.request.to_owned(),
        };
        let calls = tally.calls.get(&edge).unwrap_or(&never);
        call_report(&edge, policy(Some(expectation.expected)), calls)
    });
    let others = tally
        .calls
        .iter()
        .filter(|(edge, _)| expectation_of(edge).is_none())
        .map(|(edge, calls)| call_report(edge, policy(None), calls));
    expected.chain(others).collect()
}

fn call_report(edge: &Edge, policy: &'static str, calls: &Calls) -> CallReport {
    CallReport {
        from: edge.from.clone(),
        to: edge.to.clone(),
        request: edge.request.clone(),
        policy,
        count: calls.count(),
        results: calls.results.iter().map(|(observed, count)| (observed.to_string(), *count)).collect(),
        identities: calls.identities.clone(),
    }
}

/// The decision of policy on a kind of call, in one word.
pub(super) fn policy(expected: Option<Expected>) -> &'static str {
    match expected {
        Some(expected) if expected.is_allowed() => "allow",
        Some(_) => "deny",
        None => "unknown",
    }
}
