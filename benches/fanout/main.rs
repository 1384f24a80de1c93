//! A controller with many proxies: the latency of a change to the proxies that it affects, and the memory per
//! proxy.
//!
//! Starts the real `smc controller` on loopback, issues every proxy a certificate through the administration
//! socket, opens one mTLS delta ADS stream for each, on which it subscribes to all five types as Envoy does,
//! and changes the readiness of single pods in the mesh directory. A change has converged when the last proxy
//! that may call the pod's service holds the new endpoints. The time starts with the renaming of the pod's
//! file and includes reading, recomputing, sending and receiving.
//!
//! Each number of proxies has a controller of its own ([`push`]), and so have single edits, with their
//! latency and cost ([`edits`]). The compiler is measured alone, too: its work for a pod, and for an object
//! that all policy hangs on ([`route_group`]).
//!
//! `cargo bench --bench fanout -- --json`; the last line is one JSON object. `--parts push --sizes 100
//! --services 20` is a small run of some of it.

mod edits;
mod push;
mod route_group;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};
use smc_benches::controller::Controller;
use smc_benches::mesh::Mesh;
use smc_benches::program::{self, Flags};
use smc_benches::{Result, percentile};
use smc_mesh::translate::{Compiler, Input, Settings};
use smc_types::ids::TrustDomain;
use tokio::time::Instant;

#[derive(Parser, Debug, Clone)]
struct Args {
    /// Proxies of the mesh in which single edits are measured.
    #[arg(long, default_value_t = 2000)]
    proxies: usize,
    /// Proxies that are connected, each with a stream of its own, when changes are pushed.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000, 10_000])]
    sizes: Vec<usize>,
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Services.
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// Services that each identity may call.
    #[arg(long, default_value_t = 10)]
    reach: usize,
    /// Endpoint changes that are measured.
    #[arg(long, default_value_t = 60)]
    changes: usize,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The compiler alone.
    Core,
    /// Single edits, seen by few.
    Edits,
    /// Many proxies.
    Push,
}

fn main() -> Result<()> {
    let args = Args::parse();
    program::admit_connections()?;
    let mesh = Mesh::new(args.services, args.proxies, args.reach);
    let wanted = |part| args.parts.is_empty() || args.parts.contains(&part);
    let mut report = Map::new();
    for (key, value) in [
        ("proxies", args.proxies),
        ("services", args.services),
        ("reach", args.reach),
        ("changes", args.changes),
    ] {
        report.insert(key.to_owned(), value.into());
    }
    let mut add = |key: &str, value: f64| report.insert(key.to_owned(), value.into());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted(Part::Core) {
        let core = measure_core(mesh, args.changes.max(200))?;
        add("translate_all_ms", core.translate_all.as_secs_f64() * 1e3);
        add("recompute_p50_us", percentile(&core.recompute, 50).as_secs_f64() * 1e6);
        add("recompute_p99_us", percentile(&core.recompute, 99).as_secs_f64() * 1e6);
        let route_group = route_group::measure()?;
        add("route_group_ms", route_group.whole.as_secs_f64() * 1e3);
        add("route_group_catalog_ms", route_group.catalog.as_secs_f64() * 1e3);
    }
    if wanted(Part::Edits) {
        let edits = runtime.block_on(edits::measure(mesh, 2 * args.changes))?;
        add("edit_p50_ms", edits.latency_ms(50));
        add("edit_p99_ms", edits.latency_ms(99));
        add("edit_cpu_ms", edits.cpu_per_edit.as_secs_f64() * 1e3);
        add("idle_cpu_percent", edits.idle_percent);
        report.insert("edit_proxies".to_owned(), edits.watchers.into());
        report.insert("edit_files".to_owned(), (args.proxies + 1).into());
    }
    if wanted(Part::Push) {
        let mut by_size: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for &proxies in &args.sizes {
            let mesh = Mesh { proxies, hub: true, ..mesh };
            for (key, value) in runtime.block_on(push::measure(mesh, args.changes))?.figures() {
                by_size.entry(key).or_default().insert(proxies.to_string(), value.into());
            }
        }
        report.extend(by_size.into_iter().map(|(key, values)| (key.to_owned(), values.into())));
    }
    program::print(&args.flags, &report.into());
    Ok(())
}

struct Core {
    translate_all: Duration,
    recompute: Vec<Duration>,
}

/// The compiler alone, in this process.
fn measure_core(mesh: Mesh, changes: usize) -> Result<Core> {
    let inputs = mesh.inputs()?;
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local")?));
    let start = Instant::now();
    compiler.apply(inputs);
    let translate_all = start.elapsed();
    let mut recompute = Vec::with_capacity(2 * changes);
    for change in 0..changes {
        for ready in [false, true] {
            let event = Input::Source(mesh.pod(change % mesh.proxies, ready)?);
            let start = Instant::now();
            let changed = compiler.apply([event]);
            recompute.push(start.elapsed());
            if !changed {
                return Err("an endpoint change changed nothing".into());
            }
        }
    }
    Ok(Core { translate_all, recompute })
}

/// Starts a controller with all its files in `directory`. Returns the directory of its mesh as well.
fn start(mesh: Mesh, directory: &Path) -> Result<(PathBuf, Controller)> {
    let mesh_dir = directory.join("mesh");
    fs::create_dir(&mesh_dir)?;
    fs::write(mesh_dir.join("mesh.yaml"), mesh.yaml())?;
    for p in 0..mesh.proxies.min(OWN_FILES) {
        write_pod(&mesh_dir, mesh, p, true)?;
    }
    let others: String = (OWN_FILES..mesh.proxies).map(|p| mesh.pod_yaml(p, true)).collect();
    fs::write(mesh_dir.join("other-pods.yaml"), others)?;
    let flags = ["--xds-listen", "127.0.0.1:0"].map(str::to_owned);
    let controller = Controller::start(directory, &mesh_dir, &directory.join("kek"), &flags)?;
    Ok((mesh_dir, controller))
}

/// Pods with a file of their own, of the 10,000 files that the directory source reads. The others share
/// one, and never change.
const OWN_FILES: usize = 9_000;

/// Replaces the file of a pod. Returns when it began to be renamed.
fn write_pod(mesh_dir: &Path, mesh: Mesh, p: usize, ready: bool) -> Result<Instant> {
    let (new, path) = (mesh_dir.join(format!(".pod-{p}.new")), mesh_dir.join(format!("pod-{p}.yaml")));
    fs::write(&new, mesh.pod_yaml(p, ready))?;
    let start = Instant::now();
    fs::rename(&new, &path)?;
    Ok(start)
}
