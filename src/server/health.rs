//! Two tasks that watch the state of a replica: its storage, and its readiness.

use std::net::SocketAddr;
use std::sync::Arc;

use smc_host::tasks::Tasks;
use smc_raft::StorageError;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::xds::proxies::Proxies;

/// Starts both tasks.
pub(super) fn start(
    failure: watch::Receiver<Option<Arc<StorageError>>>,
    proxies: Proxies,
    xds: SocketAddr,
    tasks: &mut Tasks,
) {
    tasks.spawn_fallible("storage", |stopping| storage(failure, stopping));
    tasks.spawn("readiness", |stopping| readiness(proxies, xds, stopping));
}

/// The ledger accepts no commands any more.
#[derive(Debug, Error)]
enum StorageFailed {
    /// The storage failed.
    #[error("the ledger's storage failed")]
    Storage(#[source] Arc<StorageError>),
    /// The writer ended without an error, as after a panic. The replica would seem healthy, but claim and
    /// renew nothing.
    #[error("the ledger's writer has ended")]
    WriterEnded,
}

/// Fails when the storage does.
async fn storage(
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
                return Err(StorageFailed::WriterEnded);
            },
        }
    }
}

/// Logs once that the replica serves proxies.
async fn readiness(proxies: Proxies, xds: SocketAddr, stopping: CancellationToken) {
    tokio::select! {
        () = stopping.cancelled() => return,
        () = proxies.opened() => info!(%xds, "ready"),
    }
    stopping.cancelled().await;
}
