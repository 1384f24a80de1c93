//! A scripted stage for the tests of both demos: no lab, no mesh, rounds of a millisecond.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::expectation::{EXPECTATIONS, Expected, identity};
use super::manifests::WEIGHTS_AFTER;
use super::stage::{Line, Stage, StageError, Upgrade};
use super::upgrade::SidecarReport;
use crate::bookstore::record::{Call, CallError, METHOD_TCP, Received, Record};

/// Duration of a round of calls.
const ROUND: Duration = Duration::from_millis(1);

/// Behaviour of the scripted mesh.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    /// Every call fails in the rounds before this one.
    pub(super) works_from: u64,
    /// Whether traffic stays unchanged when the split shifts.
    pub(super) ignores_split: bool,
    /// Whether the sidecar never acknowledges the new split.
    pub(super) never_acknowledges: bool,
    /// The round in which the thief is served, once.
    pub(super) thief_served_at: Option<u64>,
    /// Whether the rolling upgrade never ends.
    pub(super) never_upgrades: bool,
    /// From this round on, no program prints a line.
    pub(super) silent_from: Option<u64>,
}

/// A mesh that enforces policy.
pub(super) const ENFORCING: Script = Script {
    works_from: 20,
    ignores_split: false,
    never_acknowledges: false,
    thief_served_at: None,
    never_upgrades: false,
    silent_from: None,
};

/// A stage that plays the script.
#[derive(Debug)]
pub(super) struct Scripted {
    script: Script,
    round: u64,
    next_round: Instant,
    pending: VecDeque<Line>,
    share_v2_percent: u64,
    version: u64,
}

impl Scripted {
    pub(super) fn new(script: Script) -> Self {
        Self {
            script,
            round: 0,
            next_round: Instant::now(),
            pending: VecDeque::new(),
            share_v2_percent: 50,
            version: 1,
        }
    }

    fn print(&mut self, record: &Record) {
        let text = serde_json::to_string(record).unwrap();
        self.pending.push_back(Line { pod: "a/pod".into(), text });
    }

    fn call(&mut self, from: &str, to: &str, request: &str, expected: Expected, store: &str) {
        let (method, path) = request.split_once(' ').unwrap();
        let path = path.replace('*', "a-new-book");
        let working = self.round >= self.script.works_from;
        let closed = Some(CallError::ConnectionClosed);
        let (status, error, seen) = match expected {
            _ if !working => (None, Some(CallError::TimedOut), None),
            Expected::Served { identity } => (Some(200), None, Some(identity)),
            Expected::Answered => (None, None, None),
            Expected::Forbidden => (Some(403), None, None),
            Expected::Refused => (None, closed, None),
        };
        let version = (to == "bookstore" && seen.is_some()).then(|| store.to_owned());
        self.print(&Record::Call(Call {
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
            self.print(&Record::Received(Received {
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
        if self.script.thief_served_at == Some(self.round) {
            let served = Expected::Served { identity: identity::BOOKBUYER };
            let works_from = std::mem::take(&mut self.script.works_from);
            self.call("bookthief", "bookstore", "GET /books-bought", served, store);
            self.script.works_from = works_from;
        }
        self.pending.push_back(Line { pod: "a/pod".into(), text: "a word that is no record".into() });
        self.round += 1;
    }
}

impl Stage for Scripted {
    async fn next_line(&mut self) -> Result<Option<Line>, StageError> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Ok(Some(line));
            }
            if self.script.silent_from.is_some_and(|round| self.round >= round) {
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
        if !self.script.ignores_split {
            self.share_v2_percent = 90;
        }
        Ok(())
    }

    async fn smc(&mut self, arguments: &[&str]) -> Result<String, StageError> {
        assert_eq!(arguments, ["proxy", "config", "bookbuyer/bookbuyer", "-o", "json"]);
        let acked = if self.script.never_acknowledges { 1 } else { self.version };
        let routes =
            serde_json::json!({ "name": "r", "sent": self.version.to_string(), "acked": acked.to_string() });
        let types = serde_json::json!([{ "type": "rds", "resources": [routes] }]);
        Ok(serde_json::json!({ "streams": [{ "types": types }] }).to_string())
    }

    async fn kill_leader(&mut self) -> Result<u16, StageError> {
        assert_eq!(self.version, 1, "it should be gone before the split shifts");
        Ok(1)
    }

    fn upgrade(&self) -> Upgrade {
        if self.script.never_upgrades {
            return Box::pin(std::future::pending());
        }
        let report = SidecarReport { sidecar: "a/pod".into(), gaps_ms: vec![20, 40], resent: 0 };
        Box::pin(async { Ok(vec![report]) })
    }
}
