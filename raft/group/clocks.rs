//! The clocks of the other members of the group.
//!
//! Owns asking for them. [`smc_authority::rules::compare_clocks`] judges them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use smc_authority::rules::{Clocks, GroupTime, compare_clocks};
use smc_host::env::Clock;
use smc_host::sync::lock;
use smc_types::ids::ReplicaId;
use smc_types::time::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::group::peers::Peers;
use crate::state::machine::Raft;
use crate::transport::client::ANSWER;

/// How often the members are asked: a jump of a clock is noticed within about two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often they are asked while too few have answered: a replica that starts waits for their clocks.
const IMPATIENT: Duration = Duration::from_millis(100);

/// How long an answer counts. Several questions may be lost; a replica that is gone says nothing.
pub(super) const KEPT: Duration = Duration::from_secs(10);

/// The last answer of a member.
#[derive(Debug, Clone, Copy)]
struct Answer {
    /// Its clock, if its version tells it.
    told: Option<Timestamp>,
    /// The middle between question and answer, which are at most [`ANSWER`] apart: the clock was read within
    /// half a second of it.
    at: Instant,
    commands: u32,
}

/// What is known of another member's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// How long ago it answered last; `None` if it has not since this replica started, or the
    /// member was added.
    pub heard: Option<Duration>,
    /// The generation of commands that it applied then ([`smc_authority::ledger::GENERATION`]).
    pub commands: u32,
}

/// What the members answered. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct PeerClocks {
    raft: Raft,
    peers: Peers,
    me: ReplicaId,
    own: Arc<dyn Clock>,
    answers: Arc<Mutex<BTreeMap<ReplicaId, Answer>>>,
}

impl PeerClocks {
    pub(crate) fn new(raft: Raft, peers: Peers, me: ReplicaId, own: Arc<dyn Clock>) -> Self {
        Self { raft, peers, me, own, answers: Arc::default() }
    }

    /// The voters and all members, without this replica.
    fn others(&self) -> (BTreeSet<ReplicaId>, BTreeSet<ReplicaId>) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let but_me = |id: &ReplicaId| *id != self.me;
        (
            membership.voter_ids().filter(but_me).collect(),
            membership.nodes().map(|(id, _)| *id).filter(but_me).collect(),
        )
    }

    /// Whether this replica belongs to a group.
    fn is_member(&self) -> bool {
        let metrics = self.raft.metrics();
        metrics.borrow_watched().membership_config.membership().nodes().next().is_some()
    }

    /// What this replica knows of the group's time now.
    pub(crate) fn time(&self) -> GroupTime {
        let (voters, all) = self.others();
        let now = Instant::now();
        let answers: BTreeMap<_, _> = {
            let answers = lock(&self.answers);
            let fresh = answers.iter().filter(|(_, answer)| now.duration_since(answer.at) <= KEPT);
            fresh
                .map(|(id, answer)| {
                    let told = answer.told.map(|time| time.plus(now.duration_since(answer.at)));
                    (*id, told)
                })
                .collect()
        };
        let tells = |id: &ReplicaId| answers.get(id).is_some_and(Option::is_some);
        let everybody = all.iter().all(tells);
        let members = voters.len() + 1;
        let voters = answers.iter().filter(|(id, _)| voters.contains(id));
        let clocks = Clocks {
            me: self.me.0,
            own: self.own.now(),
            others: voters.map(|(id, told)| (id.0, *told)).collect(),
            members,
        };
        match compare_clocks(&clocks) {
            GroupTime::Agreed { now, offset, clocks, all } => {
                GroupTime::Agreed { now, offset, clocks, all: all && everybody }
            }
            other => other,
        }
    }

    /// The contact with each other member. They are asked about once a second, and each has a
    /// second to answer.
    pub(crate) fn contacts(&self) -> BTreeMap<ReplicaId, Contact> {
        let (_, others) = self.others();
        let answers = lock(&self.answers);
        let contact = |id: &ReplicaId| match answers.get(id) {
            Some(answer) => Contact { heard: Some(answer.at.elapsed()), commands: answer.commands },
            None => Contact { heard: None, commands: 0 },
        };
        others.into_iter().map(|id| (id, contact(&id))).collect()
    }

    /// Asks all members, again and again.
    pub(crate) async fn run(self) {
        loop {
            let (_, others) = self.others();
            let mut asking = JoinSet::new();
            for id in &others {
                let Some(peer) = self.peers.peer(*id) else { continue };
                let (id, incarnation) = (*id, peer.incarnation());
                asking.spawn(async move {
                    let asked = Instant::now();
                    let described = peer.describe(ANSWER).await.ok()?;
                    let disk = described.identity.map(|identity| identity.incarnation);
                    if disk.is_some_and(|disk| disk != incarnation) {
                        // It has the member's id, and lost its disk: the member does not answer.
                        return None;
                    }
                    let at = asked + asked.elapsed() / 2;
                    let told = described.now.map(Timestamp);
                    Some((id, Answer { told, at, commands: described.commands }))
                });
            }
            while let Some(answered) = asking.join_next().await {
                if let Ok(Some((id, answer))) = answered {
                    lock(&self.answers).insert(id, answer);
                }
            }
            lock(&self.answers).retain(|id, _| others.contains(id));
            let waits = !self.is_member() || matches!(self.time(), GroupTime::Unknown { .. });
            sleep(if waits { IMPATIENT } else { INTERVAL }).await;
        }
    }
}
