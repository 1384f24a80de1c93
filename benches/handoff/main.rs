//! What sidecars notice when replicas come, go, crash and freeze.
//!
//! Starts three real `smc controller` processes, and simulated sidecars ([`smc_benches::sidecar`]) that hold
//! the whole configuration of their class, and fail over, back off and resume as their bootstraps say. A gap
//! is the time from the end of a sidecar's stream, as the sidecar sees it, to the first response on the next.
//!
//! `cargo bench --bench handoff -- --json`; the last line is one JSON object. `--proxies 100 --services 20
//! --parts rolling,crash` is a small run of some of it.

mod fleet;

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use smc_benches::bootstraps::bootstraps;
use smc_benches::controllers::{Controllers, REPLICAS};
use smc_benches::mesh::Mesh;
use smc_benches::program::{self, Flags, Report};
use smc_benches::{Result, percentile_ms};
use smc_testkit::relay::Relay;
use tokio::time::{Instant, sleep};

use fleet::Fleet;

/// How long an update may take to reach a sidecar before it counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(15);

#[derive(Parser, Debug, Clone)]
struct Args {
    /// Sidecars, each with a connection of its own.
    #[arg(long, default_value_t = 5000)]
    proxies: usize,
    /// Services.
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// Services that each identity may call.
    #[arg(long, default_value_t = 10)]
    reach: usize,
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rolling,crash,frozen,blackhole,scale")]
    parts: Vec<Part>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All three are restarted, one after the other, each with a change of the mesh.
    Rolling,
    /// One is killed.
    Crash,
    /// One is stopped.
    Frozen,
    /// The packets to and from one are lost.
    Blackhole,
    /// A fourth joins.
    Scale,
}

fn main() -> Result<()> {
    let args = Args::parse();
    program::admit_connections()?;
    program::run(&args.flags, measure(&args))
}

async fn measure(args: &Args) -> Result<Value> {
    let mesh = Mesh::new(args.services, args.proxies, args.reach);
    // With room for a fourth.
    let mut group = Controllers::prepare(REPLICAS + 1)?;
    group.write("mesh.yaml", &mesh.yaml())?;
    for p in 0..mesh.proxies {
        write_pod(&group, mesh, p, true)?;
    }
    group.found()?;
    group.leader().await?;
    let proxies: Vec<usize> = (0..mesh.proxies).collect();
    let bootstraps = bootstraps(group.client(0).await?, mesh, &proxies).await?;
    let mut report = Report::default();
    report.add(json!({ "proxies": args.proxies, "services": args.services }))?;
    let wanted = |part| args.parts.contains(&part);
    if [Part::Rolling, Part::Crash, Part::Frozen].into_iter().any(wanted) {
        let (fleet, took) = Fleet::start(&bootstraps, &group.xds, None).await?;
        report.add(json!({ "connect_all_ms": ms(took) }))?;
        if wanted(Part::Rolling) {
            report.add(rolling(&mut group, &fleet, mesh).await?)?;
        }
        if wanted(Part::Crash) {
            report.add(crash(&mut group, &fleet).await?)?;
        }
        if wanted(Part::Frozen) {
            report.add(frozen(&group, &fleet).await?)?;
        }
    }
    if wanted(Part::Blackhole) {
        report.add(blackhole(&group, &bootstraps).await?)?;
    }
    if wanted(Part::Scale) {
        report.add(scale(&mut group, &bootstraps).await?)?;
    }
    Ok(report.into())
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn write_pod(group: &Controllers, mesh: Mesh, p: usize, ready: bool) -> Result<()> {
    group.write(&format!("pod-{p}.yaml"), &mesh.pod_yaml(p, ready))
}

/// Restarts the replicas in turn. While one ends, a pod of another service becomes unready.
async fn rolling(group: &mut Controllers, fleet: &Fleet, mesh: Mesh) -> Result<Value> {
    fleet.at_home(REPLICAS).await?;
    fleet.board.reset();
    let mut lost = 0;
    let start = Instant::now();
    for replica in 0..REPLICAS {
        let pod = replica % mesh.proxies;
        let prefix = format!("{}|", mesh.service(mesh.service_of(pod))?);
        let callers = mesh.callers(mesh.service_of(pod));
        let watchers: Vec<usize> =
            (0..mesh.proxies).filter(|&other| callers.contains(&mesh.service_of(other))).collect();
        let before = watchers.first().and_then(|&watcher| fleet.board.endpoints(watcher, &prefix));
        let ending = group.take(replica)?;
        ending.signal(Signal::SIGTERM)?;
        // The change comes while its streams end.
        write_pod(group, mesh, pod, false)?;
        ending.ended().await?;
        group.run(replica)?;
        group.leader().await?;
        fleet.served(None).await?;
        let deadline = Instant::now() + LOST_AFTER;
        lost += loop {
            let stale = |watcher: &&usize| fleet.board.endpoints(**watcher, &prefix) == before;
            let stale = watchers.iter().filter(stale).count();
            if stale == 0 || Instant::now() > deadline {
                break stale;
            }
            sleep(Duration::from_millis(20)).await;
        };
    }
    let took = start.elapsed();
    let gaps = fleet.board.take_gaps();
    let tally = fleet.board.tally();
    Ok(json!({
        "rolling_s": took.as_secs_f64(),
        "gaps": gaps.len(),
        "gap_p50_ms": percentile_ms(&gaps, 50),
        "gap_p99_ms": percentile_ms(&gaps, 99),
        "gap_max_ms": percentile_ms(&gaps, 100),
        "resent": tally.resent.load(Ordering::Relaxed),
        "lost": lost,
        "nacks": tally.nacks.load(Ordering::Relaxed),
        "errors": tally.errors.load(Ordering::Relaxed),
        "refused": tally.refused.load(Ordering::Relaxed),
    }))
}

async fn crash(group: &mut Controllers, fleet: &Fleet) -> Result<Value> {
    fleet.at_home(REPLICAS).await?;
    let victim = busiest(fleet);
    fleet.board.reset();
    let start = Instant::now();
    group.take(victim)?.kill().await?;
    fleet.served(Some(victim)).await?;
    let recovered = start.elapsed();
    let gaps = fleet.board.take_gaps();
    let resent = fleet.board.tally().resent.load(Ordering::Relaxed);
    group.run(victim)?;
    group.leader().await?;
    Ok(json!({
        "crash_proxies": gaps.len(),
        "crash_recovered_ms": ms(recovered),
        "crash_gap_p50_ms": percentile_ms(&gaps, 50),
        "crash_gap_p99_ms": percentile_ms(&gaps, 99),
        "crash_resent": resent,
    }))
}

async fn frozen(group: &Controllers, fleet: &Fleet) -> Result<Value> {
    fleet.at_home(REPLICAS).await?;
    let victim = busiest(fleet);
    let start = Instant::now();
    group.of(victim)?.signal(Signal::SIGSTOP)?;
    let served = fleet.served(Some(victim)).await;
    let recovered = start.elapsed();
    group.of(victim)?.signal(Signal::SIGCONT)?;
    served?;
    group.leader().await?;
    Ok(json!({ "frozen_recovered_ms": ms(recovered) }))
}

async fn blackhole(group: &Controllers, bootstraps: &[String]) -> Result<Value> {
    let victim = 0;
    let address = &group.xds[victim];
    let relay = Relay::start(address).await?;
    let (fleet, _) =
        Fleet::start(bootstraps, &group.xds, Some((address, &relay.address.to_string()))).await?;
    fleet.at_home(REPLICAS).await?;
    let start = Instant::now();
    relay.fall_silent();
    fleet.served(Some(victim)).await?;
    Ok(json!({ "blackhole_recovered_ms": ms(start.elapsed()) }))
}

/// A fourth replica joins, and is given what is its own.
async fn scale(group: &mut Controllers, bootstraps: &[String]) -> Result<Value> {
    let (fleet, _) = Fleet::start(bootstraps, &group.xds, None).await?;
    fleet.at_home(REPLICAS).await?;
    let before = fleet.board.serving();
    fleet.board.reset();
    group.run(REPLICAS)?;
    group.leader().await?;
    fleet.at_home(REPLICAS + 1).await?;
    let after = fleet.board.serving();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    let elsewhere =
        before.iter().zip(&after).filter(|(before, after)| before != after && **after != Some(REPLICAS));
    #[expect(clippy::cast_precision_loss, reason = "some thousand proxies are exact")]
    let percent = 100.0 * moved as f64 / before.len() as f64;
    let gaps = fleet.board.take_gaps();
    Ok(json!({
        "moved_pct": percent,
        "moved_elsewhere": elsewhere.count(),
        "moved_streams": gaps.len(),
        "moved_resent": fleet.board.tally().resent.load(Ordering::Relaxed),
    }))
}

/// The replica with the most sidecars.
fn busiest(fleet: &Fleet) -> usize {
    let serving = fleet.board.serving();
    let count = |replica: usize| serving.iter().filter(|serving| **serving == Some(replica)).count();
    (0..REPLICAS).max_by_key(|&replica| count(replica)).unwrap_or(0)
}
