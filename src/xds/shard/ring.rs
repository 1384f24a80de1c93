//! The ring: the order in which a proxy connects to the replicas.
//!
//! Owns that order, by consistent hashing (Karger et al., 1997) with virtual nodes on the crate
//! `hashring`: proxies spread evenly over replicas, the proxies of a lost replica spread evenly
//! over the others, and a new replica takes an equal share from each and moves no other proxy. The
//! order is part of every bootstrap that was ever issued, so positions must never change: each is a
//! SHA-256 of bytes that are written out here, and neither std's `Hash` nor the crate's own hasher
//! has a say.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

use hashring::HashRing;
use sha2::{Digest, Sha256};
use smc_types::ids::{ProxyUuid, ReplicaId};

/// The points of each replica. Each replica of 3 gets its third within 1.3 % with these, each of 2
/// to 9 its part within 2.6 %; with a quarter of them 5.5 and 7 %. A ring of 9 replicas takes 860
/// KiB.
const POINTS: u64 = 4096;

/// The positions that one hash gives.
const PER_HASH: usize = 4;

/// The replicas on a ring. Making one hashes [`POINTS`] points for each replica, so a process makes
/// it once and shares it.
#[derive(Clone)]
pub struct Ring {
    points: HashRing<Point, Positions>,
    replicas: BTreeSet<ReplicaId>,
}

impl Ring {
    /// The ring of these replicas.
    pub fn new(replicas: impl IntoIterator<Item = ReplicaId>) -> Self {
        let replicas: BTreeSet<_> = replicas.into_iter().collect();
        let mut points = HashRing::with_hasher(Positions);
        points.batch_add(replicas.iter().copied().flat_map(points_of).collect());
        Self { points, replicas }
    }

    /// The replicas of the ring.
    pub fn replicas(&self) -> &BTreeSet<ReplicaId> {
        &self.replicas
    }

    /// All replicas in the order in which `proxy` connects to them.
    pub fn order(&self, proxy: ProxyUuid) -> Vec<ReplicaId> {
        self.walk(proxy).collect()
    }

    /// The same order, one by one: a search of the ring for each point on the way.
    pub fn walk(&self, proxy: ProxyUuid) -> impl Iterator<Item = ReplicaId> + '_ {
        let mut from = position_of(proxy);
        let mut left = self.replicas.clone();
        std::iter::from_fn(move || {
            // Every replica has points, so the walk meets each that is left within one turn.
            while !left.is_empty() {
                let point = self.points.get(&Position(from))?;
                from = point.position.wrapping_add(1);
                if left.remove(&point.replica) {
                    return Some(point.replica);
                }
            }
            None
        })
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ring").field(&self.replicas).finish()
    }
}

/// A virtual node.
#[derive(Debug, Clone, Copy)]
struct Point {
    position: u64,
    replica: ReplicaId,
}

/// A place to search from.
struct Position(u64);

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.position);
    }
}

impl Hash for Position {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// What the ring hashes has its position already.
#[derive(Debug, Clone)]
struct Positions;

impl BuildHasher for Positions {
    type Hasher = Written;

    fn build_hasher(&self) -> Written {
        Written(0)
    }
}

/// Gives back what was written.
#[derive(Debug)]
struct Written(u64);

impl Hasher for Written {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |written, byte| written << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, written: u64) {
        self.0 = written;
    }
}

fn points_of(replica: ReplicaId) -> impl Iterator<Item = Point> {
    (0..POINTS / PER_HASH as u64).flat_map(move |block| {
        let mut hash = Sha256::new();
        hash.update(b"smc replica");
        hash.update(replica.0.to_be_bytes());
        hash.update(block.to_be_bytes());
        positions(hash).map(|position| Point { position, replica })
    })
}

fn position_of(proxy: ProxyUuid) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"smc proxy");
    hash.update(proxy.0.as_bytes());
    let [position, ..] = positions(hash);
    position
}

fn positions(hash: Sha256) -> [u64; PER_HASH] {
    let hash = <[u8; 32]>::from(hash.finalize());
    let mut positions = [0; PER_HASH];
    for (position, bytes) in positions.iter_mut().zip(hash.chunks_exact(8)) {
        *position = bytes.iter().fold(0, |before, byte| before << 8 | u64::from(*byte));
    }
    positions
}

#[cfg(test)]
mod tests;
