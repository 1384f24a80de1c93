//! `smc-bookstore`: parses the command line and runs one of the demo's programs. Everything else is in the library.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use smc_tests::bookstore::{Cli, run};

/// `EX_USAGE` of sysexits, as every program of this project answers a bad command line.
const EXIT_USAGE: u8 = 64;

// One thread is plenty for tens of requests a second, and a demo starts six of these beside six Envoys.
#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "standard error is where a command line tool says why it failed")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do if even the usage message cannot be written.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli).await {
        Ok(code) => code,
        Err(error) => {
            eprint!("smc-bookstore: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprint!(": {cause}");
                source = cause.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}
