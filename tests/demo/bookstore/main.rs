//! `smc-bookstore`: parses the command line and runs one of the demo's programs. The library has
//! everything else.

use std::process::ExitCode;

use smc::cli::parsed;
use smc_demo::bookstore::{Cli, run};
use smc_types::causes::causes;

// One thread suffices for tens of requests a second; a demo runs six of these beside six Envoys.
#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "standard error is where a command line tool says why it failed")]
async fn main() -> ExitCode {
    let cli: Cli = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match run(cli).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("smc-bookstore: {}", causes(&error));
            ExitCode::FAILURE
        }
    }
}
