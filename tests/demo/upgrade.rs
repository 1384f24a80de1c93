//! What a rolling upgrade of all replicas does to the sidecars, as Envoy counts it.
//!
//! Owns the reading of Envoy's statistics and of `smc cluster shards`. Pure; [`super::rolling`] does the
//! upgrade.

use std::time::Duration;

use serde::Serialize;

/// The statistic that is 1 while a sidecar has a stream: a filter of `/stats`.
pub const CONNECTED: &str = "^control_plane\\.connected_state$";

/// The statistics that count what a sidecar was sent: clusters and listeners by their changes, routes by
/// their updates. A filter of `/stats`.
pub const SENT: &str = "^(cluster_manager\\.cluster|listener_manager\\.listener)_(added|modified|removed)$\
                        |\\.rds\\..*\\.update_success$";

/// What one sidecar noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SidecarReport {
    /// NAMESPACE/NAME.
    pub sidecar: String,
    /// How long it had no stream, each time that one ended, in milliseconds. Rounded up to the samples.
    pub gaps_ms: Vec<u64>,
    /// How many clusters, listeners and routes it was sent, although nothing changed.
    pub resent: u64,
}

/// The streams of one sidecar, from samples of its state.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    connected_at: Option<Duration>,
    lost: bool,
    gaps: Vec<Duration>,
}

impl Streams {
    /// Adds a sample; `at` counts from any moment and never goes back.
    pub fn observe(&mut self, at: Duration, connected: bool) {
        if !connected {
            self.lost = true;
            return;
        }
        if let Some(since) = self.connected_at.filter(|_| self.lost) {
            self.gaps.push(at.saturating_sub(since));
        }
        self.lost = false;
        self.connected_at = Some(at);
    }

    /// How long there was no stream, from the last sample before to the first one after, in milliseconds.
    pub fn gaps_ms(&self) -> Vec<u64> {
        self.gaps.iter().map(|gap| u64::try_from(gap.as_millis()).unwrap_or(u64::MAX)).collect()
    }
}

/// Sums the statistics that `/stats` returned. `None` if there are none, or a line is not a number.
pub fn sum(stats: &str) -> Option<u64> {
    let mut total = None;
    for line in stats.lines() {
        let value: u64 = line.rsplit_once(": ")?.1.parse().ok()?;
        total = Some(total.unwrap_or(0) + value);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_last_from_the_last_sample_before_to_the_first_one_after() {
        for (sentence, samples, expected) in [
            ("a stream that stays", vec![(0, true), (20, true)], vec![]),
            ("one that is replaced", vec![(0, true), (20, false), (40, true), (60, true)], vec![40]),
            ("two samples without one", vec![(20, true), (40, false), (60, false), (80, true)], vec![60]),
            ("twice", vec![(0, true), (20, false), (40, true), (60, false), (80, true)], vec![40, 40]),
            ("none at the beginning", vec![(0, false), (20, true)], vec![]),
            ("none at the end", vec![(0, true), (20, false)], vec![]),
        ] {
            let mut streams = Streams::default();
            for (at, connected) in samples {
                streams.observe(Duration::from_millis(at), connected);
            }
            assert_eq!(streams.gaps_ms(), expected, "{sentence}");
        }
    }

    #[test]
    fn statistics_are_summed_if_there_are_any() {
        for (stats, expected) in [
            ("a: 3\nb.c: 4\n", Some(7)),
            ("control_plane.connected_state: 0", Some(0)),
            ("", None),
            ("no statistic", None),
            ("a: P0(nan)", None),
        ] {
            assert_eq!(sum(stats), expected, "{stats}");
        }
    }
}
