//! Releases the certificates of pods that are gone.
//!
//! Owns the look at the ledger, the mesh and the catalog; [`Orphans`] decides when the grace period is over.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::MAX_RELEASED_TOGETHER;
use smc_authority::pki::SerialNumber;
use smc_authority::rules::{Look, Orphans, orphaned_certificates, unclaimed_certificates};
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_issuing::ProxyCertificates;
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::publisher::MeshHandle;

/// Releases proxy certificates whose pods have been gone for `grace`.
pub(crate) struct OrphanReleaser {
    certificates: ProxyCertificates,
    mesh: MeshHandle,
    served: watch::Receiver<Option<Arc<ServedState>>>,
    env: Env,
    /// How long a pod must have been gone.
    grace: Duration,
}

impl OrphanReleaser {
    pub(crate) fn new(
        certificates: &ProxyCertificates,
        mesh: &MeshHandle,
        served: &watch::Receiver<Option<Arc<ServedState>>>,
        env: &Env,
        grace: Duration,
    ) -> Self {
        let (certificates, mesh) = (certificates.clone(), mesh.clone());
        Self { certificates, mesh, served: served.clone(), env: env.clone(), grace }
    }

    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("orphaned certificates", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let mut orphans = Orphans::new(self.grace);
        let mut ticks = interval(orphans.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let releasing = async {
            loop {
                ticks.tick().await;
                let look = self.look().await;
                let due: Vec<_> = orphans.check(look, self.env.now()).into_iter().collect();
                for serials in due.chunks(MAX_RELEASED_TOGETHER) {
                    self.release(serials.to_vec()).await;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = releasing => {}
        }
    }

    /// The proxy certificates without a matching pod, and the unclaimed ones; `None` if the mesh is not
    /// known.
    async fn look(&self) -> Option<Look> {
        // A mesh without a single pod is more likely a directory that was not mounted.
        let state = self.served.borrow().clone().filter(|state| !state.proxies.is_empty())?;
        // Read before the catalog: a certificate issued after the catalog's answer is not among them.
        let (candidates, unclaimed) = self.certificates.ledger().read(|ledger| {
            let account_of = |proxy: &_| Some(&state.proxies.get(proxy)?.class.account);
            (orphaned_certificates(ledger, account_of), unclaimed_certificates(ledger))
        });
        if candidates.is_empty() {
            return Some(Look { unclaimed, ..Look::default() });
        }
        // Pods that left the mesh or share a UUID are not in the served state, but exist.
        let gone =
            self.mesh.about(move |mesh| mesh.compiler.catalog().without_workload(candidates)).await.ok()?;
        Some(Look { orphaned: gone.into_values().flatten().collect(), unclaimed })
    }

    async fn release(&self, serials: Vec<SerialNumber>) {
        match self.certificates.release_certificates(serials).await {
            Ok(serials) => info!(?serials, "released the proxy certificates of pods that are gone"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot release the proxy certificates of pods that are gone; retrying");
            }
        }
    }
}
