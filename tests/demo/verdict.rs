//! Judges what was observed against [`super::expectation`]. Pure: equal observations give an equal verdict.
//!
//! Two measures apply. Once the mesh has settled, every call must come out as the table says. From the very first line
//! on, nothing may get through that the table does not allow: a mesh denies by default also while it is starting.

use std::fmt;

use serde::{Serialize, Serializer};

use super::expectation::{ARRIVALS, EXPECTATIONS, Expected, expectation_of, may_arrive};
use super::manifests::Weights;
use super::share::Share;
use super::tally::{Arrival, Edge, Observed, Tally};

/// Fewer calls of a kind than this are too few to say that it works: the rarest kind is made more than once a second.
pub const CALLS_MIN: u64 = 5;

/// A stretch of time with one set of weights.
#[derive(Debug, Clone)]
pub struct Window {
    /// What the split said.
    pub weights: Weights,
    /// What happened.
    pub tally: Tally,
    /// Requests to the bookstore that the window must have for its share to mean anything.
    pub requests_min: u64,
}

/// All there is to judge.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// Since the first line.
    pub ever: Tally,
    /// Since the mesh settled, through the shift, to the end. None if it never settled.
    pub settled: Option<Tally>,
    /// Whether the sidecar acknowledged the shifted split in time.
    pub converged: bool,
    /// One window per set of weights.
    pub windows: Vec<Window>,
}

/// One way in which what was observed is not what policy says.
#[derive(Debug, Clone, PartialEq)]
pub enum Mismatch {
    /// The mesh never came to work.
    NeverSettled,
    /// A call that policy denies was answered by an application.
    Breach(Edge, u64),
    /// Something arrived at an application that policy keeps out.
    UnexpectedArrival(Arrival, u64),
    /// A kind of call was made too rarely to be judged.
    TooFewCalls(Edge, u64),
    /// A call came out otherwise than the table says.
    UnexpectedResult(Edge, Observed, u64),
    /// An application saw another identity than the table says.
    UnexpectedIdentity(Edge, String, u64),
    /// A kind of call that the table does not know.
    UnknownCall(Edge, u64),
    /// Something never arrived where it should.
    MissingArrival(Arrival),
    /// The new split was not acknowledged in time.
    NotConverged,
    /// There are not two windows.
    MissingWindow(usize),
    /// A window has too few requests.
    TooFewRequests(Weights, u64, u64),
    /// A version that the split does not name.
    UnknownVersion(Weights, String, u64),
    /// The share of v2 is not explained by its weight.
    UnexpectedShare(Weights, Share),
    /// Programs wrote lines that are no records.
    Unreadable(u64),
}

/// Windows of a full run: before and after the shift.
const WINDOWS: usize = 2;

/// Everything that is wrong, in a fixed order; empty if all is as policy says.
pub fn judge(observations: &Observations) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    judge_breaches(&observations.ever, &mut mismatches);
    match &observations.settled {
        Some(settled) => judge_settled(settled, &mut mismatches),
        None => mismatches.push(Mismatch::NeverSettled),
    }
    if !observations.converged {
        mismatches.push(Mismatch::NotConverged);
    }
    if observations.windows.len() != WINDOWS {
        mismatches.push(Mismatch::MissingWindow(observations.windows.len()));
    }
    for window in &observations.windows {
        judge_window(window, &mut mismatches);
    }
    mismatches
}

fn judge_breaches(ever: &Tally, mismatches: &mut Vec<Mismatch>) {
    for (edge, calls) in &ever.calls {
        let denied = expectation_of(edge).is_none_or(|expectation| !expectation.expected.is_allowed());
        let answered: u64 = calls
            .results
            .iter()
            .filter(|(observed, _)| observed.by_application)
            .map(|(_, count)| count)
            .sum();
        if denied && answered > 0 {
            mismatches.push(Mismatch::Breach(edge.clone(), answered));
        }
    }
    for (arrival, count) in &ever.arrivals {
        if !may_arrive(arrival) {
            mismatches.push(Mismatch::UnexpectedArrival(arrival.clone(), *count));
        }
    }
    if ever.unreadable > 0 {
        mismatches.push(Mismatch::Unreadable(ever.unreadable));
    }
}

fn judge_settled(settled: &Tally, mismatches: &mut Vec<Mismatch>) {
    for expectation in &EXPECTATIONS {
        let edge = Edge {
            from: expectation.from.to_owned(),
            to: expectation.to.to_owned(),
            request: expectation.request.to_owned(),
        };
        let Some(calls) = settled.calls.get(&edge) else {
            mismatches.push(Mismatch::TooFewCalls(edge, 0));
            continue;
        };
        if calls.count() < CALLS_MIN {
            mismatches.push(Mismatch::TooFewCalls(edge.clone(), calls.count()));
        }
        for (observed, count) in &calls.results {
            if !expectation.expected.accepts(observed) {
                mismatches.push(Mismatch::UnexpectedResult(edge.clone(), *observed, *count));
            }
        }
        if let Expected::Served { identity } = expectation.expected {
            let seen: u64 = calls.identities.values().sum();
            for (other, count) in calls.identities.iter().filter(|(seen, _)| *seen != identity) {
                mismatches.push(Mismatch::UnexpectedIdentity(edge.clone(), other.clone(), *count));
            }
            // An application that answers without naming whom it saw has not shown an identity.
            let answered: u64 = calls
                .results
                .iter()
                .filter(|(observed, _)| observed.by_application)
                .map(|(_, count)| count)
                .sum();
            if seen < answered {
                mismatches.push(Mismatch::UnexpectedIdentity(edge, "(not told)".to_owned(), answered - seen));
            }
        }
    }
    for (edge, calls) in &settled.calls {
        if expectation_of(edge).is_none() {
            mismatches.push(Mismatch::UnknownCall(edge.clone(), calls.count()));
        }
    }
    for (at, from, request) in ARRIVALS {
        let arrival =
            Arrival { at: at.to_owned(), from: from.map(str::to_owned), request: request.to_owned() };
        if !settled.arrivals.contains_key(&arrival) {
            mismatches.push(Mismatch::MissingArrival(arrival));
        }
    }
}

fn judge_window(window: &Window, mismatches: &mut Vec<Mismatch>) {
    let weights = window.weights;
    let versions = window.tally.versions();
    let requests: u64 = versions.values().sum();
    // A window that asks for nothing proves nothing, so one request is always needed.
    if requests < window.requests_min.max(1) {
        mismatches.push(Mismatch::TooFewRequests(weights, requests, window.requests_min));
    }
    for (version, count) in &versions {
        if version != "v1" && version != "v2" {
            mismatches.push(Mismatch::UnknownVersion(weights, version.clone(), *count));
        }
    }
    if let Some(share) = share_v2(window)
        && !share.fits()
    {
        mismatches.push(Mismatch::UnexpectedShare(weights, share));
    }
}

/// The share of a window's requests that v2 answered. None without requests.
pub fn share_v2(window: &Window) -> Option<Share> {
    let versions = window.tally.versions();
    let v2 = versions.get("v2").copied().unwrap_or(0);
    Share::of(v2, versions.values().sum(), window.weights.share_v2())
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}, {}", self.from, self.to, self.request)
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_deref().unwrap_or("nobody identified");
        write!(f, "{} at {} from {from}", self.request, self.at)
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by_application { " from the application" } else { "" };
        write!(f, "{}{by}", self.outcome)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSettled => {
                f.write_str("the mesh did not settle: not every kind of call came out right in time")
            }
            Self::Breach(edge, count) => {
                write!(f, "{edge}: answered by the application {count} times, policy denies it")
            }
            Self::UnexpectedArrival(arrival, count) => {
                write!(f, "{arrival}: arrived {count} times, policy keeps it out")
            }
            Self::TooFewCalls(edge, count) => write!(f, "{edge}: only {count} calls, {CALLS_MIN} are needed"),
            Self::UnexpectedResult(edge, observed, count) => write!(f, "{edge}: {observed}, {count} times"),
            Self::UnexpectedIdentity(edge, identity, count) => {
                write!(f, "{edge}: seen as {identity}, {count} times")
            }
            Self::UnknownCall(edge, count) => write!(f, "{edge}: {count} calls that nobody expects"),
            Self::MissingArrival(arrival) => write!(f, "{arrival}: never arrived"),
            Self::NotConverged => f.write_str("the shifted split was not acknowledged in time"),
            Self::MissingWindow(count) => write!(f, "{count} windows were observed, {WINDOWS} are needed"),
            Self::TooFewRequests(weights, count, needed) => {
                write!(f, "split {weights}: only {count} requests, {needed} are needed")
            }
            Self::UnknownVersion(weights, version, count) => {
                write!(f, "split {weights}: version {version} answered {count} times")
            }
            Self::UnexpectedShare(weights, Share { observed, expected, bound }) => write!(
                f,
                "split {weights}: v2 answered {observed:.3} of the requests, expected {expected:.3} ± {bound:.3}"
            ),
            Self::Unreadable(count) => write!(f, "{count} lines of the programs could not be read"),
        }
    }
}

impl Serialize for Mismatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
