//! Certificates and keys as values.
//!
//! Owns keeping keys out of `Debug` and out of freed memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The certificates that a workload trusts: every root of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// Concatenated PEM certificates.
    pub pem: String,
}

/// A workload identity's X.509-SVID and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceCertificate {
    /// Concatenated PEM certificates: the leaf, then its issuer; without the root.
    pub chain_pem: String,
    /// The leaf's private key, PKCS#8 PEM.
    pub key_pem: Zeroizing<String>,
}

impl fmt::Debug for ServiceCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCertificate").field("chain_pem", &self.chain_pem).finish_non_exhaustive()
    }
}

/// A private key, encrypted with a key-encryption key (KEK).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedKey {
    /// The KEK's name, which distinguishes a wrong KEK from damage.
    pub encryption_key: String,
    /// Nonce, ciphertext and tag. Opaque here.
    #[serde(with = "as_hex")]
    pub sealed: Vec<u8>,
}

impl fmt::Debug for SealedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedKey").field("encryption_key", &self.encryption_key).finish_non_exhaustive()
    }
}

mod as_hex {
    use data_encoding::HEXLOWER;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        HEXLOWER.decode(text.as_bytes()).ok().ok_or_else(|| de::Error::custom("not hexadecimal digits"))
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
