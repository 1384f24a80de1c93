//! `smc-demo`: parses the command line and runs the demo. The library has everything else.

use std::process::ExitCode;

use clap::Parser;
use smc::cli::parsed;
use smc_demo::{DemoArgs, demo};

/// Runs the bookstore in a lab of its own, and shows the result of each call.
#[derive(Parser, Debug)]
#[command(name = "smc-demo", version)]
struct Cli {
    #[command(flatten)]
    args: DemoArgs,
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "standard error is where a command line tool says why it failed")]
async fn main() -> ExitCode {
    let cli: Cli = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match demo(cli.args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("smc-demo: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}
