//! Waiting for what a replica cannot start without, such as its own certificate.
//!
//! Owns the rule that a start goes on trying while the same attempt may succeed later: a group can lose its
//! leader between the moment in which it is ready and the commit of a certificate.

use std::future::Future;
use std::time::Duration;

use smc_host::backoff::Backoff;
use smc_host::env::Env;
use tracing::warn;

use super::error::CaError;

/// The waits between attempts. An attempt itself waits for a leader, for longer than these.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Repeats an attempt as long as its error [is transient](CaError::is_transient). It has no limit in time:
/// the caller drops the future when the replica is to end.
pub async fn until_available<T, Attempt: Future<Output = Result<T, CaError>>>(
    env: &Env,
    attempt: impl Fn() -> Attempt,
) -> Result<T, CaError> {
    let mut failures = 0u32;
    loop {
        match attempt().await {
            Err(error) if error.is_transient() => {
                warn!(error = &error as &dyn std::error::Error, "cannot start yet; will retry");
            }
            ended => return ended,
        }
        let random = env.random_u64().unwrap_or(0);
        tokio::time::sleep(RETRY.wait_with_jitter(failures, random)).await;
        failures = failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use smc_raft::ProposeError;

    use super::*;
    use crate::error::CaOperation;

    #[tokio::test(start_paused = true)]
    async fn a_start_is_tried_again_while_the_group_may_come_back() {
        let unavailable = || ProposeError::Unavailable("not committed".to_owned());
        for (source, expected) in [(unavailable as fn() -> ProposeError, 4), (|| ProposeError::Closed, 1)] {
            let attempts = AtomicU32::new(0);
            let attempt = || {
                let last = attempts.fetch_add(1, Ordering::Relaxed) == 3;
                let failed = || CaError::NotCommitted { operation: CaOperation::Prune, source: source() };
                std::future::ready(if last { Ok(()) } else { Err(failed()) })
            };
            assert_eq!(until_available(&Env::system(), attempt).await.is_ok(), expected > 1);
            assert_eq!(attempts.into_inner(), expected);
        }
    }
}
