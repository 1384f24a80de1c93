//! What the attended and the unattended demo have in common on a stage: telling records from chatter, shifting the
//! split, and asking whether the shift has arrived.

use std::time::Duration;

use tokio::time::Instant;

use super::DemoError;
use super::convergence::ProxyConfig;
use super::manifests::{SPLIT_FILE, Weights};
use super::stage::{Line, Stage};
use super::tally::{Tally, read_line};
use crate::bookstore::record::Record;

/// The sidecar that divides the traffic: the split is applied where requests start.
const DIVIDING_PROXY: &str = "bookbuyer/bookbuyer";

/// How often to ask whether a configuration has arrived.
const POLL: Duration = Duration::from_millis(200);

/// A line, as far as it concerns us.
#[derive(Debug)]
pub(super) enum Heard {
    /// A record.
    Record(Record),
    /// A line that looks like a record and is none.
    Unreadable,
    /// Anything else a program may say.
    Chatter,
}

/// What a line says.
pub(super) fn hear(line: &Line) -> Heard {
    match read_line(&line.text) {
        Some(Ok(record)) => Heard::Record(record),
        Some(Err(_)) => Heard::Unreadable,
        None => Heard::Chatter,
    }
}

/// Counts what was heard.
pub(super) fn count(tally: &mut Tally, heard: &Heard) {
    match heard {
        Heard::Record(record) => tally.add(record),
        Heard::Unreadable => tally.unreadable += 1,
        Heard::Chatter => {}
    }
}

/// A shift of the split that is under way.
#[derive(Debug)]
pub(super) struct Shift {
    before: ProxyConfig,
    started: Instant,
    next_poll: Instant,
}

impl Shift {
    /// Writes the new split. `before` is what the dividing proxy has now.
    pub(super) async fn start(
        stage: &mut impl Stage,
        weights: Weights,
        before: ProxyConfig,
    ) -> Result<Self, DemoError> {
        stage.apply(SPLIT_FILE, &weights.to_yaml()).await?;
        let started = Instant::now();
        Ok(Self { before, started, next_poll: started + POLL })
    }

    /// When to [`Shift::poll`] next.
    pub(super) fn next_poll(&self) -> Instant {
        self.next_poll
    }

    /// How long ago the split was written.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the proxy has acknowledged a new configuration.
    pub(super) async fn poll(&mut self, stage: &mut impl Stage) -> Result<bool, DemoError> {
        let converged = proxy_config(stage).await?.has_converged_since(&self.before);
        self.next_poll = Instant::now() + POLL;
        Ok(converged)
    }
}

/// What the dividing proxy has.
pub(super) async fn proxy_config(stage: &mut impl Stage) -> Result<ProxyConfig, DemoError> {
    let json = stage.smc(&["proxy", "config", DIVIDING_PROXY, "-o", "json"]).await?;
    ProxyConfig::parse(&json).map_err(|source| DemoError::ProxyConfig { proxy: DIVIDING_PROXY, source })
}
