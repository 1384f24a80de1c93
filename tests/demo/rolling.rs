//! Owns the rolling upgrade of the lab's replicas: each ends in order, starts again and gets its sidecars
//! back before the next one, while every sidecar is watched.

use std::time::Duration;

use nix::sys::signal::Signal;
use smc_lab::{LabError, LabHandle};
use smc_testkit::shards::ShardsReport;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::stage::{StageError, failed};
use super::upgrade::{CONNECTED, SENT, SidecarReport, Streams, sum};

/// Interval of the samples of each sidecar: shorter than a sidecar takes to reach another replica.
const SAMPLE: Duration = Duration::from_millis(20);

/// Time limit for the shards to settle. A sidecar that could not reach its owner comes back to it after ten
/// seconds at the earliest.
const SETTLE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(200);

/// Starts the replicas that do not run, then restarts all in turn. Returns what each sidecar noticed.
pub(super) async fn upgrade(lab: LabHandle, replicas: u16) -> Result<Vec<SidecarReport>, StageError> {
    let pods = lab.pods().await.map_err(failed("list the sidecars"))?;
    let sidecars: Vec<_> = pods.into_iter().filter(|pod| pod.in_mesh).map(|pod| pod.pod).collect();
    for replica in 0..replicas {
        if shards(&lab, replica).await.is_err() {
            start(&lab, replica).await?;
        }
    }
    let whole = Whole { replicas, sidecars: sidecars.len() };
    settle(&lab, whole).await?;
    let mut watched: Vec<_> = sidecars
        .into_iter()
        .map(|sidecar| Watched { sidecar, streams: Streams::default(), sent: 0 })
        .collect();
    for each in &mut watched {
        each.sent = statistic(&lab, &each.sidecar, SENT).await?;
    }
    tokio::select! {
        restarted = restart_all(&lab, whole) => restarted?,
        failed = watch(&lab, &mut watched) => return Err(failed),
    }
    let mut reports = Vec::new();
    for Watched { sidecar, streams, sent } in watched {
        let resent = statistic(&lab, &sidecar, SENT).await?.saturating_sub(sent);
        reports.push(SidecarReport { sidecar, gaps_ms: streams.gaps_ms(), resent });
    }
    Ok(reports)
}

/// What the shards are of when all is well.
#[derive(Clone, Copy)]
struct Whole {
    replicas: u16,
    sidecars: usize,
}

struct Watched {
    sidecar: String,
    streams: Streams,
    /// The statistics before the upgrade.
    sent: u64,
}

async fn restart_all(lab: &LabHandle, whole: Whole) -> Result<(), StageError> {
    for replica in 0..whole.replicas {
        let action = format!("end replica {replica}");
        lab.stop_replica(replica, Signal::SIGTERM).await.map_err(failed(&action))?;
        start(lab, replica).await?;
        settle(lab, whole).await?;
    }
    Ok(())
}

/// Samples all sidecars until one cannot be read.
async fn watch(lab: &LabHandle, watched: &mut [Watched]) -> StageError {
    let started = Instant::now();
    let mut samples = interval(SAMPLE);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        samples.tick().await;
        for each in &mut *watched {
            match statistic(lab, &each.sidecar, CONNECTED).await {
                Ok(connected) => each.streams.observe(started.elapsed(), connected > 0),
                Err(error) => return error,
            }
        }
    }
}

async fn start(lab: &LabHandle, replica: u16) -> Result<(), StageError> {
    lab.start_replica(replica).await.map_err(failed(&format!("start replica {replica}")))
}

async fn statistic(lab: &LabHandle, sidecar: &str, filter: &str) -> Result<u64, StageError> {
    let action = format!("read the statistics of {sidecar}");
    let path = format!("/stats?filter={filter}");
    let reply = lab.envoy_admin(sidecar, &path).await.map_err(failed(&action))?;
    let unexpected = || failed(&action)(LabError::Refused(format!("{path}: {}", reply.body)));
    sum(&reply.body).ok_or_else(unexpected)
}

/// Waits until every replica serves the sidecars that it owns.
async fn settle(lab: &LabHandle, whole: Whole) -> Result<(), StageError> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let is_settled = |report: &ShardsReport| {
            report.is_settled(usize::from(whole.replicas)) && report.connected() == whole.sidecars
        };
        let problem = match shards(lab, 0).await {
            Ok(report) if is_settled(&report) => return Ok(()),
            Ok(report) => LabError::Refused(format!("{report:?}")),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(failed("wait for every replica to serve its sidecars")(problem));
        }
        sleep(POLL).await;
    }
}

async fn shards(lab: &LabHandle, replica: u16) -> Result<ShardsReport, LabError> {
    let output = lab.smc_of(replica, &["cluster", "shards", "-o", "json"]).await?;
    if !output.success() {
        return Err(LabError::Refused(output.stderr));
    }
    serde_json::from_str(&output.stdout).map_err(|error| LabError::Refused(error.to_string()))
}
