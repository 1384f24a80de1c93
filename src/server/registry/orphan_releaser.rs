//! Releases the certificates of pods that are gone.
//!
//! Owns the look at the ledger, the mesh and the catalog; [`Orphans`] decides when the grace period is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::MAX_RELEASED_TOGETHER;
use smc_authority::pki::SerialNumber;
use smc_authority::rules::{Orphans, orphaned_certificates};
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
                let orphaned = self.orphaned_certificates().await;
                let due: Vec<_> = orphans.check(orphaned, self.env.now()).into_iter().collect();
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

    /// The unreleased proxy certificates without a matching pod; `None` if the mesh is not known.
    async fn orphaned_certificates(&self) -> Option<BTreeSet<SerialNumber>> {
        // A mesh without a single pod is more likely a directory that was not mounted.
        let state = self.served.borrow().clone().filter(|state| !state.proxies.is_empty())?;
        // Read before the catalog: a certificate issued after the catalog's answer is not among them.
        let candidates = self.certificates.ledger().read(|ledger| {
            orphaned_certificates(ledger, |proxy| Some(&state.proxies.get(proxy)?.class.account))
        });
        if candidates.is_empty() {
            return Some(BTreeSet::new());
        }
        // Pods that left the mesh or share a UUID are not in the served state, but exist.
        let gone =
            self.mesh.about(move |mesh| mesh.compiler.catalog().without_workload(candidates)).await.ok()?;
        Some(gone.into_values().flatten().collect())
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
