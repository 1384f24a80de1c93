//! The way of proposals into the log.
//!
//! Owns batching, numbering and retries. Queued proposals form one batch, which is sent to the leader under
//! the same number again and again, until this replica has applied it or its time is up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, RaftError};
use prost::Message;
use smc_authority::ledger::Outcome;
use smc_host::env::Entropy;
use smc_proto::raft::v1 as pb;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::group::peers::{Attempts, Leader, Peers};
use crate::replicated::ProposeError;
use crate::state::machine::Raft;
use crate::state::sessions::SessionId;
use crate::state::waiters::{Applied, Waiters};
use crate::transport::client::CallError;
use crate::types::Proposal as Payload;

/// The most bytes of one batch: what a disk writes within a few milliseconds, so that the first proposal of
/// a batch does not wait long for the last.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Batches in flight at once: while one is synced, the next is sent.
const IN_FLIGHT: usize = 8;

/// How long a proposal is retried: several elections. Callers have deadlines of their own.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one attempt may take before the leader is looked up again: longer than a slow sync, shorter
/// than what a caller notices as an outage.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The commands of one caller.
pub(crate) struct Proposal {
    /// Each command, encoded.
    pub(crate) commands: Vec<Bytes>,
    pub(crate) bytes: usize,
    pub(crate) reply: oneshot::Sender<Result<Vec<Outcome>, ProposeError>>,
}

/// What a proposer works with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProposeContext {
    pub(crate) raft: Raft,
    pub(crate) peers: Peers,
    pub(crate) waiters: Waiters,
    /// Gives the random ids of sessions.
    pub(crate) entropy: Arc<dyn Entropy>,
}

/// The task that batches proposals.
pub(crate) struct Proposer {
    context: ProposeContext,
    queue: mpsc::Receiver<Proposal>,
    /// Opened when it is first needed, and again after the group has forgotten it.
    session: Option<SessionId>,
    next: u64,
    in_flight: BTreeSet<u64>,
    batches: JoinSet<Batch>,
}

/// Several proposals under one number.
struct Batch {
    session: SessionId,
    number: u64,
    proposals: Vec<Proposal>,
    result: Result<Applied, ProposeError>,
}

impl Proposer {
    pub(crate) fn new(context: ProposeContext, queue: mpsc::Receiver<Proposal>) -> Self {
        Self { context, queue, session: None, next: 0, in_flight: BTreeSet::new(), batches: JoinSet::new() }
    }

    /// Runs until `stopping`. The callers of batches in flight then get no outcome.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                Some(ended) = self.batches.join_next() => {
                    if let Ok(batch) = ended {
                        self.settle(batch);
                    }
                }
                first = self.queue.recv(), if self.batches.len() < IN_FLIGHT => match first {
                    Some(first) => {
                        let proposals = self.gather(first);
                        self.send(proposals, &stopping).await;
                    }
                    None => return,
                },
            }
        }
    }

    /// Collects what else is queued, up to the size of a batch.
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
                    // The caller may have given up.
                    let _ = proposal.reply.send(Err(error.clone()));
                }
                return;
            }
        };
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number);
        let batch = pb::Batch {
            session: session.0,
            number,
            settled: self.in_flight.first().copied().unwrap_or(number),
            commands: proposals.iter().flat_map(|proposal| proposal.commands.iter().cloned()).collect(),
        };
        let request = pb::Request { request: Some(pb::request::Request::Batch(batch)) };
        let context = self.context.clone();
        self.batches.spawn(async move {
            let result = context.deliver(session, Some(number), request, deadline).await;
            Batch { session, number, proposals, result }
        });
    }

    /// Opens a session with a fresh random id.
    async fn open(&mut self, deadline: Instant) -> Result<SessionId, ProposeError> {
        let session = SessionId(self.context.entropy.random_u64()?);
        let request = pb::Request { request: Some(pb::request::Request::OpenSession(session.0)) };
        self.context.deliver(session, None, request, deadline).await?;
        self.session = Some(session);
        self.next = 0;
        self.in_flight.clear();
        Ok(session)
    }

    /// Answers the callers of a batch that has ended.
    fn settle(&mut self, batch: Batch) {
        let Batch { session, number, proposals, result } = batch;
        if self.session == Some(session) {
            self.in_flight.remove(&number);
        }
        let mut outcomes = match result {
            Ok(Applied::Outcomes(outcomes)) => Ok(outcomes.into_iter()),
            Ok(Applied::Refused | Applied::Opened) => {
                // The group has forgotten the session; the next batch opens another one.
                self.session = self.session.filter(|current| *current != session);
                Err(ProposeError::Unavailable(
                    "the group has forgotten the session, as after a very long pause".to_owned(),
                ))
            }
            Err(error) => Err(error),
        };
        for proposal in proposals {
            let answer = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(proposal.commands.len()).collect()),
                Err(error) => Err(error.clone()),
            };
            // The caller may have given up; its commands are applied all the same.
            let _ = proposal.reply.send(answer);
        }
    }
}

impl ProposeContext {
    /// Gets a request into the log and waits until it is applied here.
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
            let mut attempts = Attempts::default();
            loop {
                let leader = self.peers.leader_id();
                if let Err(error) = self.peers.while_leading(leader, self.attempt(payload.clone())).await {
                    debug!(%error, "retrying a proposal");
                    attempts.wait(&self.peers, leader).await;
                } else {
                    // Committed; applied here as soon as the commit index reaches this replica.
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

    /// Tries once, here if this replica leads, else at the leader. A hint of a former leader to the new one
    /// is ignored: the next attempt begins as soon as this replica knows the new leader itself.
    async fn attempt(&self, payload: Bytes) -> Result<(), CallError> {
        match self.peers.leader() {
            Leader::Unknown => Err(CallError::NotLeader),
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
