//! Three controllers, quiet and under hostile proxies: what commits and honest proxies' first answers cost.
//!
//! The hostile proxies hold one proxy certificate, as a compromised pod would, and attack every replica in
//! every way that [`smc_testkit::hostile`] knows, as fast as they can. They run as a process of the lowest
//! priority: on one machine with the controllers they take the processor time that the controllers leave, as
//! those of other machines would, and no other.
//!
//! `cargo bench --bench hostile -- --json`; the last line is one JSON object.

mod attackers;
mod honest;

use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use smc_benches::controllers::{Controllers, REPLICAS};
use smc_benches::program::{self, Flags};
use smc_benches::{Result, percentile_ms};
use tokio::time::sleep;

use attackers::Attackers;
use honest::Honest;

#[derive(Parser, Debug, Clone)]
struct Args {
    /// How long each of the two is measured, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Attack instead of measuring: the addresses of the controllers, and a bootstrap on the standard input.
    #[arg(long, hide = true, num_args = 1..)]
    attack: Vec<String>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.attack.is_empty() {
        program::run(&args.flags, measure(&args))
    } else {
        // What it prints is read by the process that measures.
        program::run(&args.flags, attackers::attack(&args.attack))
    }
}

async fn measure(args: &Args) -> Result<Value> {
    let controllers = Controllers::start(honest::PODS)?;
    controllers.leader().await?;
    let mut honest = Honest::prepare(&controllers).await?;
    let hostile = honest.hostile().await?;
    let span = Duration::from_secs(args.seconds);
    // The issuing of the first certificates, and the claims of them.
    sleep(Duration::from_secs(2)).await;
    let quiet = honest.measure(&controllers, span).await?;
    let before = terms(&controllers).await?;
    let attackers = Attackers::start(&hostile).await?;
    // Until their connections stand.
    sleep(Duration::from_secs(2)).await;
    let attacked = honest.measure(&controllers, span).await?;
    let done = attackers.stop().await?;
    let elections = terms(&controllers).await?.saturating_sub(before);
    let p99 = |samples| percentile_ms(samples, 99);
    let report = json!({
        "seconds": args.seconds,
        "commits_quiet": quiet.commits.len(),
        "commits_attacked": attacked.commits.len(),
        "commit_quiet_p50_ms": percentile_ms(&quiet.commits, 50),
        "commit_quiet_p99_ms": p99(&quiet.commits),
        "commit_attacked_p50_ms": percentile_ms(&attacked.commits, 50),
        "commit_attacked_p99_ms": p99(&attacked.commits),
        "commit_p99_ratio": p99(&attacked.commits) / p99(&quiet.commits),
        "answers_quiet": quiet.answers.len(),
        "answers_attacked": attacked.answers.len(),
        "answer_quiet_p50_ms": percentile_ms(&quiet.answers, 50),
        "answer_quiet_p99_ms": p99(&quiet.answers),
        "answer_attacked_p50_ms": percentile_ms(&attacked.answers, 50),
        "answer_attacked_p99_ms": p99(&attacked.answers),
        "answer_p99_ratio": p99(&attacked.answers) / p99(&quiet.answers),
        "failed_quiet": quiet.failed,
        "failed_attacked": attacked.failed,
        "elections": elections,
        "attack_wildcards": done[0],
        "attack_large_requests": done[1],
        "attack_streams": done[2],
    });
    if done.contains(&0) {
        return Err(format!("no attack: {done:?}").into());
    }
    Ok(report)
}

/// The highest term that any replica knows.
async fn terms(controllers: &Controllers) -> Result<u64> {
    let mut highest = 0;
    for replica in 0..REPLICAS {
        highest = highest.max(controllers.term(replica).await?);
    }
    Ok(highest)
}
