//! Forgets the service certificates of identities that no workload has.
//!
//! Owns the look at the mesh and at the ledger; [`UnusedIdentities`] decides when the time is over. Every
//! replica counts, so that a new leader does not begin again, and the leader proposes.

use std::sync::Arc;

use smc_authority::ledger::{ForgetService, MAX_FORGOTTEN_TOGETHER};
use smc_authority::rules::{UnusedIdentities, WantedCertificates};
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_issuing::BuiltinCa;
use smc_raft::{Group, ReplicatedLedger};
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Forgets the identities of service accounts that have had no workload for
/// [`smc_authority::ledger::UNUSED_KEPT`].
pub(crate) struct IdentityForgetter {
    pub(crate) ca: Arc<BuiltinCa>,
    pub(crate) group: Arc<Group>,
    /// The identities of the mesh.
    pub(crate) wanted: watch::Receiver<WantedCertificates>,
    /// Says whether the sources have synced.
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    pub(crate) env: Env,
}

impl IdentityForgetter {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("unused identities", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let mut unused = UnusedIdentities::default();
        let mut ticks = interval(UnusedIdentities::PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let forgetting = async {
            loop {
                ticks.tick().await;
                let due = self.check(&mut unused);
                if self.group.status().leads() {
                    self.forget(due).await;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = forgetting => {}
        }
    }

    fn check(&self, unused: &mut UnusedIdentities) -> Vec<ForgetService> {
        let synced = self.served.borrow().is_some();
        let wanted = self.wanted.borrow();
        // A mesh without a single workload is more likely a directory that was not mounted.
        let wanted = Some(&wanted.accounts).filter(|accounts| synced && !accounts.is_empty());
        let now = self.env.now();
        self.group.local().read(|ledger| unused.check(ledger, wanted, now))
    }

    async fn forget(&self, due: Vec<ForgetService>) {
        for together in due.chunks(MAX_FORGOTTEN_TOGETHER) {
            match self.ca.forget_services(together.to_vec()).await {
                Ok(0) => {}
                Ok(identities) => {
                    info!(identities, "forgot certificates and keys of service accounts without a workload");
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "cannot forget service accounts without a workload; will retry");
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
