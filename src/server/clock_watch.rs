//! The watch over a replica's own clock.
//!
//! Owns when a wrong clock is logged and shown in the metrics, and when the leader begins the rules that need
//! an agreed time.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::rules::GroupTime;
use smc_host::tasks::Tasks;
use smc_issuing::group_time::SAID_EVERY;
use smc_issuing::{BuiltinCa, ClockError};
use smc_raft::{Group, ReplicatedLedger};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::metrics::Metrics;

/// How often the clock is judged: the other replicas are asked once a second.
const INTERVAL: Duration = Duration::from_secs(1);

/// The watch over the clock of one replica.
pub(crate) struct ClockWatch {
    ca: Arc<BuiltinCa>,
    group: Arc<Group>,
    metrics: Metrics,
}

impl ClockWatch {
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
