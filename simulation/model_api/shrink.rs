//! Makes a story that fails shorter.
//!
//! Owns the search: steps are left out, many at once and then one by one, as long as the same rule is broken.

use super::server::Streaming;
use super::story::Story;
use super::world::{Failed, tell};

/// The most stories that are run for it.
const ATTEMPTS: usize = 600;

/// The shortest story found that fails as this one does, and how.
pub fn shrink(story: &Story, failed: Failed) -> (Story, Failed) {
    let rule = failed.violation.rule;
    let mut found = (story.clone(), failed);
    let mut attempts = ATTEMPTS;
    let mut fails = |story: &Story| {
        attempts = attempts.checked_sub(1)?;
        tell(story, false).err().filter(|failed| failed.violation.rule == rule)
    };
    let mut span = found.0.steps.len();
    while span > 0 {
        let mut at = 0;
        while at < found.0.steps.len() {
            let mut shorter = found.0.clone();
            let end = (at + span).min(shorter.steps.len());
            shorter.steps.drain(at..end);
            shorter.prelude -= shorter.prelude.min(end) - shorter.prelude.min(at);
            match fails(&shorter) {
                Some(failed) => found = (shorter, failed),
                None => at += span,
            }
        }
        span /= 2;
    }
    for simpler in SIMPLER {
        let mut story = found.0.clone();
        simpler(&mut story);
        if let Some(failed) = fails(&story) {
            found = (story, failed);
        }
    }
    found
}

/// What makes a story simpler.
const SIMPLER: &[fn(&mut Story)] = &[
    |story| story.namespaces = story.namespaces.min(3),
    |story| story.objects = story.objects.min(1),
    |story| story.consumer_pause = 0,
    |story| story.setup.delays.clear(),
    |story| story.setup.lags.clear(),
    |story| (story.setup.cut, story.setup.pause) = (0, 0),
    |story| story.setup.streaming = Streaming::Served,
    |story| story.setup.http2 = true,
    |story| story.setup.cached = true,
    |story| (story.setup.bookmarks, story.setup.progress) = (true, true),
    |story| story.setup.page = 500,
    |story| story.setup.warming = 0,
];
