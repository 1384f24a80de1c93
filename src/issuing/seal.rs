//! Sealing private keys with a key-encryption key (KEK).
//!
//! Owns the KEK file and the encryption: AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce, safe for
//! 2^32 keys under one KEK (§8.3), which a mesh does not reach in centuries. The context of a sealed key is
//! authenticated with it, so that one sealed key cannot take the place of another. A KEK file that other
//! users may read is an error.

mod key_file;
mod key_ring;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use smc_authority::ledger::Ledger;
use smc_authority::pki::{SealedKey, SerialNumber};
use smc_raft::GroupSecret;
use smc_types::text::truncated;
use thiserror::Error;
use zeroize::Zeroizing;

pub use key_file::{KeyFileError, KeyPlace, key_id};
pub use key_ring::KeyRing;

use smc_host::env::{Entropy, NoEntropy};

/// The use of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A root's key.
    Root,
    /// An issuing CA's key.
    Issuing,
    /// A service certificate's key.
    Service,
    /// The key of a gateway's certificate.
    Gateway,
}

/// The certificate that a sealed key belongs to. Opening needs the same context as sealing.
#[derive(Debug, Clone, Copy)]
pub struct SealContext<'a> {
    /// The use of the key.
    pub purpose: Purpose,
    /// The owner: a trust domain, an identity, or the Secret of a gateway.
    pub name: &'a str,
    /// The serial number of the certificate.
    pub serial: SerialNumber,
}

/// Why a key could not be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SealError {
    /// The key was sealed with another KEK.
    #[error("it is sealed with the key-encryption key {sealed_with}, and the configured one is {at_hand}")]
    OtherKey {
        /// The id of the KEK that sealed it.
        sealed_with: String,
        /// The id of this KEK.
        at_hand: String,
    },
    /// The sealed key is damaged, or belongs to another certificate.
    #[error("the sealed key is damaged, or is that of another certificate")]
    Refused,
    /// The system returned no random bytes.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

/// Seals private keys and opens them again: with a key in a file here, later with a key-management service
/// that unwraps a data key once at start, so that sealing itself needs no network.
pub trait KeyEncryption: Send + Sync {
    /// The id of the KEK that seals. It reveals nothing about the KEK.
    fn id(&self) -> &str;

    /// Whether it opens what the KEK with this id has sealed.
    fn opens(&self, id: &str) -> bool {
        self.id() == id
    }

    /// Seals `key`.
    fn seal(&self, context: SealContext<'_>, key: &[u8]) -> Result<SealedKey, SealError>;

    /// Opens what [`Self::seal`] made for the same context.
    fn open(&self, context: SealContext<'_>, sealed: &SealedKey) -> Result<Zeroizing<Vec<u8>>, SealError>;

    /// A secret derived from the KEK, by which replicas authenticate each other. The KEK cannot be derived
    /// from it.
    fn group_secret(&self) -> GroupSecret;

    /// The group secrets of other accepted KEKs, while one KEK replaces another.
    fn other_group_secrets(&self) -> Vec<GroupSecret> {
        Vec::new()
    }

    /// The place of the note that an authority was founded under this KEK, if one was. The note is kept
    /// with the KEK and not with the ledger, so that the loss of the ledger does not silently found a new
    /// authority.
    fn founding_note(&self) -> Result<Option<String>, NoteError>;

    /// Writes the note of the founding durably, if there is none yet; `text` is its content.
    fn note_founding(&self, text: &str) -> Result<(), NoteError>;
}

/// The id of a KEK that seals a private key in `ledger` and is not among `keys`, if there is one.
pub fn missing_key(ledger: &Ledger, keys: &dyn KeyEncryption) -> Option<String> {
    let mut sealed_with = ledger.keys().map(|(_, _, key)| &key.encryption_key);
    sealed_with.find(|id| !keys.opens(id)).cloned()
}

/// The note of the founding cannot be read or written.
#[derive(Debug, Error)]
#[error("cannot {action} {}, which notes that an authority was founded", .path.display())]
pub struct NoteError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// A KEK in a file.
pub struct LocalKey {
    id: String,
    key: LessSafeKey,
    group_secret: GroupSecret,
    entropy: Arc<dyn Entropy>,
    file: PathBuf,
    place: KeyPlace,
}

/// The id of a KEK. 64 bits of a hash of 256 random bits distinguish KEKs and reveal none.
fn id_of(key: &[u8; 32]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(b"smc key-encryption key id\0");
    hash.update(key);
    truncated(&HEXLOWER.encode(hash.finish().as_ref()), 16)
}

impl LocalKey {
    fn new(bytes: &[u8; 32], entropy: Arc<dyn Entropy>, file: &Path) -> Result<Self, NoEntropy> {
        let id = id_of(bytes);
        // 32 bytes are always a valid key; ring's type cannot express that.
        let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| NoEntropy)?;
        let group_secret = GroupSecret::derived_from(bytes, b"smc replicas 1").map_err(|_| NoEntropy)?;
        let (key, file) = (LessSafeKey::new(key), file.to_owned());
        Ok(Self { id, key, group_secret, entropy, file, place: KeyPlace::File })
    }
}

impl std::fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl KeyEncryption for LocalKey {
    fn id(&self) -> &str {
        &self.id
    }

    fn seal(&self, context: SealContext<'_>, key: &[u8]) -> Result<SealedKey, SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.entropy.fill(&mut nonce)?;
        // Encrypted in place, so that no copy of the plaintext stays in memory.
        let mut text = Zeroizing::new(Vec::with_capacity(key.len()));
        text.extend_from_slice(key);
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad(context), &mut text)
            .map_err(|_| SealError::Refused)?;
        let sealed = [&nonce, text.as_slice(), tag.as_ref()].concat();
        Ok(SealedKey { encryption_key: self.id.clone(), sealed })
    }

    fn open(&self, context: SealContext<'_>, sealed: &SealedKey) -> Result<Zeroizing<Vec<u8>>, SealError> {
        if sealed.encryption_key != self.id {
            return Err(SealError::OtherKey {
                sealed_with: sealed.encryption_key.clone(),
                at_hand: self.id.clone(),
            });
        }
        let (nonce, text) = sealed.sealed.split_at_checked(NONCE_LEN).ok_or(SealError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Refused)?;
        let mut text = Zeroizing::new(text.to_vec());
        let length =
            self.key.open_in_place(nonce, aad(context), &mut text).map_err(|_| SealError::Refused)?.len();
        text.truncate(length);
        Ok(text)
    }

    fn group_secret(&self) -> GroupSecret {
        self.group_secret.clone()
    }

    fn founding_note(&self) -> Result<Option<String>, NoteError> {
        if self.place == KeyPlace::Mounted {
            return Ok(None);
        }
        let path = key_file::founding_note(&self.file);
        match path.try_exists() {
            Ok(there) => Ok(there.then(|| path.display().to_string())),
            Err(source) => Err(NoteError { action: "look for", path, source }),
        }
    }

    fn note_founding(&self, text: &str) -> Result<(), NoteError> {
        if self.place == KeyPlace::Mounted {
            return Ok(());
        }
        let path = key_file::founding_note(&self.file);
        match key_file::write_new(&path, text, 0o644) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                Err(NoteError { action: "write", path, source })
            }
            _ => Ok(()),
        }
    }
}

/// The additional authenticated data. The name comes last, so that no two contexts encode to the same bytes.
fn aad(context: SealContext<'_>) -> Aad<Vec<u8>> {
    let purpose: &[u8] = match context.purpose {
        Purpose::Root => b"root",
        Purpose::Issuing => b"issuing",
        Purpose::Service => b"service",
        Purpose::Gateway => b"gateway",
    };
    Aad::from(
        [b"smc sealed key 1\0", purpose, b"\0", context.serial.as_bytes(), context.name.as_bytes()].concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_host::env::fixed::SeededEntropy;

    fn key(byte: u8) -> LocalKey {
        LocalKey::new(&[byte; 32], Arc::new(SeededEntropy::new(1)), Path::new("kek")).unwrap()
    }

    fn context(name: &str, serial: u8) -> SealContext<'_> {
        SealContext { purpose: Purpose::Service, name, serial: SerialNumber::draw([serial; 16]) }
    }

    #[test]
    fn a_sealed_key_opens_in_its_own_context_alone() {
        let kek = key(1);
        let sealed = kek.seal(context("a/b", 1), b"secret").unwrap();
        assert_eq!(**kek.open(context("a/b", 1), &sealed).unwrap(), *b"secret");
        let issuing = SealContext { purpose: Purpose::Issuing, ..context("a/b", 1) };
        for other in [context("a/c", 1), context("a/b", 2), issuing] {
            assert_eq!(kek.open(other, &sealed), Err(SealError::Refused), "{other:?}");
        }
    }

    #[test]
    fn a_damaged_sealed_key_does_not_open() {
        let kek = key(1);
        let good = kek.seal(context("a/b", 1), b"secret").unwrap();
        for cut in 0..good.sealed.len() {
            let mut short = good.clone();
            short.sealed.truncate(cut);
            assert_eq!(kek.open(context("a/b", 1), &short), Err(SealError::Refused), "cut at {cut}");
            let mut flipped = good.clone();
            flipped.sealed[cut] ^= 1;
            assert_eq!(kek.open(context("a/b", 1), &flipped), Err(SealError::Refused), "flipped at {cut}");
        }
    }

    #[test]
    fn another_key_encryption_key_is_named_as_such() {
        let sealed = key(1).seal(context("a/b", 1), b"secret").unwrap();
        let error = key(2).open(context("a/b", 1), &sealed).unwrap_err();
        assert!(matches!(error, SealError::OtherKey { .. }), "{error}");
    }

    #[test]
    fn the_same_key_sealed_twice_looks_different_and_debug_shows_neither() {
        let kek = key(1);
        let seal = || kek.seal(context("a/b", 1), b"secret").unwrap();
        let (first, second) = (seal(), seal());
        assert_ne!(first.sealed, second.sealed);
        assert!(!first.sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(format!("{kek:?}"), format!("LocalKey {{ id: {:?}, .. }}", kek.id()));
    }
}
