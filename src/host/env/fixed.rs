//! A fixed environment: a settable clock, and randomness from a seed. For tests and simulations.
//!
//! Owns the seeded sequence; keys made with it are as secret as the seed. The network is the
//! system's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::network::Tcp;
use crate::sync::lock;
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

/// The sequence that a seed determines: SplitMix64, which is the same on every platform and in every version
/// of its crate. `rand`'s `SmallRng` and `StdRng` are not.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<SplitMix64>);

impl SeededEntropy {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SplitMix64::seed_from_u64(seed)))
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        lock(&self.0).next_u64()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of the algorithm's published reference for this seed: a simulation that is named
    /// by its seed stays the same one.
    #[test]
    fn a_seed_gives_the_same_sequence_everywhere() {
        let entropy = SeededEntropy::new(1_234_567);
        for expected in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ] {
            assert_eq!(entropy.draw(), expected);
        }
        let mut bytes = [0; 11];
        entropy.fill(&mut bytes).unwrap();
        assert_eq!(bytes[..8], 16_408_922_859_458_223_821_u64.to_be_bytes());
        assert_ne!(bytes[8..], [0; 3]);
    }
}
