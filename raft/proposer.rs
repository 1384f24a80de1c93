//! From many who propose to one log.
//!
//! Owns batching, numbering and retries. Everything that waits is put into one batch; a batch goes to the leader,
//! wherever that is, again and again under the same number until this replica has applied it or the time is up.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, RaftError};
use prost::Message;
use smc_proto::raft::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::machine::StateMachine;
use crate::peers::{BackOff, Leader, Peers};
use crate::replicated::{Outcome, ProposeError};
use crate::runtime::Draw;
use crate::sessions::SessionId;
use crate::transport::client::CallError;
use crate::types::{Proposal as Payload, TypeConfig};
use crate::waiters::{Applied, Waiters};

/// The most bytes of one batch: what a disk writes within a few milliseconds, so that the first in a batch does
/// not wait long for the last.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Batches under way at once: while one is synced the next is on its way.
const UNDER_WAY: usize = 8;

/// How long a proposal is tried for. Several elections fit; whoever waits has a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one attempt may take before the leader is looked for again: longer than a slow sync, shorter than
/// what a caller notices as an outage.
const ATTEMPT: Duration = Duration::from_secs(2);

/// What one caller proposed.
pub(crate) struct Proposal {
    /// Each command, encoded.
    pub(crate) commands: Vec<Bytes>,
    pub(crate) bytes: usize,
    pub(crate) reply: oneshot::Sender<Result<Vec<Outcome>, ProposeError>>,
}

/// What a proposer works with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) raft: openraft::Raft<TypeConfig, StateMachine>,
    pub(crate) peers: Peers,
    pub(crate) waiters: Waiters,
    /// Draws the number of a session.
    pub(crate) draw: Draw,
}

/// See the module.
pub(crate) struct Proposer {
    means: Means,
    queue: mpsc::Receiver<Proposal>,
    /// Opened when it is first needed, and again when it was forgotten.
    session: Option<SessionId>,
    next: u64,
    under_way: BTreeSet<u64>,
    batches: JoinSet<Batch>,
}

/// Several proposals with one number.
struct Batch {
    session: SessionId,
    number: u64,
    proposals: Vec<Proposal>,
    result: Result<Applied, ProposeError>,
}

impl Proposer {
    pub(crate) fn new(means: Means, queue: mpsc::Receiver<Proposal>) -> Self {
        Self { means, queue, session: None, next: 0, under_way: BTreeSet::new(), batches: JoinSet::new() }
    }

    /// Works until `stopping`; what is under way then is answered as unknown.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                Some(ended) = self.batches.join_next() => {
                    if let Ok(batch) = ended {
                        self.settle(batch);
                    }
                }
                first = self.queue.recv(), if self.batches.len() < UNDER_WAY => match first {
                    Some(first) => {
                        let proposals = self.gather(first);
                        self.send(proposals, &stopping).await;
                    }
                    None => return,
                },
            }
        }
    }

    /// Takes what else waits.
    fn gather(&mut self, first: Proposal) -> Vec<Proposal> {
        let mut bytes = first.bytes;
        let mut proposals = vec![first];
        while bytes < MAX_BATCH_BYTES
            && let Ok(next) = self.queue.try_recv()
        {
            bytes += next.bytes;
            proposals.push(next);
        }
        proposals
    }

    async fn send(&mut self, proposals: Vec<Proposal>, stopping: &CancellationToken) {
        let deadline = Instant::now() + PATIENCE;
        let opened = if let Some(session) = self.session {
            Ok(session)
        } else {
            tokio::select! {
                () = stopping.cancelled() => Err(ProposeError::Closed),
                opened = self.open(deadline) => opened,
            }
        };
        let session = match opened {
            Ok(session) => session,
            Err(error) => {
                for proposal in proposals {
                    // The proposer may have gone away.
                    let _ = proposal.reply.send(Err(error.clone()));
                }
                return;
            }
        };
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number);
        let batch = pb::Batch {
            session: session.0,
            number,
            settled: self.under_way.first().copied().unwrap_or(number),
            commands: proposals.iter().flat_map(|proposal| proposal.commands.iter().cloned()).collect(),
        };
        let request = pb::Request { request: Some(pb::request::Request::Batch(batch)) };
        let means = self.means.clone();
        self.batches.spawn(async move {
            let result = means.deliver(session, Some(number), request, deadline).await;
            Batch { session, number, proposals, result }
        });
    }

    /// Opens a session.
    async fn open(&mut self, deadline: Instant) -> Result<SessionId, ProposeError> {
        let session = SessionId((self.means.draw)());
        let request = pb::Request { request: Some(pb::request::Request::OpenSession(session.0)) };
        self.means.deliver(session, None, request, deadline).await?;
        self.session = Some(session);
        self.next = 0;
        self.under_way.clear();
        Ok(session)
    }

    /// Answers those whose batch has ended.
    fn settle(&mut self, batch: Batch) {
        let Batch { session, number, proposals, result } = batch;
        if self.session == Some(session) {
            self.under_way.remove(&number);
        }
        let mut outcomes = match result {
            Ok(Applied::Outcomes(outcomes)) => Ok(outcomes.into_iter()),
            Ok(Applied::Refused | Applied::Opened) => {
                // The group has forgotten the session; the next batch opens another one.
                self.session = self.session.filter(|current| *current != session);
                Err(ProposeError::Unavailable(
                    "the session was forgotten, as after a very long silence".to_owned(),
                ))
            }
            Err(error) => Err(error),
        };
        for proposal in proposals {
            let answer = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(proposal.commands.len()).collect()),
                Err(error) => Err(error.clone()),
            };
            // The proposer may have gone away; what it proposed holds all the same.
            let _ = proposal.reply.send(answer);
        }
    }
}

impl Means {
    /// Brings a request into the log and waits until it is applied here.
    async fn deliver(
        &self,
        session: SessionId,
        number: Option<u64>,
        request: pb::Request,
        deadline: Instant,
    ) -> Result<Applied, ProposeError> {
        let payload = Bytes::from(request.encode_to_vec());
        let applied = self.waiters.wait(session, number);
        let delivering = async {
            let mut back_off = BackOff::default();
            loop {
                let leader = self.peers.leader_id();
                if let Err(why) = self.peers.while_leading(leader, self.attempt(payload.clone())).await {
                    debug!(%why, "a proposal has to be tried again");
                    back_off.wait(&self.peers, leader).await;
                } else {
                    // Committed; it is applied here as soon as this replica hears of it.
                    sleep(ATTEMPT).await;
                }
            }
        };
        let answered = tokio::select! {
            biased;
            applied = timeout_at(deadline, applied) => applied,
            never = delivering => never,
        };
        match answered {
            Ok(Ok(applied)) => Ok(applied),
            Ok(Err(_)) => Err(ProposeError::Unknown),
            Err(_) => {
                self.waiters.forget(session, number);
                Err(ProposeError::Unavailable(format!("not committed within {} s", PATIENCE.as_secs())))
            }
        }
    }

    /// Tries once: here if this replica leads, else there. Whom a former leader names is not followed: to know of that one
    /// begins the next attempt anyway.
    async fn attempt(&self, payload: Bytes) -> Result<(), CallError> {
        match self.peers.leader() {
            Leader::Nobody => Err(CallError::NotLeader),
            Leader::Other(leader) => leader.propose(payload, ATTEMPT).await,
            Leader::Me => match timeout(ATTEMPT, self.raft.client_write(Payload(payload))).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                    Err(CallError::NotLeader)
                }
                Ok(Err(error)) => Err(CallError::Failed(error.to_string())),
                Err(_) => Err(CallError::Timeout(ATTEMPT)),
            },
        }
    }
}
