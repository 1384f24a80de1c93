//! A fixed environment: a settable clock, and randomness from a seed. For tests and simulations.
//!
//! Owns the seeded sequence; keys made with it are as secret as the seed. The network is the
//! system's.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::network::Tcp;
use smc_types::time::Timestamp;

use super::{Clock, Entropy, Env, NoEntropy};

/// A clock that stands still until it is set.
#[derive(Debug)]
pub struct SettableClock(AtomicI64);

impl SettableClock {
    /// A clock that shows `start`.
    pub fn at(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Sets the clock to `time`, which may lie in the past.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Advances the clock by `span`, cut to whole seconds.
    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The sequence that a seed determines (SplitMix64).
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoEntropy> {
        for chunk in bytes.chunks_mut(8) {
            for (byte, random) in chunk.iter_mut().zip(self.draw().to_be_bytes()) {
                *byte = random;
            }
        }
        Ok(())
    }
}

/// An environment whose clock shows `start` and whose randomness comes from `seed`, and its clock.
pub fn env(start: Timestamp, seed: u64) -> (Env, Arc<SettableClock>) {
    let clock = Arc::new(SettableClock::at(start));
    let env = Env {
        clock: Arc::<SettableClock>::clone(&clock),
        entropy: Arc::new(SeededEntropy::new(seed)),
        network: Arc::new(Tcp),
    };
    (env, clock)
}
