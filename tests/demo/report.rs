//! What the unattended demo prints: one JSON object with every figure the verdict rests on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::expectation::{EXPECTATIONS, Expected, expectation_of};
use super::manifests::Weights;
use super::tally::{Calls, Edge, Tally};
use super::verdict::{Mismatch, Observations, Window, judge, share_v2};

/// How long the phases took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Timings {
    /// Until every kind of call came out right. Absent if that never happened.
    pub settled_ms: Option<u64>,
    /// From writing the new split to its acknowledgement by the sidecar. Absent if it was not acknowledged in time.
    pub converged_ms: Option<u64>,
    /// Each window.
    pub windows_ms: Vec<u64>,
}

/// The outcome of an unattended run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether what was observed equals what policy says.
    pub ok: bool,
    /// If not, all that is wrong.
    pub mismatches: Vec<Mismatch>,
    /// How long the phases took.
    pub timings: Timings,
    /// The replica of the controller that led, and was killed before the split shifted. Absent if it never came to that.
    pub leader_killed: Option<u16>,
    /// One per set of weights.
    pub windows: Vec<WindowReport>,
    /// Each kind of call since the mesh settled; with those that never came, and those that nobody expects.
    pub calls: Vec<CallReport>,
    /// Each kind of request that reached an application, since the first line.
    pub arrivals: Vec<ArrivalReport>,
}

/// A window's figures.
#[derive(Debug, Serialize)]
pub struct WindowReport {
    /// The split.
    pub weights: Weights,
    /// Requests to the bookstore that were answered.
    pub requests: u64,
    /// By which version.
    pub versions: BTreeMap<String, u64>,
    /// v2's share of them.
    pub share_v2: Option<f64>,
    /// What it should be.
    pub share_v2_expected: f64,
    /// How far from that it may be.
    pub share_v2_bound: Option<f64>,
}

/// The figures of one kind of call.
#[derive(Debug, Serialize)]
pub struct CallReport {
    /// Who.
    pub from: String,
    /// Whom.
    pub to: String,
    /// What.
    pub request: String,
    /// What policy says: `allow`, `deny`, or `unknown` for what the table does not know.
    pub policy: &'static str,
    /// How many.
    pub count: u64,
    /// How often each result; those of applications are marked.
    pub results: BTreeMap<String, u64>,
    /// How often each identity was seen.
    pub identities: BTreeMap<String, u64>,
}

/// The figures of one kind of arrival.
#[derive(Debug, Serialize)]
pub struct ArrivalReport {
    /// Where.
    pub at: String,
    /// From whom.
    pub from: Option<String>,
    /// What.
    pub request: String,
    /// How many.
    pub count: u64,
}

impl Report {
    /// Judges, and gathers the figures.
    pub fn new(observations: &Observations, timings: Timings, leader_killed: Option<u16>) -> Self {
        let mismatches = judge(observations);
        Self {
            ok: mismatches.is_empty(),
            mismatches,
            timings,
            leader_killed,
            windows: observations.windows.iter().map(window_report).collect(),
            calls: call_reports(observations.settled.as_ref().unwrap_or(&observations.ever)),
            arrivals: observations
                .ever
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

/// What policy says of a kind of call, in a word.
pub(super) fn policy(expected: Option<Expected>) -> &'static str {
    match expected {
        Some(expected) if expected.is_allowed() => "allow",
        Some(_) => "deny",
        None => "unknown",
    }
}
