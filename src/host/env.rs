//! The environment of the process: the time of day, randomness and the network.
//!
//! Owns the only calls to the system's clock. Other parts receive an [`Env`], so that a test or a
//! simulation can replace it. Timers are tokio's, which a simulation steers by itself.

pub mod fixed;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::network::{Network, Tcp};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use smc_types::time::Timestamp;
use thiserror::Error;
use zeroize::Zeroizing;

/// The time of day. It may jump in both directions.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// A cryptographically secure random generator.
pub trait Entropy: Send + Sync {
    /// Fills the whole of `bytes`.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoEntropy>;

    /// A fresh random number, evenly distributed.
    fn random_u64(&self) -> Result<u64, NoEntropy> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// A new private key in PKCS#8, of ECDSA P-256. It comes from the system's generator in any case: ring
    /// takes no other. Signatures with it have no fixed length, so a simulation makes keys of another kind.
    #[expect(clippy::disallowed_methods, reason = "ring seals its generators")]
    fn private_key(&self) -> Result<Zeroizing<Vec<u8>>, NoEntropy> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Ok(Zeroizing::new(key.map_err(|_| NoEntropy)?.as_ref().to_vec()))
    }
}

/// The system's random generator failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the system gives no randomness")]
pub struct NoEntropy;

/// The environment of the process. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The network of all connections but the administration's unix socket, which is a file.
    pub network: Arc<dyn Network>,
}

impl Env {
    /// The system's environment.
    #[expect(clippy::disallowed_methods, reason = "every other part receives this generator")]
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy(SystemRandom::new())),
            network: Arc::new(Tcp),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Fresh random bytes.
    pub fn random<const N: usize>(&self) -> Result<[u8; N], NoEntropy> {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A fresh random number, evenly distributed.
    pub fn random_u64(&self) -> Result<u64, NoEntropy> {
        self.entropy.random_u64()
    }
}

struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "every other part receives this clock")]
    fn now(&self) -> Timestamp {
        let seconds = |span: std::time::Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        Timestamp(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => seconds(after),
            Err(before) => -seconds(before.duration()),
        })
    }
}

struct SystemEntropy(SystemRandom);

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.fill(bytes).map_err(|_| NoEntropy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_environment_repeats_itself_and_the_systems_does_not() {
        let draw = |seed| fixed::env(Timestamp(7), seed).0.random::<24>().unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let real = Env::system();
        assert_ne!(real.random::<24>(), real.random::<24>());
        assert!(real.now() > Timestamp(1_700_000_000));
    }

    #[test]
    fn a_settable_clock_stands_still_until_it_is_moved() {
        let (env, clock) = fixed::env(Timestamp(7), 1);
        assert_eq!(env.now(), Timestamp(7));
        clock.advance(std::time::Duration::from_secs(3));
        assert_eq!(env.now(), Timestamp(10));
        clock.set(Timestamp(-5));
        assert_eq!(env.now(), Timestamp(-5));
    }
}
