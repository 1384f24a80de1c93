//! How much may be logged, whatever causes it.
//!
//! Owns the budgets of modules and of sources. What a peer sends decides neither the number of lines nor
//! their bytes, also of those that a library logs. Time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_host::gcra::Gcra;
use tokio::time::Instant;
use tracing::Level;

/// A rate, and what may come at once before it counts.
#[derive(Debug, Clone, Copy)]
struct Rate {
    bytes_per_second: u32,
    burst_bytes: u32,
}

/// The lines of one level of one module: some 1,500 at once, as when a thousand proxies connect, and
/// then 20 a second. In a day that is 350 MB at most. A line has more than 60 bytes, so that bytes bound
/// the number of lines as well.
const MODULE: Rate = Rate { bytes_per_second: 4 << 10, burst_bytes: 256 << 10 };

/// The lines about one proxy or one address, in all modules: some 150 at once, and then one a second. That
/// is a small part of what a module may log, so that one source hides no line about another.
const SOURCE: Rate = Rate { bytes_per_second: 256, burst_bytes: 32 << 10 };

/// A person turned these levels on, to see more than what is usual.
const DEBUG_FACTOR: u32 = 16;

/// The modules that have a budget each. A program has some hundred that log; the names are constants.
const MAX_MODULES: usize = 512;

/// The sources that have a budget each: as many as a replica has proxies. With the longest names they take
/// 2 MB. Those beyond have one budget together.
const MAX_SOURCES: usize = 4096;

/// The bytes of a source's name; an object's name has at most twice 253.
pub(super) const MAX_NAME: usize = 512;

/// What a line is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin<'a> {
    /// The module, as the "target" of `tracing` names it.
    pub(super) module: &'a str,
    pub(super) level: Level,
    /// The proxy or the address that the line is about.
    pub(super) source: Option<&'a str>,
}

/// The lines of one level of one module that were left out since the last summary.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) module: String,
    pub(super) level: Level,
    pub(super) lines: u64,
    /// The proxy or address that the latest was about.
    pub(super) latest_source: Option<String>,
}

/// The budgets of a process.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    modules: BTreeMap<(String, Level), Module>,
    sources: BTreeMap<String, Bucket>,
    /// When no source could be forgotten.
    full_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Module {
    bucket: Bucket,
    left_out: u64,
    latest_source: Option<String>,
}

/// The bytes that may be logged; full before the first line.
#[derive(Debug, Default, Clone, Copy)]
struct Bucket(Option<Gcra>);

impl Bucket {
    fn admits(self, rate: Rate, now: Instant) -> bool {
        self.0.is_none_or(|bytes| bytes.admits(now, rate.earns(rate.burst_bytes)))
    }

    fn spend(&mut self, rate: Rate, bytes: usize, now: Instant) {
        let cost = rate.earns(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.0.get_or_insert(Gcra::new(now)).spend(now, cost);
    }
}

impl Rate {
    /// The time in which so many bytes are earned.
    fn earns(self, bytes: u32) -> Duration {
        Duration::from_secs(bytes.into()) / self.bytes_per_second
    }

    fn at(self, level: Level) -> Self {
        if level <= Level::INFO {
            return self;
        }
        let Self { bytes_per_second, burst_bytes } = self;
        Self { bytes_per_second: bytes_per_second * DEBUG_FACTOR, burst_bytes: burst_bytes * DEBUG_FACTOR }
    }
}

impl Budgets {
    /// Whether a line may be written. One that may not is counted. One that may is to be charged.
    pub(super) fn admits(&mut self, origin: Origin<'_>, now: Instant) -> bool {
        let source = origin.source.map(|source| *self.source(source, now)).unwrap_or_default();
        let module = self.module(origin);
        let admitted =
            module.bucket.admits(MODULE.at(origin.level), now) && source.admits(SOURCE.at(origin.level), now);
        if !admitted {
            module.left_out += 1;
            if origin.source != module.latest_source.as_deref() {
                module.latest_source = origin.source.map(str::to_owned);
            }
        }
        admitted
    }

    /// Charges a line that was admitted.
    pub(super) fn charge(&mut self, origin: Origin<'_>, bytes: usize, now: Instant) {
        self.module(origin).bucket.spend(MODULE.at(origin.level), bytes, now);
        if let Some(source) = origin.source {
            self.source(source, now).spend(SOURCE.at(origin.level), bytes, now);
        }
    }

    /// What was left out since the last call.
    pub(super) fn left_out(&mut self) -> Vec<LeftOut> {
        let left_out = self.modules.iter_mut().filter(|(_, module)| module.left_out > 0);
        let summary = |((name, level), module): (&(String, Level), &mut Module)| LeftOut {
            module: name.clone(),
            level: *level,
            lines: std::mem::take(&mut module.left_out),
            latest_source: module.latest_source.take(),
        };
        left_out.map(summary).collect()
    }

    fn module(&mut self, origin: Origin<'_>) -> &mut Module {
        let key = (origin.module.to_owned(), origin.level);
        let known = self.modules.len() < MAX_MODULES || self.modules.contains_key(&key);
        let key = if known { key } else { ("others".to_owned(), origin.level) };
        self.modules.entry(key).or_default()
    }

    /// The bucket of a source: an own one, unless there are too many that are not full again.
    fn source(&mut self, source: &str, now: Instant) -> &mut Bucket {
        let known = self.sources.contains_key(source);
        if !known && self.sources.len() >= MAX_SOURCES && self.full_at.is_none_or(|at| at < now) {
            self.sources.retain(|_, bucket| bucket.0.is_some_and(|bytes| !bytes.is_full(now)));
            // Not looked for in vain for each line.
            self.full_at = (self.sources.len() >= MAX_SOURCES).then(|| now + Duration::from_secs(1));
        }
        let own = known || self.sources.len() < MAX_SOURCES;
        self.sources.entry(if own { source } else { "" }.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests;
