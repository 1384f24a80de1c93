//! What a request costs that passes two sidecars, beside two Envoys with mTLS and nothing else, and what a
//! sidecar holds that may call many services. Real controller, real Envoys, real interception, in the lab.
//!
//! `SMC_ENVOY=$(tests/setup/envoy DIR) cargo bench --bench requests -- --json`; the last line is one JSON
//! object. Needs what the lab needs.

mod cost;
mod memory;
mod minimal;
mod pair;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use smc_benches::Result;
use smc_benches::program::{self, Flags, Report};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Cost,
    Memory,
}

#[derive(Parser, Debug, Clone)]
struct Args {
    /// The parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cost,memory")]
    parts: Vec<Part>,
    /// What is sent.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http1,http1over2,http2,grpc,tcp")]
    protocols: Vec<cost::Protocol>,
    /// Connections of the client at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    connections: Vec<u16>,
    /// How often sidecars and the minimal Envoys take turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How long each turn lasts, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Services that a sidecar may call.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    services: Vec<usize>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> Result<()> {
    let args = Args::parse();
    program::run(&args.flags, measure(&args))
}

async fn measure(args: &Args) -> Result<Value> {
    let mut report = Report::default();
    for part in &args.parts {
        report.add(match part {
            Part::Cost => {
                let turns = cost::Turns { rounds: args.rounds, each: Duration::from_secs(args.seconds) };
                cost::measure(&args.protocols, &args.connections, turns).await?
            }
            Part::Memory => memory::measure(&args.services).await?,
        })?;
    }
    Ok(report.into())
}
