//! Reading `smc cluster shards -o json`: where the proxies are, and where they should be. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The fields used of the answer.
#[derive(Debug, Deserialize)]
pub struct ShardsReport {
    /// Every replica that the group knows, in order.
    pub shards: Vec<Shard>,
}

/// One replica.
#[derive(Debug, Deserialize)]
pub struct Shard {
    /// Its number.
    pub replica: u16,
    /// Its phase, as `smc` prints it.
    pub phase: String,
    /// How many proxies it should serve.
    pub owned: usize,
    /// How many it serves.
    pub connected: usize,
    /// How many of these another replica should serve.
    pub to_move: usize,
}

impl ShardsReport {
    /// How many proxies each replica serves that is ready and serves those that it owns, and no other.
    pub fn settled(&self) -> BTreeMap<u16, usize> {
        let is_settled =
            |shard: &&Shard| shard.phase == "ready" && shard.to_move == 0 && shard.connected == shard.owned;
        self.shards.iter().filter(is_settled).map(|shard| (shard.replica, shard.connected)).collect()
    }

    /// Whether there are so many replicas, each ready, and each serves the proxies that it owns.
    pub fn is_settled(&self, replicas: usize) -> bool {
        self.shards.len() == replicas && self.settled().len() == replicas
    }

    /// How many proxies all replicas serve.
    pub fn connected(&self) -> usize {
        self.shards.iter().map(|shard| shard.connected).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_are_settled_when_every_owner_serves_what_it_owns() {
        let shard = |phase: &str, owned: usize, connected: usize, to_move: usize| Shard {
            replica: 0,
            phase: phase.to_owned(),
            owned,
            connected,
            to_move,
        };
        for (sentence, shards, expected) in [
            ("all serve", vec![shard("ready", 2, 2, 0), shard("ready", 1, 1, 0)], true),
            ("one drains", vec![shard("ready", 2, 2, 0), shard("draining", 1, 1, 0)], false),
            ("one is on its way", vec![shard("ready", 2, 1, 0), shard("ready", 1, 2, 1)], false),
            ("one is missing", vec![shard("ready", 2, 1, 0), shard("ready", 1, 1, 0)], false),
            ("a replica is missing", vec![shard("ready", 3, 3, 0)], false),
        ] {
            let shards = shards.into_iter().zip(0..).map(|(shard, replica)| Shard { replica, ..shard });
            let report = ShardsReport { shards: shards.collect() };
            assert_eq!(report.is_settled(2), expected, "{sentence}");
        }
    }
}
