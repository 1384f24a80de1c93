//! Timers that may be absent.

use tokio::time::{Instant, sleep_until};

/// Waits until `deadline`, or for ever if there is none.
pub async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
