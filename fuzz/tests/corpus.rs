//! The corpus of every target, replayed without a fuzzer: what was found once is not found again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use smc_fuzz::{TARGETS, Target};
use smc_host::env::fixed::SeededEntropy;
use tokio::time::Instant;

/// How many damaged inputs each target reads, unless `SMC_CASES` says otherwise.
const CASES: u64 = 100;

/// How long an input may take, as under the fuzzer.
const LIMIT: Duration = Duration::from_secs(10);

/// The most memory that all targets together may take at any moment, in KiB, as each under the fuzzer.
const MEMORY: u64 = 2 << 20;

/// The inputs of a target.
fn corpus(target: &str) -> Vec<PathBuf> {
    let directory = Path::new("corpus").join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn the_corpus_of_each_target_is_read_without_a_finding() {
    for target in TARGETS {
        let inputs = corpus(target.name);
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            let judged = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(judged.is_ok(), "{} finds something in {}", target.name, input.display());
        }
    }
}

/// Damages inputs of the corpus without guidance by coverage, so that any build can do it: `SMC_SEED` names
/// the first, `SMC_CASES` how many for each target, `SMC_FUZZ_TARGET` one target.
#[test]
fn damaged_inputs_are_read_without_a_finding_in_time_and_memory() {
    let (seed, cases) = (number("SMC_SEED").unwrap_or(1), number("SMC_CASES").unwrap_or(CASES));
    let chosen = setting("SMC_FUZZ_TARGET");
    for target in TARGETS.iter().filter(|target| chosen.as_deref().is_none_or(|name| name == target.name)) {
        let inputs: Vec<_> = corpus(target.name).iter().map(|input| fs::read(input).unwrap()).collect();
        for case in seed..seed.saturating_add(cases) {
            let input = damaged(&inputs, &SeededEntropy::new(case));
            judge(target, &input, case);
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY, "{peak} KiB");
}

fn judge(target: &Target, input: &[u8], case: u64) {
    let begun = Instant::now();
    let judged = std::panic::catch_unwind(|| (target.run)(input));
    let shown = input.escape_ascii();
    assert!(judged.is_ok(), "{} finds something in case {case}: {shown}", target.name);
    assert!(begun.elapsed() < LIMIT, "{} takes {:?} for case {case}: {shown}", target.name, begun.elapsed());
}

/// An input of the corpus, changed in one to eight places.
fn damaged(inputs: &[Vec<u8>], random: &SeededEntropy) -> Vec<u8> {
    let below = |bound: usize| usize::try_from(random.draw() % (bound as u64)).unwrap();
    let mut input = inputs[below(inputs.len())].clone();
    for _ in 0..=below(8) {
        let (at, other) = (below(input.len() + 1), &inputs[below(inputs.len())]);
        let to = (at + below(32)).min(input.len());
        let from = below(other.len() + 1);
        let part = &other[from..(from + below(64)).min(other.len())];
        match below(6) {
            0 if at < input.len() => input[at] ^= 1 << below(8),
            1 if at < input.len() => input[at] = [0, 0xff, 0x7f, 0x80, b'"', b'\\'][below(6)],
            2 => drop(input.drain(at..to)),
            3 => drop(input.splice(at..to, part.iter().copied())),
            4 => input.extend_from_within(at..to),
            _ => drop(input.splice(at..at, part.iter().copied())),
        }
        // As `make fuzz` does.
        input.truncate(16384);
    }
    input
}

#[expect(clippy::disallowed_methods, reason = "a test takes no arguments")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    Some(setting(name)?.parse().expect("a number"))
}
