//! What OSM's kinds of policy cost a request, what retries ask of a service that fails, and how many requests
//! a limit lets in. Real controller, real Envoys, real interception, in the lab.
//!
//! `SMC_ENVOY=$(tests/setup/envoy DIR) cargo bench --bench policy -- --json`; the last line is one JSON
//! object. Needs what the lab needs.

mod cost;
mod limit;
mod scene;
mod surplus;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use smc_benches::Result;
use smc_benches::program::{self, Flags, Report};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What a request costs more.
    Cost,
    /// How much more a failing service is asked.
    Surplus,
    /// How many requests a limit lets in.
    Limit,
}

#[derive(Parser, Debug, Clone)]
struct Args {
    /// The parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cost,surplus,limit")]
    parts: Vec<Part>,
    /// Connections of the client at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    connections: Vec<u16>,
    /// How often what is compared takes turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How long each turn lasts, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> Result<()> {
    let args = Args::parse();
    program::run(&args.flags, measure(&args))
}

async fn measure(args: &Args) -> Result<Value> {
    let each = Duration::from_secs(args.seconds);
    let scene = scene::Scene::start().await?;
    let mut report = Report::default();
    for part in &args.parts {
        report.add(match part {
            Part::Cost => cost::measure(&scene, args.rounds, each).await?,
            Part::Surplus => surplus::measure(&scene, &args.connections, each).await?,
            Part::Limit => limit::measure(&scene, args.rounds, each).await?,
        })?;
    }
    scene.stop().await?;
    Ok(report.into())
}
