//! The unattended course against a scripted stage, in quick rounds: a town in which policy holds, and towns in which
//! it does not.

use std::collections::VecDeque;

use super::super::expectation::{Expected, identity};
use super::super::stage::{Line, StageError};
use super::super::verdict::Mismatch;
use super::*;
use crate::bookstore::record::{Call, CallError, METHOD_TCP, Received};
use tokio::time::sleep_until;

/// How long a round of calls takes.
const ROUND: Duration = Duration::from_millis(1);

/// A town that plays its rounds by script.
#[derive(Debug)]
struct Scripted {
    round: u64,
    next_round: Instant,
    pending: VecDeque<Line>,
    /// Where requests go; follows the split unless it is ignored.
    share_v2_percent: u64,
    version: u64,
    /// In rounds before this one, nothing works yet.
    works_from: u64,
    ignores_split: bool,
    never_acknowledges: bool,
    thief_gets_in_at: Option<u64>,
    falls_silent_at: Option<u64>,
}

impl Scripted {
    fn new() -> Self {
        Self {
            round: 0,
            next_round: Instant::now(),
            pending: VecDeque::new(),
            share_v2_percent: 50,
            version: 1,
            works_from: 20,
            ignores_split: false,
            never_acknowledges: false,
            thief_gets_in_at: None,
            falls_silent_at: None,
        }
    }

    fn say(&mut self, record: &Record) {
        let text = serde_json::to_string(record).unwrap();
        self.pending.push_back(Line { pod: "a/pod".into(), text });
    }

    fn call(&mut self, from: &str, to: &str, request: &str, expected: Expected, store: &str) {
        let (method, path) = request.split_once(' ').unwrap();
        let path = path.replace('*', "a-new-book");
        let working = self.round >= self.works_from;
        let closed = Some(CallError::ConnectionClosed);
        let (status, error, seen) = match expected {
            _ if !working => (None, Some(CallError::TimedOut), None),
            Expected::Served { identity } => (Some(200), None, Some(identity)),
            Expected::Answered => (None, None, None),
            Expected::Forbidden => (Some(403), None, None),
            Expected::Refused => (None, closed, None),
        };
        let version = (to == "bookstore" && seen.is_some()).then(|| store.to_owned());
        self.say(&Record::Call(Call {
            t_ms: 0,
            from: from.into(),
            to: to.into(),
            method: method.into(),
            path: path.clone(),
            status,
            error,
            version,
            identity_seen: seen.map(str::to_owned),
        }));
        if working && expected.is_allowed() {
            let at = if to == "bookstore" { format!("bookstore-{store}") } else { to.to_owned() };
            self.say(&Record::Received(Received {
                t_ms: 0,
                at,
                from: seen.map(str::to_owned),
                method: method.into(),
                path,
                status: (method != METHOD_TCP).then_some(200),
            }));
        }
    }

    fn play_round(&mut self) {
        // Spreads the requests evenly by weight.
        let share = self.share_v2_percent;
        let store = if (self.round * share) % 100 + share >= 100 { "v2" } else { "v1" };
        for expectation in EXPECTATIONS {
            self.call(expectation.from, expectation.to, expectation.request, expectation.expected, store);
        }
        if self.thief_gets_in_at == Some(self.round) {
            let served = Expected::Served { identity: identity::BOOKBUYER };
            let works_from = std::mem::take(&mut self.works_from);
            self.call("bookthief", "bookstore", "GET /books-bought", served, store);
            self.works_from = works_from;
        }
        self.pending.push_back(Line { pod: "a/pod".into(), text: "a word that is no record".into() });
        self.round += 1;
    }
}

impl Stage for Scripted {
    async fn next_line(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.falls_silent_at.is_some_and(|round| self.round >= round) {
                std::future::pending::<()>().await;
            }
            sleep_until(self.next_round).await;
            self.next_round += ROUND;
            self.play_round();
        }
    }

    async fn apply(&mut self, file_name: &str, yaml: &str) -> Result<(), StageError> {
        assert_eq!((file_name, yaml), ("traffic-split.yaml", &WEIGHTS_AFTER.to_yaml()[..]));
        self.version += 1;
        if !self.ignores_split {
            self.share_v2_percent = 90;
        }
        Ok(())
    }

    async fn smc(&mut self, arguments: &[&str]) -> Result<String, StageError> {
        assert_eq!(arguments, ["proxy", "config", "bookbuyer/bookbuyer", "-o", "json"]);
        let acked = if self.never_acknowledges { 1 } else { self.version };
        Ok(serde_json::json!({ "routes": { "sent": { "r": self.version }, "acked": { "r": acked } } })
            .to_string())
    }
}

/// Generous, as a busy machine plays rounds slowly; who waits for a limit shortens it.
const PLAN: Plan = Plan {
    settle_max: Duration::from_mins(1),
    window_requests: 400,
    window_max: Duration::from_mins(1),
    converge_max: Duration::from_mins(1),
    grace: Duration::from_millis(20),
};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_mesh_that_holds_to_policy_passes() {
    let report = run(&mut Scripted::new(), &PLAN).await.unwrap();
    assert!(report.ok, "{:#?}", report.mismatches);
    assert_eq!(report.windows.len(), 2);
    assert!(report.windows.iter().all(|window| window.requests >= 400));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["windows"][1]["weights"], serde_json::json!({ "v1": 10, "v2": 90 }));
    assert_eq!(json["calls"].as_array().unwrap().len(), EXPECTATIONS.len());
}

#[tokio::test]
async fn a_mesh_that_never_works_fails_after_the_time_to_settle() {
    let started = Instant::now();
    let plan = Plan { settle_max: SHORT, ..PLAN };
    let report = run(&mut Scripted { works_from: u64::MAX, ..Scripted::new() }, &plan).await.unwrap();
    assert!(report.mismatches.contains(&Mismatch::NeverSettled), "{:#?}", report.mismatches);
    assert!(!report.ok);
    assert!(started.elapsed() < PLAN.settle_max);
}

#[tokio::test]
async fn a_thief_served_once_while_the_mesh_was_starting_fails() {
    let report = run(&mut Scripted { thief_gets_in_at: Some(3), ..Scripted::new() }, &PLAN).await.unwrap();
    assert!(
        matches!(&report.mismatches[..], [Mismatch::Breach(edge, 1)] if edge.from == "bookthief"),
        "{:#?}",
        report.mismatches
    );
}

#[tokio::test]
async fn a_split_that_is_acknowledged_and_ignored_fails() {
    let report = run(&mut Scripted { ignores_split: true, ..Scripted::new() }, &PLAN).await.unwrap();
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
    let report = run(&mut Scripted { never_acknowledges: true, ..Scripted::new() }, &plan).await.unwrap();
    assert_eq!(report.mismatches, vec![Mismatch::NotConverged, Mismatch::MissingWindow(1)]);
    assert!(started.elapsed() < PLAN.converge_max);
}

#[tokio::test]
async fn a_mesh_that_falls_silent_fails_in_bounded_time() {
    let plan = Plan { window_max: SHORT, ..PLAN };
    let report = run(&mut Scripted { falls_silent_at: Some(100), ..Scripted::new() }, &plan).await.unwrap();
    assert!(
        report.mismatches.iter().any(|m| matches!(m, Mismatch::TooFewRequests(WEIGHTS_BEFORE, _, 400))),
        "{:#?}",
        report.mismatches
    );
}
