//! Committing one operation to the ledger.
//!
//! Owns the step from a typed command to its typed reply.

use std::time::Duration;

use smc_authority::ledger::{AgreeOnTime, Command, LedgerOperation, Operation, Rejection};
use smc_authority::rules::GroupTime;
use smc_host::env::Env;
use smc_raft::ReplicatedLedger;
use smc_types::time::Timestamp;
use tokio::time::{Instant, sleep};

use super::clock::ClockError;
use super::error::{CaError, CaOperation};

/// How long to wait for the other replicas to tell their clocks, which they are asked once a second.
const CLOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Fails unless this replica's clock agrees with those of a majority: it neither issues nor replaces anything
/// otherwise.
pub(super) async fn check_clock(
    ledger: &dyn ReplicatedLedger,
    operation: &CaOperation,
) -> Result<(), CaError> {
    let deadline = Instant::now() + CLOCK_PATIENCE;
    loop {
        match ClockError::check(&ledger.time()) {
            Ok(()) => return Ok(()),
            Err(source) if source.is_known() || Instant::now() >= deadline => {
                return Err(CaError::Clock { operation: operation.clone(), source });
            }
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What is proposed for a command whose time counts: before it the group's time, where the ledger's is an old
/// one. Many commands share one agreement on the time. A replica whose clock is wrong has none to offer.
pub fn timed<O: LedgerOperation>(ledger: &dyn ReplicatedLedger, at: Timestamp, command: O) -> Vec<Command> {
    let mut commands = Vec::new();
    if let GroupTime::Agreed { now, clocks, .. } = ledger.time()
        && ledger.local().read(|ledger| ledger.is_time_due(now))
    {
        commands.push(Command { at, operation: Operation::AgreeOnTime(AgreeOnTime { clocks }) });
    }
    commands.push(Command { at, operation: command.into_operation() });
    commands
}

/// Commits a command, and returns its reply or the ledger's rejection. Errors name `operation`.
pub(super) async fn propose<O: LedgerOperation>(
    ledger: &dyn ReplicatedLedger,
    env: &Env,
    operation: &CaOperation,
    command: O,
) -> Result<Result<O::Reply, Rejection>, CaError> {
    let mut outcomes = ledger
        .propose(timed(ledger, env.now(), command))
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
