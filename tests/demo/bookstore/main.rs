//! `smc-bookstore`: parses the command line and runs one of the demo's programs. The library has
//! everything else.

use std::process::ExitCode;

use clap::Parser;
use smc_demo::bookstore::{Cli, run};
use smc_types::causes::causes;

/// `EX_USAGE` of sysexits.h: the exit code of every program of this project for a bad command line.
const EXIT_USAGE: u8 = 64;

// One thread suffices for tens of requests a second; a demo runs six of these beside six Envoys.
#[tokio::main(flavor = "current_thread")]
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
    match run(cli).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("smc-bookstore: {}", causes(&error));
            ExitCode::FAILURE
        }
    }
}
