//! What an operator does in a simulation.

use std::time::Duration;

use smc_proto::admin::v1::BootstrapResponse;
use tokio::time::sleep;

use crate::replica::Replica;

/// How long the operator waits before it retries.
const RETRY: Duration = Duration::from_millis(20);

/// Requests a bootstrap until the replica issues one: it refuses until it knows the pod and has a leader.
pub async fn bootstrap(replica: &Replica, pod: &str) -> BootstrapResponse {
    loop {
        match replica.bootstrap(pod).await {
            Ok(issued) => return issued,
            Err(_) => sleep(RETRY).await,
        }
    }
}
