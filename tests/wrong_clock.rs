//! The program `smc` with a clock that a test sets wrong while it runs.
//!
//! Owns that clock. It is a program of the tests, so that no flag and no variable of the program that is
//! shipped can move a clock. The file that `SMC_TEST_CLOCK` names says how wrong it is: the seconds that it
//! is ahead, the seconds that it gains each second, and since when it gains. Without the file it is right.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use smc_host::env::{Clock, Env};
use smc_types::time::Timestamp;

struct WrongClock {
    own: Arc<dyn Clock>,
    file: PathBuf,
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let now = self.own.now().0;
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let numbers: Vec<i64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let wrong = match numbers[..] {
            [ahead, gains, since] => ahead.saturating_add(gains.saturating_mul(now.saturating_sub(since))),
            _ => 0,
        };
        Timestamp(now.saturating_add(wrong))
    }
}

#[expect(clippy::disallowed_methods, reason = "the command line is that of the program")]
fn file() -> Option<OsString> {
    std::env::var_os("SMC_TEST_CLOCK")
}

fn main() -> ExitCode {
    let mut env = Env::system();
    if let Some(file) = file() {
        env.clock = Arc::new(WrongClock { own: env.clock, file: file.into() });
    }
    smc::cli::run_in(env)
}
