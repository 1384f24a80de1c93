//! Judges observations against [`super::expectation`]. Pure.
//!
//! Two rules apply. Once the mesh has settled, every call must have its expected result. From the
//! first line on, nothing may get through that the table does not allow: a mesh denies by default
//! also while it starts.

use std::fmt;

use serde::{Serialize, Serializer};

use super::expectation::{ARRIVALS, EXPECTATIONS, Expected, expectation_of, may_arrive};
use super::manifests::Weights;
use super::share::Share;
use super::tally::{Arrival, Edge, Observed, Tally};
use super::upgrade::SidecarReport;

/// Fewer calls of a kind than this do not show that it works. The rarest kind is made more than
/// once a second.
pub const CALLS_MIN: u64 = 5;

/// A period with one set of weights.
#[derive(Debug, Clone)]
pub struct Window {
    /// Weights of the split.
    pub weights: Weights,
    /// Counts of the period.
    pub tally: Tally,
    /// Requests to the bookstore that the window must have for a meaningful share.
    pub requests_min: u64,
}

/// The input of the verdict.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// Counts since the first line.
    pub since_start: Tally,
    /// Counts from the moment the mesh settled, through the shift, to the end. `None` if it never
    /// settled.
    pub settled: Option<Tally>,
    /// Whether the sidecar acknowledged the shifted split in time.
    pub converged: bool,
    /// One window per set of weights.
    pub windows: Vec<Window>,
    /// What each sidecar noticed of the rolling upgrade. `None` if it did not end in time.
    pub upgraded: Option<Vec<SidecarReport>>,
}

/// A difference between the observations and policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Mismatch {
    /// The mesh never settled.
    NeverSettled,
    /// An application answered a call that policy denies.
    Breach(Edge, u64),
    /// A request arrived at an application that policy keeps out.
    UnexpectedArrival(Arrival, u64),
    /// There are too few calls of a kind to judge it.
    TooFewCalls(Edge, u64),
    /// A call had another result than the table says.
    UnexpectedResult(Edge, Observed, u64),
    /// An application saw another identity than the table says.
    UnexpectedIdentity(Edge, String, u64),
    /// The table has no row for this kind of call.
    UnknownCall(Edge, u64),
    /// An expected request never arrived.
    MissingArrival(Arrival),
    /// The new split was not acknowledged in time.
    NotConverged,
    /// The number of windows is not [`WINDOWS`].
    MissingWindow(usize),
    /// A window has too few requests.
    TooFewRequests(Weights, u64, u64),
    /// The split does not name this version.
    UnknownVersion(Weights, String, u64),
    /// The weight does not explain the share of v2.
    UnexpectedShare(Weights, Share),
    /// The rolling upgrade did not end in time.
    NotUpgraded,
    /// The rolling upgrade sent this sidecar what it had.
    Resent(String, u64),
    /// Programs wrote lines that are not records.
    Unreadable(u64),
}

/// Windows of a full run: before and after the shift.
const WINDOWS: usize = 2;

/// Returns all mismatches in a fixed order; none if the observations match policy.
pub fn judge(observations: &Observations) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    judge_breaches(&observations.since_start, &mut mismatches);
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
    match &observations.upgraded {
        Some(sidecars) => {
            let resent = sidecars.iter().filter(|sidecar| sidecar.resent > 0);
            mismatches.extend(resent.map(|each| Mismatch::Resent(each.sidecar.clone(), each.resent)));
        }
        // Without a shift there was no upgrade.
        None if observations.converged => mismatches.push(Mismatch::NotUpgraded),
        None => {}
    }
    mismatches
}

fn judge_breaches(tally: &Tally, mismatches: &mut Vec<Mismatch>) {
    for (edge, calls) in &tally.calls {
        let denied = expectation_of(edge).is_none_or(|expectation| !expectation.expected.is_allowed());
        let answered = calls.answered();
        if denied && answered > 0 {
            mismatches.push(Mismatch::Breach(edge.clone(), answered));
        }
    }
    for (arrival, count) in &tally.arrivals {
        if !may_arrive(arrival) {
            mismatches.push(Mismatch::UnexpectedArrival(arrival.clone(), *count));
        }
    }
    if tally.unreadable > 0 {
        mismatches.push(Mismatch::Unreadable(tally.unreadable));
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
            // A 200 without the identity header does not show an identity.
            let answered = calls.answered();
            if seen < answered {
                mismatches.push(Mismatch::UnexpectedIdentity(
                    edge,
                    "(no identity)".to_owned(),
                    answered - seen,
                ));
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
    // A window without a minimum proves nothing, so at least one request is needed.
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

/// Returns v2's share of a window's requests; `None` without requests.
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
        let from = self.from.as_deref().unwrap_or("an unidentified client");
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
            Self::NeverSettled => f.write_str(
                "the mesh did not settle: some kinds of calls did not have their expected results in time",
            ),
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
            Self::UnknownCall(edge, count) => write!(f, "{edge}: {count} unexpected calls"),
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
            Self::NotUpgraded => f.write_str("the rolling upgrade of all replicas did not end in time"),
            Self::Resent(sidecar, count) => {
                write!(f, "{sidecar} was sent {count} resources again by the rolling upgrade")
            }
            Self::Unreadable(count) => write!(f, "{count} lines of the programs could not be parsed"),
        }
    }
}

impl Serialize for Mismatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
