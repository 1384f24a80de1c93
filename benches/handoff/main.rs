//! What sidecars notice when replicas come, go, crash and freeze.
//!
//! Starts three real `smc controller` processes, and simulated sidecars ([`smc_benches::sidecar`]) that hold
//! the whole configuration of their class, and fail over, back off and resume as their bootstraps say. A gap
//! is the time from the end of a sidecar's stream, as the sidecar sees it, to the first response on the next.
//!
//! `cargo bench --bench handoff -- --json`; the last line is one JSON object. `--proxies 100 --services 20
//! --parts rolling,crash` is a small run of some of it.

#![allow(clippy::print_stdout, reason = "the figures are the program's output")]

mod fleet;
mod group;

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};
use smc_benches::bootstraps::bootstraps;
use smc_benches::mesh::{Mesh, NAMESPACES};
use smc_benches::{Result, percentile_ms};
use smc_testkit::relay::Relay;
use tokio::time::{Instant, sleep};

use fleet::Fleet;
use group::{FOUNDERS, Group};

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
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Print the JSON object only.
    #[arg(long)]
    json: bool,
    /// Cargo passes this; it is ignored.
    #[arg(long, hide = true)]
    bench: bool,
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
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = Value::Object(runtime.block_on(measure(&args))?);
    if !args.json {
        println!("{report:#}");
    }
    println!("{report}");
    Ok(())
}

async fn measure(args: &Args) -> Result<Map<String, Value>> {
    let mesh = Mesh {
        namespaces: NAMESPACES,
        services: args.services,
        proxies: args.proxies,
        reach: args.reach,
        hub: false,
    };
    let mut group = Group::start(mesh).await?;
    let proxies: Vec<usize> = (0..mesh.proxies).collect();
    let bootstraps = bootstraps(group.client(0).await?, mesh, &proxies).await?;
    let mut report = Map::new();
    report.insert("proxies".to_owned(), args.proxies.into());
    report.insert("services".to_owned(), args.services.into());
    let wanted = |part| args.parts.is_empty() || args.parts.contains(&part);
    if [Part::Rolling, Part::Crash, Part::Frozen].into_iter().any(wanted) {
        let (fleet, took) = Fleet::start(&bootstraps, &group.xds, None).await?;
        report.insert("connect_all_ms".to_owned(), ms(took));
        if wanted(Part::Rolling) {
            report.extend(rolling(&mut group, &fleet, mesh).await?);
        }
        if wanted(Part::Crash) {
            report.extend(crash(&mut group, &fleet).await?);
        }
        if wanted(Part::Frozen) {
            report.extend(frozen(&group, &fleet).await?);
        }
    }
    if wanted(Part::Blackhole) {
        report.extend(blackhole(&group, &bootstraps).await?);
    }
    if wanted(Part::Scale) {
        report.extend(scale(&mut group, &bootstraps).await?);
    }
    Ok(report)
}

fn ms(span: Duration) -> Value {
    json!(span.as_secs_f64() * 1e3)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Restarts the replicas in turn. While one ends, a pod of another service becomes unready.
async fn rolling(group: &mut Group, fleet: &Fleet, mesh: Mesh) -> Result<Map<String, Value>> {
    fleet.at_home(FOUNDERS).await?;
    fleet.board.reset();
    let mut lost = 0;
    let start = Instant::now();
    for replica in 0..FOUNDERS {
        let pod = replica % mesh.proxies;
        let prefix = format!("{}|", mesh.service(mesh.service_of(pod))?);
        let callers = mesh.callers(mesh.service_of(pod));
        let watchers: Vec<usize> =
            (0..mesh.proxies).filter(|&other| callers.contains(&mesh.service_of(other))).collect();
        let before = watchers.first().and_then(|&watcher| fleet.board.endpoints(watcher, &prefix));
        let ending = group.terminate(replica)?;
        // The change comes while its streams end.
        group.write_pod(pod, false)?;
        ending.ended().await?;
        group.run(replica)?;
        group.settle().await?;
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
    Ok(object(json!({
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
    })))
}

async fn crash(group: &mut Group, fleet: &Fleet) -> Result<Map<String, Value>> {
    fleet.at_home(FOUNDERS).await?;
    let victim = busiest(fleet);
    fleet.board.reset();
    let start = Instant::now();
    group.kill(victim).await?;
    fleet.served(Some(victim)).await?;
    let recovered = start.elapsed();
    let gaps = fleet.board.take_gaps();
    let resent = fleet.board.tally().resent.load(Ordering::Relaxed);
    group.run(victim)?;
    group.settle().await?;
    Ok(object(json!({
        "crash_proxies": gaps.len(),
        "crash_recovered_ms": ms(recovered),
        "crash_gap_p50_ms": percentile_ms(&gaps, 50),
        "crash_gap_p99_ms": percentile_ms(&gaps, 99),
        "crash_resent": resent,
    })))
}

async fn frozen(group: &Group, fleet: &Fleet) -> Result<Map<String, Value>> {
    fleet.at_home(FOUNDERS).await?;
    let victim = busiest(fleet);
    let start = Instant::now();
    group.signal(victim, Signal::SIGSTOP)?;
    let served = fleet.served(Some(victim)).await;
    let recovered = start.elapsed();
    group.signal(victim, Signal::SIGCONT)?;
    served?;
    group.settle().await?;
    Ok(object(json!({ "frozen_recovered_ms": ms(recovered) })))
}

async fn blackhole(group: &Group, bootstraps: &[String]) -> Result<Map<String, Value>> {
    let victim = 0;
    let address = &group.xds[victim];
    let relay = Relay::start(address).await?;
    let (fleet, _) =
        Fleet::start(bootstraps, &group.xds, Some((address, &relay.address.to_string()))).await?;
    fleet.at_home(FOUNDERS).await?;
    let start = Instant::now();
    relay.fall_silent();
    fleet.served(Some(victim)).await?;
    Ok(object(json!({ "blackhole_recovered_ms": ms(start.elapsed()) })))
}

/// A fourth replica joins, and is given what is its own.
async fn scale(group: &mut Group, bootstraps: &[String]) -> Result<Map<String, Value>> {
    let (fleet, _) = Fleet::start(bootstraps, &group.xds, None).await?;
    fleet.at_home(FOUNDERS).await?;
    let before = fleet.board.serving();
    fleet.board.reset();
    group.run(FOUNDERS)?;
    group.settle().await?;
    fleet.at_home(FOUNDERS + 1).await?;
    let after = fleet.board.serving();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    let elsewhere =
        before.iter().zip(&after).filter(|(before, after)| before != after && **after != Some(FOUNDERS));
    #[expect(clippy::cast_precision_loss, reason = "some thousand proxies are exact")]
    let percent = 100.0 * moved as f64 / before.len() as f64;
    let gaps = fleet.board.take_gaps();
    Ok(object(json!({
        "moved_pct": percent,
        "moved_elsewhere": elsewhere.count(),
        "moved_streams": gaps.len(),
        "moved_resent": fleet.board.tally().resent.load(Ordering::Relaxed),
    })))
}

/// The replica with the most sidecars.
fn busiest(fleet: &Fleet) -> usize {
    let serving = fleet.board.serving();
    let count = |replica: usize| serving.iter().filter(|serving| **serving == Some(replica)).count();
    (0..FOUNDERS).max_by_key(|&replica| count(replica)).unwrap_or(0)
}
