//! Deleting the records of expired certificates from the ledger, from time to time.
//!
//! Owns the condition on the clock: a proxy whose certificate was deleted is refused for good, so nothing
//! is deleted by a clock that has jumped.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::rules::ClockStability;
use smc_host::env::Env;
use tokio::time::Instant;

use super::BuiltinCa;

/// The time between two prunings.
const INTERVAL: Duration = Duration::from_hours(1);

/// Prunes the ledger of one replica.
pub(super) struct Pruner {
    ca: Arc<BuiltinCa>,
    env: Env,
    clock: ClockStability,
    /// The origin of the monotonic clock.
    began: Instant,
    last: Option<Instant>,
}

impl Pruner {
    /// Begins to observe the clock.
    pub(super) fn new(ca: Arc<BuiltinCa>, env: Env) -> Self {
        Self { ca, env, clock: ClockStability::default(), began: Instant::now(), last: None }
    }

    /// Prunes if the last pruning is an hour ago and the clock is steady. To be called at least every few
    /// minutes, since a jump of the clock is noticed between two calls.
    pub(super) async fn prune_if_due(&mut self) {
        let now = Instant::now();
        let steady = self.clock.observe(self.env.now(), now.duration_since(self.began));
        let lately = self.last.is_some_and(|last| now.duration_since(last) < INTERVAL);
        if !steady || lately {
            return;
        }
        self.last = Some(now);
        match self.ca.prune().await {
            Ok(0) => {}
            Ok(certificates) => tracing::debug!(certificates, "deleted the records of expired certificates"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot prune the ledger");
            }
        }
    }
}
