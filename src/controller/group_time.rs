//! The group's time on one replica: the clock that the replica goes by, and the watch over its own clock.
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
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::ca::{BuiltinCa, ClockError};
use crate::tasks::Tasks;
use crate::telemetry::Metrics;

/// How often the clocks are judged: the other replicas are asked once a second.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often a wrong clock is logged.
const SAID_EVERY: Duration = Duration::from_mins(1);

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
pub(crate) fn corrected(env: Env, ledger: Arc<dyn ReplicatedLedger>) -> Env {
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
        sleep(INTERVAL / 10).await;
    }
}

/// The watch over the clock of one replica.
pub(crate) struct ClockWatch {
    ca: Arc<BuiltinCa>,
    group: Arc<Group>,
    metrics: Metrics,
}

impl ClockWatch {
    /// Starts the task.
    pub(crate) fn start(ca: &Arc<BuiltinCa>, group: &Arc<Group>, metrics: &Metrics, tasks: &mut Tasks) {
        let watch = Self { ca: Arc::clone(ca), group: Arc::clone(group), metrics: metrics.clone() };
        tasks.spawn("clock", |stopping| watch.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let watching = async {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut said: Option<Instant> = None;
            loop {
                ticks.tick().await;
                let time = self.group.time();
                self.judge(&time, &mut said);
                self.agree_first(&time).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = watching => {}
        }
    }

    fn judge(&self, time: &GroupTime, said: &mut Option<Instant>) {
        let wrong = ClockError::check(time).err().filter(|reason| reason.is_known());
        self.metrics.clock(time.offset(), wrong.is_none());
        match wrong {
            Some(reason) if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) => {
                error!(
                    error = &reason as &dyn std::error::Error,
                    "not ready, and issuing nothing, until the clock is right"
                );
                *said = Some(Instant::now());
            }
            None if time.is_agreed() && said.take().is_some() => {
                info!("this replica's clock agrees with the group's again");
            }
            _ => {}
        }
    }

    /// Begins the rules that need an agreed time, on the leader, once every member of the group knows them.
    async fn agree_first(&self, time: &GroupTime) {
        let GroupTime::Agreed { clocks, all: true, .. } = time else { return };
        let status = self.group.status();
        if status.leader != Some(status.replica)
            || self.group.local().read(|ledger| ledger.agreed_time().is_some())
        {
            return;
        }
        match self.ca.agree_on_time(clocks.clone()).await {
            Ok(()) => info!("the replicas of the group agree on the time"),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "cannot agree on the time; will retry");
            }
        }
    }
}
