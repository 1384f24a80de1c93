//! Answers to the questions of other replicas.
//!
//! Owns the way from Raft's runtime to this one: a bounded queue, so that what an answer takes is
//! never taken from a heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use smc_authority::ledger::ReplicaPhase;
use smc_host::tasks::Tasks;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{self as pb, ShardsAnswer};
use smc_raft::{NotAnswered, PeerHandler};
use smc_types::ids::ReplicaId;
use smc_xds::served_state::ServedState;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

use super::{Moves, Shards};
use crate::sidecars::Sidecars;
use crate::xds::proxies::Proxies;

/// Questions that wait: a group has nine members at most, and each asks a few questions at a time.
const WAITING: usize = 64;

struct Asked {
    from: ReplicaId,
    question: Question,
    reply: oneshot::Sender<Result<Answer, NotAnswered>>,
}

/// Answers what the leader asks about objects and proxies.
pub(crate) type ProxyReports = Box<
    dyn Fn(pb::ProxyReportsQuestion) -> BoxFuture<'static, Result<pb::ProxyReportsAnswer, NotAnswered>>
        + Send
        + Sync,
>;

/// Queues questions.
struct Queue(mpsc::Sender<Asked>);

impl PeerHandler for Queue {
    fn answer(&self, from: ReplicaId, question: Question) -> BoxFuture<'static, Result<Answer, NotAnswered>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.0.try_send(Asked { from, question, reply });
        Box::pin(async move {
            queued.map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => NotAnswered::Busy,
                mpsc::error::TrySendError::Closed(_) => NotAnswered::NotNow,
            })?;
            answer.await.unwrap_or(Err(NotAnswered::NotNow))
        })
    }
}

/// What answers are made of.
pub(super) struct Answering {
    pub(super) shards: Shards,
    pub(super) proxies: Proxies,
    pub(super) reports: ProxyReports,
    pub(super) sidecars: Sidecars,
    pub(super) served: watch::Receiver<Option<Arc<ServedState>>>,
}

/// Starts answering.
pub(super) fn start(answering: Answering, tasks: &mut Tasks) {
    let (sender, mut asked) = mpsc::channel(WAITING);
    if !answering.shards.group.answer_with(Arc::new(Queue(sender))) {
        warn!("another part answers the questions of other replicas already");
    }
    tasks.spawn("questions", |stopping| async move {
        let answers = async {
            while let Some(Asked { from, question, reply }) = asked.recv().await {
                // An error means that the asker has gone.
                let _ = reply.send(answering.answer(from, question).await);
            }
            // No question comes: the handler of an earlier server of this group answers.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = answers => {}
        }
    });
}

impl Answering {
    async fn answer(&self, from: ReplicaId, question: Question) -> Result<Answer, NotAnswered> {
        let Self { shards, proxies, reports, sidecars, served } = self;
        match question {
            Question::Shards(pb::ShardsQuestion {}) => Ok(Answer::Shards(held(shards, proxies))),
            // A replica that is not ready any more, or not known to be yet, takes nothing.
            Question::AcceptMoves(_) if shards.phase() != Some(ReplicaPhase::Ready) => {
                Err(NotAnswered::NotNow)
            }
            Question::AcceptMoves(pb::AcceptMovesQuestion { count }) => {
                Ok(Answer::AcceptMoves(shards.receiver.accept(count, proxies)))
            }
            Question::ProxyReports(question) => reports(question).await.map(Answer::ProxyReports),
            Question::Revision(pb::RevisionQuestion {}) => {
                let read = served.borrow().as_ref().and_then(|served| served.revision.clone());
                let changed = read.map(|revision| revision.changed.to_string()).unwrap_or_default();
                Ok(Answer::Revision(pb::RevisionAnswer { changed }))
            }
            // What a former leader found does not replace what the leader found.
            Question::Sidecars(_) if shards.group.status().leader != Some(from) => Err(NotAnswered::NotNow),
            Question::Sidecars(question) => Ok(Answer::Sidecars(sidecars.answer(question))),
        }
    }
}

/// What this replica serves of which shard. O(connected proxies).
fn held(shards: &Shards, proxies: &Proxies) -> ShardsAnswer {
    let placement = shards.placement();
    let mut connected: BTreeMap<u64, u64> = BTreeMap::new();
    for proxy in proxies.streams().into_keys() {
        if let Some(owner) = shards.owner_in(&placement, proxy.uuid) {
            *connected.entry(owner.0).or_default() += 1;
        }
    }
    ShardsAnswer {
        run: shards.run(),
        epoch: placement.epoch,
        phase: shards.phase().map_or(pb::Phase::Unspecified, phase).into(),
        connected,
        moves_in_flight: Moves::read(&shards.moves.in_flight),
        moved: Moves::read(&shards.moves.moved),
        refused: Moves::read(&shards.moves.refused),
    }
}

fn phase(phase: ReplicaPhase) -> pb::Phase {
    match phase {
        ReplicaPhase::Joining => pb::Phase::Joining,
        ReplicaPhase::Ready => pb::Phase::Ready,
        ReplicaPhase::Draining => pb::Phase::Draining,
        ReplicaPhase::Down => pb::Phase::Down,
    }
}
