//! The drain: a replica gives all its proxies to the others, and takes no new ones.
//!
//! Owns the order: the group knows that the replica drains before its port closes, and the streams end
//! at the pace of those that take them over ([`super::handoff`]). A proxy that comes here anyhow is
//! refused a connection, so that its Envoy goes on to the next replica.

use std::time::Duration;

use smc_authority::ledger::ReplicaPhase;
use smc_types::causes::causes;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{PhaseError, Shards};
use crate::xds::proxies::Proxies;

/// Drains one replica. Cheap to clone.
#[derive(Clone)]
pub struct Drain {
    pub(super) shards: Shards,
    pub(super) proxies: Proxies,
}

impl Drain {
    /// Marks the replica as draining and closes its port for proxies. Its streams end in the time
    /// after, as long as another replica is ready. Idempotent.
    pub async fn begin(&self) -> Result<(), PhaseError> {
        let marked = self.shards.set_phase(ReplicaPhase::Draining).await;
        if marked.is_ok() {
            self.proxies.accept_new(false);
            info!(streams = *self.proxies.stream_count().borrow(), "draining");
        }
        marked.map(|_| ())
    }

    /// Waits until no proxy has a stream here.
    pub async fn drained(&self) {
        // The sender ends with the replica.
        let _ = self.proxies.stream_count().wait_for(|streams| *streams == 0).await;
    }

    /// Opens the port again. The replica is ready a moment later, and the others hand its proxies back.
    /// Does nothing to a replica that does not drain.
    pub async fn cancel(&self) -> Result<(), PhaseError> {
        if self.proxies.accepts() {
            return Ok(());
        }
        if self.shards.phase() == Some(ReplicaPhase::Draining) {
            self.shards.set_phase(ReplicaPhase::Joining).await?;
        }
        self.proxies.accept_new(true);
        info!("not draining any more");
        Ok(())
    }

    /// Before a stop: drains within `limit`. Returns at once without another ready replica, and early
    /// when the last such replica is gone.
    pub async fn before_stop(&self, limit: Duration) {
        let me = self.shards.me();
        let alone = |ready: &super::Placement| ready.ready.iter().all(|replica| *replica == me);
        if limit.is_zero() || alone(&self.shards.placement()) {
            return;
        }
        let draining = async {
            if let Err(error) = self.begin().await {
                warn!(error = %causes(&error), "cannot drain; the streams end at once");
                return;
            }
            let mut placement = self.shards.watch();
            tokio::select! {
                () = self.drained() => {}
                _ = placement.wait_for(|placement| alone(placement)) => {}
            }
        };
        if timeout(limit, draining).await.is_err() {
            let streams = *self.proxies.stream_count().borrow();
            warn!(streams, "the drain took too long; the other streams end at once");
        }
    }
}
