//! The group's time on one replica: the clock that the replica goes by.
//!
//! Owns what follows from the comparison of the replicas' clocks ([`smc_authority::rules::compare_clocks`]):
//! a replica whose clock is wrong reads the group's, says so, is not ready, and issues nothing
//! (docs/design/identity.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use smc_authority::rules::GroupTime;
use smc_host::env::{Clock, Env};
use smc_raft::{Group, ReplicatedLedger};
use smc_types::time::Timestamp;
use tokio::time::{Instant, sleep};
use tracing::error;

use crate::ClockError;

/// How often the clocks are compared while a replica waits for them to agree.
const PAUSE: Duration = Duration::from_millis(100);

/// How often a wrong clock is logged.
pub const SAID_EVERY: Duration = Duration::from_mins(1);

/// The clock that a replica goes by: its own while a majority agrees with it, and the group's otherwise, so
/// that a replica with a wrong clock still tells which certificates are valid.
struct GroupClock {
    ledger: Arc<dyn ReplicatedLedger>,
    own: Arc<dyn Clock>,
    /// What was last to be added to the own clock, in seconds.
    correction: AtomicI64,
}

impl Clock for GroupClock {
    fn now(&self) -> Timestamp {
        match self.ledger.time() {
            GroupTime::Agreed { .. } => self.correction.store(0, Ordering::Relaxed),
            GroupTime::Off { offset, .. } => {
                self.correction.store(offset.saturating_neg(), Ordering::Relaxed);
            }
            GroupTime::Disputed { .. } | GroupTime::Unknown { .. } => {}
        }
        Timestamp(self.own.now().0.saturating_add(self.correction.load(Ordering::Relaxed)))
    }
}

/// `env` with the clock that the replica goes by.
pub fn corrected(env: Env, ledger: Arc<dyn ReplicatedLedger>) -> Env {
    let own = Arc::clone(&env.clock);
    Env { clock: Arc::new(GroupClock { ledger, own, correction: AtomicI64::new(0) }), ..env }
}

/// Waits until this replica's clock agrees with those of a majority. Logs what it waits for. The replica is a
/// member of its group meanwhile.
pub async fn clock_agrees(group: &Group) {
    let mut said: Option<Instant> = None;
    while let Err(reason) = ClockError::check(&group.time()) {
        if reason.is_known() && said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
            error!(error = &reason as &dyn std::error::Error, "not serving until the clocks agree");
            said = Some(Instant::now());
        }
        sleep(PAUSE).await;
    }
}
