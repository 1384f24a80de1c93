//! A ledger whose proposals a test delays, precedes or refuses.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use smc_authority::ledger::{Command, Outcome};
use smc_authority::rules::GroupTime;
use smc_raft::{ProposeError, ReplicatedLedger, SharedLedger};

struct Intercepted<B> {
    ledger: Arc<dyn ReplicatedLedger>,
    before: B,
}

/// `ledger`, with `before` run on every proposal. Its error stands for the proposal, which is then not made.
pub(super) fn intercepted<B>(ledger: Arc<dyn ReplicatedLedger>, before: B) -> Arc<dyn ReplicatedLedger>
where
    B: Fn(&[Command]) -> BoxFuture<'static, Result<(), ProposeError>> + Send + Sync + 'static,
{
    Arc::new(Intercepted { ledger, before })
}

impl<B> ReplicatedLedger for Intercepted<B>
where
    B: Fn(&[Command]) -> BoxFuture<'static, Result<(), ProposeError>> + Send + Sync,
{
    fn propose(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Vec<Outcome>, ProposeError>> {
        let before = (self.before)(&commands);
        Box::pin(async move {
            before.await?;
            self.ledger.propose(commands).await
        })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        self.ledger.barrier()
    }

    fn local(&self) -> &SharedLedger {
        self.ledger.local()
    }

    fn time(&self) -> GroupTime {
        self.ledger.time()
    }
}
