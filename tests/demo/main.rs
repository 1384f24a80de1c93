//! `smc-demo`: parses the command line and runs the demo. The library has everything else.

use std::process::ExitCode;

use clap::Parser;
use smc_demo::{DemoArgs, demo};

/// `EX_USAGE` of sysexits.h: the exit code of every program of this project for a bad command line.
const EXIT_USAGE: u8 = 64;

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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A usage message that cannot be written leaves nothing else to do.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match demo(cli.args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("smc-demo: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}
