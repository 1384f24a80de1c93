//! The tasks of a replica: a table that watches over them, and the small ones that belong to no other part.
//!
//! Owns supervision. Every task has a name and is expected to run until it is told to stop.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smc_mesh::ledger::{MAX_RELEASED_TOGETHER, ProxyCertificateState};
use smc_mesh::pki::{Departures, SerialNumber, bearers_without_pod};
use smc_mesh::world::World;
use smc_raft::StorageError;
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::ServerError;
use crate::ca::{Announcement, CertificateManager};
use crate::env::Env;
use crate::error::causes;
use crate::publisher::Ask;
use crate::xds::proxies::Proxies;

/// The running tasks. Dropping it aborts them.
#[derive(Default)]
pub(super) struct Tasks(JoinSet<Ended>);

/// A task that returned.
struct Ended {
    task: &'static str,
    result: Result<(), String>,
}

impl Tasks {
    /// Starts a task that cannot fail.
    pub(super) fn spawn(&mut self, task: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            future.await;
            Ended { task, result: Ok(()) }
        });
    }

    /// Starts a task that can.
    pub(super) fn spawn_fallible<E: std::error::Error + Send>(
        &mut self,
        task: &'static str,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.0.spawn(async move {
            let result = future.await.map_err(|error| causes(&error));
            Ended { task, result }
        });
    }

    /// Waits for the next task to end, and says why that is wrong while nobody asked for it.
    pub(super) async fn unexpected_end(&mut self) -> ServerError {
        match self.0.join_next().await {
            Some(Ok(Ended { task, result: Ok(()) })) => {
                failed(task, "it returned although nobody asked it to")
            }
            Some(Ok(Ended { task, result: Err(reason) })) => failed(task, reason),
            Some(Err(panic)) => failed("unknown", panic),
            None => failed("all", "nothing is left to run"),
        }
    }

    /// Waits for all tasks, after they were told to stop. An error at the end is still an error.
    pub(super) async fn all_ended(&mut self) -> Result<(), ServerError> {
        let mut outcome = Ok(());
        while let Some(ended) = self.0.join_next().await {
            let this = match ended {
                Ok(Ended { result: Ok(()), .. }) => continue,
                Ok(Ended { task, result: Err(reason) }) => failed(task, reason),
                Err(panic) => failed("unknown", panic),
            };
            outcome = outcome.and(Err(this));
        }
        outcome
    }

    /// How many still run.
    pub(super) fn running(&self) -> usize {
        self.0.len()
    }
}

fn failed(task: &'static str, reason: impl Display) -> ServerError {
    ServerError::Task { task, reason: reason.to_string() }
}

/// Ends the streams of proxies that the certificate authority announces as released.
pub(super) async fn releases(ca: Arc<dyn CertificateManager>, proxies: Proxies, stopping: CancellationToken) {
    let mut announcements = ca.announcements();
    loop {
        let announced = tokio::select! {
            () = stopping.cancelled() => return,
            announced = announcements.recv() => announced,
        };
        match announced {
            Ok(Announcement::ProxyReleased { serials }) => {
                let serials: BTreeSet<_> = serials.into_iter().collect();
                proxies.release(|serial| serials.contains(serial));
            }
            Ok(_) => {}
            // Some were missed: the ledger knows which.
            Err(RecvError::Lagged(_)) => sweep(ca.as_ref(), &proxies),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Ends every stream whose certificate the ledger says is released.
fn sweep(ca: &dyn CertificateManager, proxies: &Proxies) {
    proxies.release(|serial| {
        ca.ledger()
            .read(|ledger| ledger.proxy_certificate(serial).is_none_or(|record| record.state.is_released()))
    });
}

/// Releases the certificates of pods that are gone.
pub(super) struct Departing {
    pub(super) ca: Arc<dyn CertificateManager>,
    pub(super) ask: Ask,
    pub(super) worlds: watch::Receiver<Option<Arc<World>>>,
    pub(super) env: Env,
    /// How long a pod must have been gone.
    pub(super) grace: Duration,
}

impl Departing {
    pub(super) async fn run(self, stopping: CancellationToken) {
        let mut departures = Departures::new(self.grace);
        let mut ticks = interval(departures.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            loop {
                ticks.tick().await;
                let without_pod = self.without_pod().await;
                let due: Vec<_> = departures.look(without_pod, self.env.now()).into_iter().collect();
                for serials in due.chunks(MAX_RELEASED_TOGETHER) {
                    self.release(serials.to_vec()).await;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = looking => {}
        }
    }

    /// The unreleased proxy certificates that fit no pod; `None` if the mesh cannot be seen.
    async fn without_pod(&self) -> Option<BTreeSet<SerialNumber>> {
        // A mesh without a single pod is more likely a directory that was not mounted.
        let world = self.worlds.borrow().clone().filter(|world| !world.proxies.is_empty())?;
        // Read before the catalog is asked: what is issued after its answer is not among them.
        let suspects = self.ca.ledger().read(|ledger| {
            bearers_without_pod(ledger, |proxy| Some(&world.proxies.get(proxy)?.class.account))
        });
        if suspects.is_empty() {
            return Some(BTreeSet::new());
        }
        // Pods that left the mesh or share a UUID are not in the world, but are there.
        let gone =
            self.ask.about(move |mesh| mesh.compiler.catalog().without_workload(suspects)).await.ok()?;
        Some(gone.into_values().flatten().collect())
    }

    async fn release(&self, serials: Vec<SerialNumber>) {
        match self.ca.release_certificates(serials).await {
            Ok(serials) => info!(?serials, "proxy certificates whose pods are gone were released"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot release the proxy certificates of pods that are gone; will try again");
            }
        }
    }
}

/// The ledger takes nothing any more.
#[derive(Debug, Error)]
pub(super) enum StorageFailed {
    /// Its storage failed.
    #[error("the ledger's storage failed")]
    Storage(#[source] Arc<StorageError>),
    /// It ended without saying why, as after a panic: it would look alive and claim and renew nothing.
    #[error("the ledger's writer is gone")]
    Gone,
}

/// Fails when the storage does.
pub(super) async fn storage(
    mut failure: watch::Receiver<Option<Arc<StorageError>>>,
    stopping: CancellationToken,
) -> Result<(), StorageFailed> {
    loop {
        if let Some(error) = failure.borrow_and_update().clone() {
            return Err(StorageFailed::Storage(error));
        }
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            changed = failure.changed() => if changed.is_err() && !stopping.is_cancelled() {
                return Err(StorageFailed::Gone);
            },
        }
    }
}

/// Says once that the replica serves.
pub(super) async fn readiness(
    mut worlds: watch::Receiver<Option<Arc<World>>>,
    xds: SocketAddr,
    stopping: CancellationToken,
) {
    tokio::select! {
        () = stopping.cancelled() => return,
        synced = worlds.wait_for(Option::is_some) => if synced.is_ok() {
            info!(%xds, "ready");
        },
    }
    stopping.cancelled().await;
}
