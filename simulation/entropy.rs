//! The randomness of a replica.
//!
//! Owns the keys of certificates, which follow from the seed as all that is drawn does. They are of Ed25519,
//! whose signatures follow from key and text (RFC 8032). An ECDSA signature is of another length each time,
//! and with it the packets that carry it.

use smc_host::env::fixed::SeededEntropy;
use smc_host::env::{Entropy, NoEntropy};
use zeroize::Zeroizing;

/// What stands before the 32 bytes of a private key in PKCS#8 (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The sequence of a seed, and keys from it.
pub(crate) struct ReplicaEntropy(SeededEntropy);

impl ReplicaEntropy {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }
}

impl Entropy for ReplicaEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoEntropy> {
        self.0.fill(bytes)
    }

    fn private_key(&self) -> Result<Zeroizing<Vec<u8>>, NoEntropy> {
        let mut key = [0; 32];
        self.fill(&mut key)?;
        Ok(Zeroizing::new([PKCS8_ED25519.as_slice(), &key].concat()))
    }
}
