//! The source reads a model of an API server over HTTP, through the client of production, as seeds determine.
//!
//! `SMC_SEED` and `SMC_SEEDS` name the first seed and how many. With `SMC_SURVEY`, all of them run, and
//! what fails is counted.

use std::collections::BTreeMap;
use std::ops::Range;

use smc_simulation::model_api::judge::Rule;
use smc_simulation::model_api::shrink::shrink;
use smc_simulation::model_api::story::Story;
use smc_simulation::model_api::world::{Failed, describe, tell};
use smc_testkit::setting::setting;

/// As many seeds as take some twenty seconds.
const SEEDS: u64 = 600;

#[test]
fn what_is_published_is_what_the_api_server_had() {
    if setting::<u64>("SMC_SURVEY").is_some() {
        return survey();
    }
    for seed in seeds() {
        let story = Story::draw(seed);
        if let Err(failed) = tell(&story, false) {
            panic!("{}", report(seed, &story, failed));
        }
    }
}

#[test]
fn a_story_repeats_with_its_seed() {
    for seed in seeds().step_by(60).take(10) {
        let story = Story::draw(seed);
        let told = || tell(&story, true).map_err(|failed| failed.trace);
        assert_eq!(told(), told(), "seed {seed}");
    }
}

/// The shortest story that fails as this one does, in words.
fn report(seed: u64, story: &Story, failed: Failed) -> String {
    let (shortest, failed) = shrink(story, failed);
    let trace = tell(&shortest, true).err().map(|failed| failed.trace).unwrap_or_default();
    let (steps, trace) = (describe(&shortest).join("\n"), trace.join("\n"));
    format!("seed {seed}: {}\n{steps}\n{trace}", failed.violation)
}

/// Tells all stories, and prints how many break each rule, and the first that does.
#[expect(clippy::print_stdout, reason = "it is asked for")]
fn survey() {
    let mut broken: BTreeMap<Rule, (u64, u64, Failed)> = BTreeMap::new();
    let mut told = 0;
    for seed in seeds() {
        told += 1;
        if let Err(failed) = tell(&Story::draw(seed), false) {
            broken.entry(failed.violation.rule).or_insert((0, seed, failed)).0 += 1;
        }
    }
    for (rule, (count, first, _)) in &broken {
        println!("{rule:?}: {count} of {told}, first seed {first}");
    }
    for (_, (_, seed, failed)) in broken {
        println!("\n{}", report(seed, &Story::draw(seed), failed));
    }
}

fn seeds() -> Range<u64> {
    let first = setting("SMC_SEED").unwrap_or(1);
    first..first.saturating_add(setting("SMC_SEEDS").unwrap_or(SEEDS))
}
