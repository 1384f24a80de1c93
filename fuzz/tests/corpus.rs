//! The corpus of every target, replayed without a fuzzer: what was found once is not found again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use smc_fuzz::TARGETS;

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
