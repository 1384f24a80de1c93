//! Owns the steps that the attended and the unattended demo share: parsing lines, shifting the
//! split, and polling for its acknowledgement.

use std::time::Duration;

use tokio::time::Instant;

use super::DemoError;
use super::convergence::ProxyConfig;
use super::manifests::{SPLIT_FILE, Weights};
use super::stage::{Line, Stage};
use super::tally::{Tally, read_line};
use crate::bookstore::record::Record;

/// The client's sidecar: Envoy applies a TrafficSplit where requests start.
const CLIENT_PROXY: &str = "bookbuyer/bookbuyer";

/// Poll interval for the acknowledgement.
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum ParsedLine {
    /// A record of the journal.
    Record(Record),
    /// A line that looks like a record but cannot be parsed.
    Unreadable,
    /// Any other output of a program.
    Other,
}

pub(super) fn parse_line(line: &Line) -> ParsedLine {
    match read_line(&line.text) {
        Some(Ok(record)) => ParsedLine::Record(record),
        Some(Err(_)) => ParsedLine::Unreadable,
        None => ParsedLine::Other,
    }
}

/// Adds a parsed line to the tally.
pub(super) fn count(tally: &mut Tally, parsed: &ParsedLine) {
    match parsed {
        ParsedLine::Record(record) => tally.add(record),
        ParsedLine::Unreadable => tally.unreadable += 1,
        ParsedLine::Other => {}
    }
}

/// A shift of the split that is not acknowledged yet.
#[derive(Debug)]
pub(super) struct Shift {
    before: ProxyConfig,
    started: Instant,
    next_poll: Instant,
}

impl Shift {
    /// Writes the new split. `before` is the client sidecar's present configuration.
    pub(super) async fn start(
        stage: &mut impl Stage,
        weights: Weights,
        before: ProxyConfig,
    ) -> Result<Self, DemoError> {
        stage.apply(SPLIT_FILE, &weights.to_yaml()).await?;
        let started = Instant::now();
        Ok(Self { before, started, next_poll: started + POLL })
    }

    /// Returns the time of the next [`Shift::poll`].
    pub(super) fn next_poll(&self) -> Instant {
        self.next_poll
    }

    /// Returns the time since the split was written.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns true if the sidecar has acknowledged the new configuration.
    pub(super) async fn poll(&mut self, stage: &mut impl Stage) -> Result<bool, DemoError> {
        let converged = proxy_config(stage).await?.has_converged_since(&self.before);
        self.next_poll = Instant::now() + POLL;
        Ok(converged)
    }
}

/// Reads the client sidecar's configuration from the controller.
pub(super) async fn proxy_config(stage: &mut impl Stage) -> Result<ProxyConfig, DemoError> {
    let json = stage.smc(&["proxy", "config", CLIENT_PROXY, "-o", "json"]).await?;
    ProxyConfig::parse(&json).map_err(|source| DemoError::ProxyConfig { proxy: CLIENT_PROXY, source })
}
