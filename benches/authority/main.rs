//! The authority on three replicas: the speed of issuance, commits, failover and restart, and its size.
//!
//! Issuance, commits and transfers run on three replicas in this process, each with its own RocksDB
//! directory, with TLS on loopback between them; failover and restart run on real `smc controller`
//! processes. All files are in temporary directories in $TMPDIR, which must be on a disk, not in memory. They
//! are removed even if the run fails.
//!
//! `cargo bench --bench authority -- --json`; the last line is a JSON object. `--quick` takes half a minute.

#![allow(clippy::print_stderr, reason = "a person wants to see how far it is")]

mod commits;
mod failover;
mod issuance;
mod restart;
mod transfer;
mod trio;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use smc_benches::Result;
use smc_benches::program::{self, Flags, Report};

#[derive(Parser, Debug, Clone)]
struct Args {
    /// The parts to measure, in this order.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "commits,issuance,cold,transfers,failover,restart"
    )]
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
    #[command(flatten)]
    flags: Flags,
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
    program::run(&args.flags, measure(&args))
}

async fn measure(args: &Args) -> Result<Value> {
    let mut report = Report::default();
    for part in &args.parts {
        if !args.flags.json {
            eprintln!("measuring: {part:?}");
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
        report.add(figures)?;
    }
    Ok(report.into())
}
