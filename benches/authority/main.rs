//! The authority on three replicas: the speed of issuance, commits, failover and restart, and its size.
//!
//! Issuance, commits and transfers run on three replicas in this process, each with its own RocksDB
//! directory, with TLS on loopback between them; failover and restart run on real `smc controller`
//! processes. All files are in temporary directories in $TMPDIR, which must be on a disk, not in memory. They
//! are removed even if the run fails.
//!
//! `cargo bench --bench authority -- --json`; the last line is a JSON object. `--quick` takes half a minute.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the program's output")]

mod commits;
mod failover;
mod issuance;
mod restart;
mod transfer;
mod trio;

use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};
use smc_benches::Result;

#[derive(Parser, Debug, Clone)]
struct Args {
    /// The parts to measure, in this order.
    #[arg(long, value_delimiter = ',', default_values_t = Part::ALL, value_enum)]
    parts: Vec<Part>,
    /// Concurrent callers that request certificates, distributed over the replicas.
    #[arg(long, default_value_t = 192)]
    issuers: usize,
    /// How long certificates are issued, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Identities of the cold start.
    #[arg(long, default_value_t = 10_000)]
    identities: usize,
    /// Single commits.
    #[arg(long, default_value_t = 3000)]
    commits: usize,
    /// Leaders that are killed.
    #[arg(long, default_value_t = 50)]
    kills: usize,
    /// Transfers of leadership.
    #[arg(long, default_value_t = 20)]
    transfers: usize,
    /// Certificates in the directory that a replica restarts with.
    #[arg(long, default_value_t = 100_000)]
    certificates: usize,
    /// A tenth of all amounts, to check that the benchmark works.
    #[arg(long)]
    quick: bool,
    /// Print the JSON object only.
    #[arg(long)]
    json: bool,
    /// Cargo passes this; it is ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Commits,
    Issuance,
    Cold,
    Transfers,
    Failover,
    Restart,
}

impl Part {
    const ALL: [Self; 6] =
        [Self::Commits, Self::Issuance, Self::Cold, Self::Transfers, Self::Failover, Self::Restart];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.quick {
        args.seconds = (args.seconds / 5).max(1);
        for count in [
            &mut args.identities,
            &mut args.commits,
            &mut args.kills,
            &mut args.transfers,
            &mut args.certificates,
        ] {
            *count = (*count / 10).max(1);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = Value::Object(runtime.block_on(measure(&args))?);
    if !args.json {
        println!("{report:#}");
    }
    println!("{report}");
    Ok(())
}

async fn measure(args: &Args) -> Result<Map<String, Value>> {
    let mut report = Map::new();
    for part in &args.parts {
        if !args.json {
            eprintln!("measuring: {part}");
        }
        // Otherwise the writeback of the previous part would be measured with this one.
        std::process::Command::new("sync").status()?;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let figures = match part {
            Part::Commits => commits::measure(args.commits).await?,
            Part::Issuance => issuance::sustained(args.issuers, args.seconds).await?,
            Part::Cold => issuance::cold(args.identities).await?,
            Part::Transfers => transfer::measure(args.transfers).await?,
            Part::Failover => failover::measure(args.kills).await?,
            Part::Restart => restart::measure(args.certificates).await?,
        };
        let Value::Object(figures) = figures else { return Err("figures are objects".into()) };
        report.extend(figures);
    }
    Ok(report)
}
