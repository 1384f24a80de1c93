//! What a rolling upgrade of all replicas does to the sidecars, as Envoy counts it.
//!
//! Owns the reading of Envoy's statistics and of `smc cluster shards`. Pure; [`super::rolling`] does the
//! upgrade.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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

/// The fields used of `smc cluster shards`.
#[derive(Debug, Deserialize)]
pub struct ShardsReport {
    shards: Vec<Shard>,
}

#[derive(Debug, Deserialize)]
struct Shard {
    phase: String,
    owned: usize,
    connected: usize,
    to_move: usize,
}

impl ShardsReport {
    /// Whether so many replicas are ready, and each serves the sidecars that it owns: so many in all.
    pub fn is_settled(&self, replicas: usize, sidecars: usize) -> bool {
        let settled =
            |shard: &Shard| shard.phase == "ready" && shard.to_move == 0 && shard.connected == shard.owned;
        self.shards.len() == replicas
            && self.shards.iter().all(settled)
            && self.shards.iter().map(|shard| shard.connected).sum::<usize>() == sidecars
    }
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

    #[test]
    fn the_shards_are_settled_when_every_owner_serves_what_it_owns() {
        let shard = |phase: &str, owned: usize, connected: usize, to_move: usize| {
            serde_json::json!({
                "replica": 0, "phase": phase, "owned": owned, "connected": connected, "to_move": to_move,
            })
        };
        for (sentence, shards, expected) in [
            ("all serve", vec![shard("ready", 2, 2, 0), shard("ready", 1, 1, 0)], true),
            ("one drains", vec![shard("ready", 2, 2, 0), shard("draining", 1, 1, 0)], false),
            ("one is on its way", vec![shard("ready", 2, 1, 0), shard("ready", 1, 2, 1)], false),
            ("one is missing", vec![shard("ready", 2, 2, 0), shard("ready", 0, 0, 0)], false),
            ("a replica is missing", vec![shard("ready", 3, 3, 0)], false),
        ] {
            let text = serde_json::json!({ "epoch": 4, "shards": shards }).to_string();
            let report: ShardsReport = serde_json::from_str(&text).unwrap();
            assert_eq!(report.is_settled(2, 3), expected, "{sentence}");
        }
    }
}
