//! SMC over a real API server: injection, the first look at a large cluster, starts against few and many
//! namespaces, the way of a Pod's readiness to the proxies, and the installation in a whole cluster.
//!
//! `SMC_KUBERNETES=$(tests/setup/kubernetes DIR) cargo bench --bench kubernetes -- --json`; the last line is
//! one JSON object. `--parts` names some of the parts; `install` needs root and `SMC_ENVOY`.

mod api;
mod endpoints;
mod injection;
mod install;
mod start;
mod sync;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use smc_benches::Result;
use smc_benches::mesh::Mesh;
use smc_benches::program::{self, Flags, Report};
use smc_test_kubernetes::Programs;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Injection,
    Sync,
    Start,
    Endpoints,
    Install,
}

#[derive(Parser, Debug, Clone)]
struct Args {
    /// The parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "injection,sync,start,endpoints,install")]
    parts: Vec<Part>,
    /// The directories of Kubernetes' programs, as `tests/setup/kubernetes DIR` prints them.
    #[arg(long, env = "SMC_KUBERNETES")]
    kubernetes: OsString,
    /// Envoy, for the installation.
    #[arg(long, env = "SMC_ENVOY")]
    envoy: Option<PathBuf>,
    /// Injections a second whose latency is measured.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How long each load of injections lasts, in seconds.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Pods that are created through the API server.
    #[arg(long, default_value_t = 400)]
    created: usize,
    /// Pods of the first look.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Services, and TrafficTargets, of the first look, of the starts and of the connected proxies.
    #[arg(long, default_value_t = 1_000)]
    services: usize,
    /// Connected proxies, and pods of the starts.
    #[arg(long, default_value_t = 2_000)]
    proxies: usize,
    /// Starts of a controller, for each number of namespaces.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// Services that each identity may call.
    #[arg(long, default_value_t = 10)]
    reach: usize,
    /// Pods that become ready.
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Controllers of the installation.
    #[arg(long, default_value_t = 3)]
    replicas: u16,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> Result<()> {
    let args = Args::parse();
    program::run(&args.flags, measure(&args))
}

async fn measure(args: &Args) -> Result<Value> {
    let programs = Programs::new(&args.kubernetes);
    let mesh = |proxies| Mesh::new(args.services, proxies, args.reach);
    let mut report = Report::default();
    for part in &args.parts {
        let figures = match part {
            Part::Injection => {
                let load = injection::Load { rate: args.rate, seconds: args.seconds, pods: args.created };
                injection::measure(&programs, &load).await?
            }
            Part::Sync => sync::measure(&programs, mesh(args.pods)).await?,
            Part::Start => start::measure(&programs, mesh(args.proxies), args.starts).await?,
            Part::Endpoints => endpoints::measure(&programs, mesh(args.proxies), args.changes).await?,
            Part::Install => {
                let envoy = args.envoy.as_ref().ok_or("the installation needs --envoy")?;
                install::measure(&programs, envoy, args.replicas).await?
            }
        };
        report.add(figures)?;
    }
    Ok(report.into())
}
