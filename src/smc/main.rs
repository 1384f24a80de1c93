//! The program `smc`. Everything it does is in the library, so that tests can do it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    smc::cli::run()
}
