//! The seeds of a test run, how a run repeats, and what a failed one shows.

use std::ops::Range;

use smc_simulation::trace::Trace;
use smc_testkit::setting::setting;

/// The seeds to run: 1 to 20, or as many as `SMC_SEEDS` says, from `SMC_SEED` on.
pub(crate) fn seeds() -> Range<u64> {
    let first = setting("SMC_SEED").unwrap_or(1_u64);
    first..first.saturating_add(setting("SMC_SEEDS").unwrap_or(20))
}

/// Runs twice with `seed`, and returns the trace of both.
///
/// # Panics
///
/// If they differ: with the first line that does, and those before it. A whole trace has thousands.
pub(crate) fn repeated(seed: u64, run: impl Fn(u64) -> Vec<String>) -> Vec<String> {
    const BEFORE: usize = 20;
    let (once, again) = (run(seed), run(seed));
    let same = once.iter().zip(&again).take_while(|(once, again)| once == again).count();
    let before = once[same.saturating_sub(BEFORE)..same].join("\n");
    let [line, other] = [&once, &again].map(|lines| lines.get(same).map_or("(its end)", String::as_str));
    assert!(
        once.len() == same && again.len() == same,
        "seed {seed} does not repeat:\n{before}\nonce:  {line}\nagain: {other}"
    );
    once
}

/// Prints the seed and the trace if it is dropped in a panic: the assertion that fails is deep in a task.
pub(crate) struct PrintOnPanic {
    pub(crate) seed: u64,
    pub(crate) trace: Trace,
}

impl Drop for PrintOnPanic {
    #[expect(clippy::print_stderr, reason = "the test harness shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.trace.lines().join("\n"));
        }
    }
}
