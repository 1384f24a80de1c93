//! Questions to the controllers of other members, and the handler of theirs.

use std::sync::Arc;
use std::time::Duration;

use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_types::ids::ReplicaId;
use tokio::time::timeout;

use super::Group;
use crate::peer_rpc::{AskError, PeerHandler};

impl Group {
    /// Asks the controller of a member, and waits at most `limit` for its answer. A question to this replica
    /// goes to its own handler.
    pub async fn ask(
        &self,
        replica: ReplicaId,
        question: Question,
        limit: Duration,
    ) -> Result<Answer, AskError> {
        let asking = async {
            if replica == self.identity.replica {
                return Ok(self.answering.answer(replica, question).await?);
            }
            let peer = self.peers.peer(replica).ok_or(AskError::NotMember(replica))?;
            peer.ask(question).await
        };
        timeout(limit, asking).await.unwrap_or(Err(AskError::Timeout(limit)))
    }

    /// Installs the handler of other members' questions; until then they are UNAVAILABLE. Returns whether it
    /// is the first: a handler is never replaced.
    pub fn answer_with(&self, handler: Arc<dyn PeerHandler>) -> bool {
        self.answering.install(handler)
    }
}
