//! The fuzzer: one target, named by `SMC_FUZZ_TARGET`, under libFuzzer. `make fuzz` builds and runs it.

#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls an exported function of this name")]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use smc_fuzz::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    #[expect(clippy::disallowed_methods, reason = "libFuzzer owns the command line")]
    let name = std::env::var("SMC_FUZZ_TARGET").unwrap_or_default();
    let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let target = TARGETS.iter().find(|target| target.name == name);
    #[expect(clippy::panic, reason = "there is nothing to run")]
    *target.unwrap_or_else(|| panic!("SMC_FUZZ_TARGET is {name:?}; targets: {}", known.join(", ")))
}

fuzz_target!(|input: &[u8]| (TARGET.get_or_init(chosen).run)(input));
