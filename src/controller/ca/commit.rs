//! Committing one operation to the ledger.
//!
//! Owns the step from a typed command to its typed reply.

use smc_authority::ledger::{Command, LedgerOperation, Rejection};
use smc_raft::ReplicatedLedger;

use super::error::{CaError, CaOperation};
use smc_host::env::Env;

/// Commits a command, and returns its reply or the ledger's rejection. Errors name `operation`.
pub(super) async fn propose<O: LedgerOperation>(
    ledger: &dyn ReplicatedLedger,
    env: &Env,
    operation: &CaOperation,
    command: O,
) -> Result<Result<O::Reply, Rejection>, CaError> {
    let command = Command { at: env.now(), operation: command.into_operation() };
    let mut outcomes = ledger
        .propose(vec![command])
        .await
        .map_err(|source| CaError::NotCommitted { operation: operation.clone(), source })?;
    let outcome = match outcomes.pop() {
        Some(Ok(reply)) => O::reply(reply).map(Ok),
        Some(Err(rejection)) => Some(Err(rejection)),
        None => None,
    };
    outcome.ok_or_else(|| CaError::NoAnswer(operation.clone()))
}

/// As [`propose`], with a rejection as an error.
pub(super) async fn commit<O: LedgerOperation>(
    ledger: &dyn ReplicatedLedger,
    env: &Env,
    operation: &CaOperation,
    command: O,
) -> Result<O::Reply, CaError> {
    let outcome = propose(ledger, env, operation, command).await?;
    outcome.map_err(|source| CaError::Rejected { operation: operation.clone(), source })
}

/// Waits until the ledger of this replica holds everything that any replica acknowledged before this call.
pub(super) async fn barrier(ledger: &dyn ReplicatedLedger, operation: &CaOperation) -> Result<(), CaError> {
    let error = |source| CaError::NotCommitted { operation: operation.clone(), source };
    ledger.barrier().await.map_err(error)
}
