//! Linearizable reads without a leader, such as in the moment after it was killed.
//!
//! An entry that was acknowledged is in the logs of a majority, and stays there. So where a majority of
//! logs ends at or before what this replica has applied, it has applied everything that was acknowledged
//! before they were asked. Nothing is decided by that: a log that ends later may do so with entries that
//! were never acknowledged.
//!
//! Owns that rule and the reading of this replica's log. The group asks the others.

use std::collections::{BTreeMap, BTreeSet};

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use smc_types::ids::ReplicaId;

use crate::state::machine::Raft;
use crate::types::TypeConfig;

/// The log of this replica at one moment, before the others are asked. A later view would not do: a replica
/// that catches up meanwhile may apply a change of the members, whose majority was not asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnLog {
    /// Index of the last entry that is applied, at least.
    applied: u64,
    /// Index of the last entry of the log.
    last: u64,
    /// The voters of the latest membership in the log; of both, while it changes.
    voters: Vec<BTreeSet<ReplicaId>>,
}

impl OwnLog {
    /// Reads it. `None` if Raft has stopped.
    pub(crate) async fn of(raft: &Raft) -> Option<Self> {
        // First what is applied: it may only be more by the time of the rest.
        let applied = raft.metrics().borrow_watched().last_applied.map_or(0, |id| id.index);
        let log = raft.with_raft_state(move |state| Self {
            applied,
            last: state.log_ids.last().map_or(0, |id| id.index),
            voters: state.membership_state.effective().membership().get_joint_config().clone(),
        });
        log.await.ok()
    }

    /// The voters but `me`.
    pub(crate) fn others(&self, me: ReplicaId) -> BTreeSet<ReplicaId> {
        self.voters.iter().flatten().copied().filter(|voter| *voter != me).collect()
    }

    /// The end of this log, as the first of those to judge by.
    pub(crate) fn ends(&self, me: ReplicaId) -> BTreeMap<ReplicaId, u64> {
        BTreeMap::from([(me, self.last)])
    }

    /// Whether everything that was acknowledged before is applied here, by the ends of the logs that are
    /// known.
    pub(crate) fn includes_all(&self, ends: &BTreeMap<ReplicaId, u64>) -> bool {
        let no_longer = |voter: &&ReplicaId| ends.get(voter).is_some_and(|last| *last <= self.applied);
        let by_majority = |voters: &BTreeSet<_>| 2 * voters.iter().filter(no_longer).count() > voters.len();
        !self.voters.is_empty() && self.voters.iter().all(by_majority)
    }
}

/// Index of the last entry of a replica's log, synced or not.
pub(crate) async fn last_entry(raft: &Raft) -> Result<u64, Fatal<TypeConfig>> {
    raft.with_raft_state(|state| state.log_ids.last().map_or(0, |id| id.index)).await
}

#[test]
fn what_a_majority_does_not_have_was_not_acknowledged() {
    let ids = |ids: &[u64]| ids.iter().copied().map(ReplicaId).collect::<BTreeSet<_>>();
    let three = vec![ids(&[0, 1, 2])];
    let joint = vec![ids(&[0, 1, 2]), ids(&[0, 3, 4])];
    for (sentence, voters, ends, expected) in [
        ("a majority ends where this one is", &three, vec![(0, 7), (1, 7)], true),
        ("or before", &three, vec![(0, 7), (1, 3)], true),
        ("one has an entry more", &three, vec![(0, 7), (1, 8)], false),
        (
            "two others are enough, if this one has an entry that it has not applied",
            &three,
            vec![(0, 8), (1, 7), (2, 7)],
            true,
        ),
        ("one of them alone is not", &three, vec![(0, 8), (1, 7)], false),
        ("no other answers", &three, vec![(0, 7)], false),
        ("a replica that is no member says nothing", &three, vec![(0, 7), (5, 7)], false),
        ("a change of members needs both majorities", &joint, vec![(0, 7), (1, 7)], false),
        ("and has them", &joint, vec![(0, 7), (1, 7), (3, 7)], true),
        ("a replica without a group", &vec![], vec![(0, 0)], false),
        ("a group without voters", &vec![ids(&[])], vec![(0, 7)], false),
        ("a group of one", &vec![ids(&[0])], vec![(0, 7)], true),
    ] {
        let own = OwnLog { applied: 7, last: 7, voters: voters.clone() };
        let ends = ends.into_iter().map(|(id, last)| (ReplicaId(id), last)).collect();
        assert_eq!(own.includes_all(&ends), expected, "{sentence}");
    }
}
