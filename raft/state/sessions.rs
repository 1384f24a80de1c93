//! Sessions of proposers: records which requests were applied, so that a retry is not applied twice (Raft
//! thesis, section 6.3).
//!
//! Part of the replicated state: every replica skips the same duplicates. A proposer opens a session,
//! numbers its requests, and states with each one which numbers it will not send again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most sessions recorded. Each start of a replica opens one, so this is hundreds of restarts. The
/// session that has been idle longest is dropped first.
const MAX_SESSIONS: usize = 256;

/// How far a request's number may be ahead of the oldest unsettled one: more than a proposer has in flight.
pub(crate) const WINDOW: u64 = 4096;

/// A proposer's session: a random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SessionId(pub(crate) u64);

/// A request's session and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestId {
    pub(crate) session: SessionId,
    /// Counts from 0.
    pub(crate) number: u64,
    /// All smaller numbers are settled: they were answered, or the proposer will not retry them.
    pub(crate) settled: u64,
}

/// How to treat a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is new.
    Apply,
    /// It was applied before.
    Duplicate,
    /// It is no longer known whether it was applied, so it must not be.
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sessions(BTreeMap<SessionId, Session>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// Log index of its last request. Snapshots store it under this name, and old ones are read.
    #[serde(rename = "heard")]
    last_seen: u64,
    /// All smaller numbers are settled.
    settled: u64,
    /// The applied numbers from `settled` on.
    applied: BTreeSet<u64>,
}

impl Sessions {
    /// Opens a session. Opening it again forgets nothing.
    pub(crate) fn open(&mut self, id: SessionId, index: u64) {
        let new = Session { last_seen: index, settled: 0, applied: BTreeSet::new() };
        self.0.entry(id).or_insert(new).last_seen = index;
        if self.0.len() > MAX_SESSIONS
            && let Some(idle) = self.0.iter().min_by_key(|(_, session)| session.last_seen).map(|(id, _)| *id)
        {
            self.0.remove(&idle);
        }
    }

    /// Records a request at log index `index`, and returns how to treat it.
    pub(crate) fn admit(&mut self, request: RequestId, index: u64) -> Admission {
        let Some(session) = self.0.get_mut(&request.session) else { return Admission::Unknown };
        session.last_seen = index;
        // A late message may carry an older value.
        session.settled = session.settled.max(request.settled);
        session.applied = session.applied.split_off(&session.settled);
        if request.number < session.settled || session.applied.contains(&request.number) {
            return Admission::Duplicate;
        }
        if request.number - session.settled >= WINDOW {
            return Admission::Unknown;
        }
        session.applied.insert(request.number);
        Admission::Apply
    }

    /// Whether a request, or the opening of a session (`None`), has been applied.
    pub(crate) fn includes(&self, id: SessionId, number: Option<u64>) -> bool {
        self.0.get(&id).is_some_and(|session| match number {
            None => true,
            Some(number) => number < session.settled || session.applied.contains(&number),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);

    /// Snapshots of other versions are read, and replicas of two versions send each other theirs.
    #[test]
    fn the_stored_form_never_changes() {
        let stored = r#"{"1":{"heard":7,"settled":2,"applied":[2,4]}}"#;
        let sessions: Sessions = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&sessions).unwrap(), stored);
    }

    fn request(number: u64, settled: u64) -> RequestId {
        RequestId { session: A, number, settled }
    }

    fn opened() -> Sessions {
        let mut sessions = Sessions::default();
        sessions.open(A, 1);
        sessions
    }

    #[test]
    fn a_request_is_applied_once_in_any_order_of_its_copies() {
        let mut sessions = opened();
        assert_eq!(sessions.admit(request(1, 0), 2), Admission::Apply);
        assert_eq!(sessions.admit(request(0, 0), 3), Admission::Apply);
        assert_eq!(sessions.admit(request(1, 0), 4), Admission::Duplicate);
        assert_eq!(sessions.admit(request(2, 2), 5), Admission::Apply);
        assert_eq!(
            sessions.admit(request(0, 0), 6),
            Admission::Duplicate,
            "late copies of settled ones, too"
        );
    }

    #[test]
    fn settled_requests_take_no_room() {
        let mut sessions = opened();
        for number in 0..10_000 {
            assert_eq!(sessions.admit(request(number, number.saturating_sub(3)), number), Admission::Apply);
        }
        assert_eq!(sessions.0[&A].applied.len(), 4);
    }

    #[test]
    fn a_request_of_an_unknown_session_or_too_far_ahead_is_not_applied() {
        assert_eq!(Sessions::default().admit(request(0, 0), 1), Admission::Unknown);
        assert_eq!(opened().admit(request(WINDOW, 0), 2), Admission::Unknown);
        assert_eq!(opened().admit(request(WINDOW - 1, 0), 2), Admission::Apply);
    }

    #[test]
    fn the_session_that_was_idle_longest_makes_room() {
        let mut sessions = Sessions::default();
        for n in 0..MAX_SESSIONS as u64 {
            sessions.open(SessionId(n), n);
        }
        sessions.admit(RequestId { session: SessionId(0), number: 0, settled: 0 }, 1_000);
        sessions.open(SessionId(9_999), 1_001);
        assert!(sessions.includes(SessionId(0), None) && sessions.includes(SessionId(9_999), None));
        assert!(!sessions.includes(SessionId(1), None), "it was idle longest");
        assert_eq!(sessions.0.len(), MAX_SESSIONS);
    }

    #[test]
    fn opening_again_forgets_nothing() {
        let mut sessions = opened();
        sessions.admit(request(0, 0), 2);
        sessions.open(A, 3);
        assert_eq!(sessions.admit(request(0, 0), 4), Admission::Duplicate);
    }
}
