//! The calls that sidecars have counted, asked through the API server.
//!
//! Owns which sidecars are asked, and how many at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use smc_sidecar::statistics::{CALLS_PATH, NotStatistics, called};
use smc_types::ids::{ServiceId, WorkloadId};
use smc_types::ports::METRICS_PORT;
use thiserror::Error;

use crate::sidecar_request::{Question, SidecarError};

/// The sidecars that are asked at a time. Each costs the API server and a kubelet a connection, and a whole
/// mesh is asked by one person.
const PARALLEL: usize = 8;

/// The most sidecars that are asked: at 50 ms each, this takes half a minute.
const MAX_SIDECARS: usize = 5_000;

/// 4 MiB are some 40,000 service ports.
const CALLS: Question =
    Question { port: METRICS_PORT, path: CALLS_PATH, most: 4 << 20, limit: Duration::from_secs(10) };

/// The service ports that an application has called.
pub type Called = BTreeSet<(ServiceId, u16)>;

/// The calls of a sidecar are not known.
#[derive(Debug, Error)]
pub enum CallsError {
    /// It is beyond the bound.
    #[error("not more than {MAX_SIDECARS} sidecars are asked")]
    TooMany,
    /// It was not asked, or did not answer.
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// Something else answers.
    #[error(transparent)]
    NotStatistics(#[from] NotStatistics),
}

/// What the applications of these workloads have called since their sidecars started. Every workload has an
/// entry.
pub async fn calls(
    client: &Client,
    workloads: BTreeSet<WorkloadId>,
) -> BTreeMap<WorkloadId, Result<Called, CallsError>> {
    ask_all(workloads, async |pod: &WorkloadId| {
        let answer = CALLS.ask(client, pod).await?;
        Ok(called(&String::from_utf8_lossy(&answer))?)
    })
    .await
}

async fn ask_all(
    workloads: BTreeSet<WorkloadId>,
    ask: impl AsyncFn(&WorkloadId) -> Result<Called, CallsError>,
) -> BTreeMap<WorkloadId, Result<Called, CallsError>> {
    let ask = &ask;
    let answers = workloads.into_iter().enumerate().map(|(at, workload)| async move {
        let answer = if at >= MAX_SIDECARS { Err(CallsError::TooMany) } else { ask(&workload).await };
        (workload, answer)
    });
    stream::iter(answers).buffer_unordered(PARALLEL).collect().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_workload_has_an_answer_and_few_are_asked_at_a_time() {
        let (open, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut workloads: BTreeSet<WorkloadId> =
            (0..MAX_SIDECARS).map(|i| format!("shop/p{i:04}").parse().unwrap()).collect();
        workloads.insert("shop/zzz".parse().unwrap());
        let answers = ask_all(workloads.clone(), async |pod: &WorkloadId| {
            most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let late = pod.name() == "p0007";
            sleep(Duration::from_millis(if late { 10_000 } else { 1 })).await;
            open.fetch_sub(1, Ordering::Relaxed);
            if late { Err(SidecarError::Silent(CALLS.limit).into()) } else { Ok(Called::new()) }
        })
        .await;
        assert!(answers.keys().eq(&workloads));
        assert_eq!(most.into_inner(), PARALLEL);
        let of = |name: &str| &answers[&name.parse::<WorkloadId>().unwrap()];
        assert!(matches!(of("shop/p0007"), Err(CallsError::Sidecar(SidecarError::Silent(_)))));
        assert!(matches!(of("shop/zzz"), Err(CallsError::TooMany)));
        assert_eq!(answers.values().filter(|answer| answer.is_ok()).count(), MAX_SIDECARS - 1);
    }
}
