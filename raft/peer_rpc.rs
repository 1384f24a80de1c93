//! Questions that the controllers of one group ask each other over Raft's connections.
//!
//! Owns the interface and its errors. Reads neither question nor answer: the controller installs a
//! [`PeerHandler`], which hands each question over to its own runtime, so that no answer keeps Raft's busy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::time::timeout;
use tonic::{Code, Status};

/// The longest that a handler may take, whatever the asking replica waits: an asker that was cut off does not
/// keep a question here.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

/// Answers the questions of other replicas.
pub trait PeerHandler: Send + Sync + 'static {
    /// Answers a question of the member `from`. Called on Raft's runtime: the implementation must not block
    /// or compute there.
    fn answer(&self, from: ReplicaId, question: Question) -> BoxFuture<'static, Result<Answer, NotAnswered>>;
}

/// Why a handler gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotAnswered {
    /// Too many questions are waiting.
    #[error("too many questions are waiting")]
    Busy,
    /// This version does not know the question.
    #[error("the replica does not know the question")]
    Unknown,
    /// The replica is starting or stopping.
    #[error("the replica is not accepting peer requests")]
    NotNow,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AskError {
    /// The replica is not a member of the group.
    #[error("replica {0} is not a member of the group")]
    NotMember(ReplicaId),
    /// The replica could not be reached, or is starting or stopping.
    #[error("the replica could not be reached, or does not answer now: {0}")]
    Unreachable(String),
    /// The replica did not answer in time.
    #[error("the replica did not answer within {0:?}")]
    Timeout(Duration),
    /// Too many questions are waiting there.
    #[error("too many questions are waiting at the replica")]
    Busy,
    /// The replica's version does not know the question, or any question.
    #[error("the replica's version does not know the question")]
    Unknown,
    /// The replica refused; a retry will not help.
    #[error("the replica refused the question: {0}")]
    Refused(String),
}

impl From<Status> for AskError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unimplemented => Self::Unknown,
            Code::ResourceExhausted => Self::Busy,
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unauthenticated => {
                Self::Refused(status.message().to_owned())
            }
            _ => Self::Unreachable(status.message().to_owned()),
        }
    }
}

impl From<NotAnswered> for AskError {
    fn from(error: NotAnswered) -> Self {
        match error {
            NotAnswered::Busy => Self::Busy,
            NotAnswered::Unknown => Self::Unknown,
            NotAnswered::NotNow => Self::Unreachable(error.to_string()),
        }
    }
}

/// The place of a replica's handler, filled once. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Answering(Arc<OnceLock<Arc<dyn PeerHandler>>>);

impl Answering {
    /// Installs the handler. Returns whether it is the first.
    pub(crate) fn install(&self, handler: Arc<dyn PeerHandler>) -> bool {
        self.0.set(handler).is_ok()
    }

    /// The answer to a question of `from`.
    pub(crate) async fn answer(&self, from: ReplicaId, question: Question) -> Result<Answer, NotAnswered> {
        let handler = self.0.get().ok_or(NotAnswered::NotNow)?;
        let answering = timeout(LONGEST_ANSWER, handler.answer(from, question));
        answering.await.unwrap_or(Err(NotAnswered::NotNow))
    }
}

/// The status that an asking replica reads as the same error ([`AskError`]).
pub(crate) fn status(error: NotAnswered) -> Status {
    let code = match error {
        NotAnswered::Busy => Code::ResourceExhausted,
        NotAnswered::Unknown => Code::Unimplemented,
        NotAnswered::NotNow => Code::Unavailable,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_the_same_over_the_network() {
        for error in [NotAnswered::Busy, NotAnswered::Unknown, NotAnswered::NotNow] {
            assert_eq!(AskError::from(status(error)), AskError::from(error));
        }
    }
}
