//! Certificates and keys as they are handed from part to part.
//!
//! Owns keeping keys out of `Debug` and out of freed memory. Refuses to read what it carries.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{decode_hex, encode_hex};

/// The certificates that a workload trusts: every root of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// Concatenated PEM certificates.
    pub pem: String,
}

/// What a workload identity proves itself with: an X.509-SVID and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceCertificate {
    /// Concatenated PEM certificates, the leaf first, then its issuer; the root is left out.
    pub chain_pem: String,
    /// The leaf's private key, PKCS#8 PEM.
    pub key_pem: Zeroizing<String>,
}

impl fmt::Debug for ServiceCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCertificate").field("chain_pem", &self.chain_pem).finish_non_exhaustive()
    }
}

/// A private key that only the holder of a key-encryption key can read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedKey {
    /// Names the key-encryption key, so that the wrong one is told apart from damage.
    pub encryption_key: String,
    /// What the sealing made: nonce, ciphertext and tag. Opaque here.
    #[serde(with = "as_hex")]
    pub sealed: Vec<u8>,
}

impl fmt::Debug for SealedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedKey").field("encryption_key", &self.encryption_key).finish_non_exhaustive()
    }
}

mod as_hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::encode_hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::decode_hex(&text).ok_or_else(|| de::Error::custom("not hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        let certificate = ServiceCertificate {
            chain_pem: "CHAIN".to_owned(),
            key_pem: Zeroizing::new("SECRET".to_owned()),
        };
        let shown = format!("{certificate:?}");
        assert!(shown.contains("CHAIN") && !shown.contains("SECRET"), "{shown}");
    }
}
