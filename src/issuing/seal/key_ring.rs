//! Several key-encryption keys at once, while one replaces another.
//!
//! Owns their roles: the first key seals and authenticates this replica; every key opens sealed keys and
//! authenticates other replicas. So replicas may be restarted with the next key one by one.

use std::path::Path;
use std::sync::Arc;

use smc_authority::pki::SealedKey;
use smc_host::env::Env;
use smc_raft::GroupSecret;
use zeroize::Zeroizing;

use super::{KeyEncryption, KeyFileError, KeyPlace, LocalKey, NoteError, SealContext, SealError};

/// A key that seals, and other keys that are accepted.
pub struct KeyRing {
    first: Arc<dyn KeyEncryption>,
    others: Vec<Arc<dyn KeyEncryption>>,
}

impl KeyRing {
    /// A ring of the first key and other accepted keys.
    pub fn new(first: Arc<dyn KeyEncryption>, others: Vec<Arc<dyn KeyEncryption>>) -> Self {
        Self { first, others }
    }

    /// Loads the keys from files that the platform mounts. Blocks.
    pub fn mounted(first: &Path, others: &[impl AsRef<Path>], env: &Env) -> Result<Self, KeyFileError> {
        let load = |path: &Path| LocalKey::load_from(KeyPlace::Mounted, path, env);
        let other = |path: &_| load(AsRef::as_ref(path)).map(|key| Arc::new(key) as _);
        let others = others.iter().map(other).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(Arc::new(load(first)?), others))
    }

    /// Loads the keys from their files. Creates the first if it is missing and `create` is set, but never
    /// beside others: each replica would create a key of its own, and no other could open what it seals.
    /// Blocks.
    pub fn load(
        first: &Path,
        others: &[impl AsRef<Path>],
        create: bool,
        env: &Env,
    ) -> Result<Self, KeyFileError> {
        let other = |path: &_| LocalKey::load(AsRef::as_ref(path), env).map(|key| Arc::new(key) as _);
        let others = others.iter().map(other).collect::<Result<Vec<_>, _>>()?;
        let first = LocalKey::load_or_create(first, create && others.is_empty(), env)?;
        Ok(Self::new(Arc::new(first), others))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn KeyEncryption>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl KeyEncryption for KeyRing {
    fn id(&self) -> &str {
        self.first.id()
    }

    fn opens(&self, id: &str) -> bool {
        self.all().any(|key| key.opens(id))
    }

    fn seal(&self, context: SealContext<'_>, key: &[u8]) -> Result<SealedKey, SealError> {
        self.first.seal(context, key)
    }

    fn open(&self, context: SealContext<'_>, sealed: &SealedKey) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let fitting = self.all().find(|key| key.opens(&sealed.encryption_key));
        fitting.unwrap_or(&self.first).open(context, sealed)
    }

    fn group_secret(&self) -> GroupSecret {
        self.first.group_secret()
    }

    fn other_group_secrets(&self) -> Vec<GroupSecret> {
        self.others.iter().map(|key| key.group_secret()).collect()
    }

    fn founding_note(&self) -> Result<Option<String>, NoteError> {
        for key in self.all() {
            if let Some(note) = key.founding_note()? {
                return Ok(Some(note));
            }
        }
        Ok(None)
    }

    fn note_founding(&self, text: &str) -> Result<(), NoteError> {
        self.first.note_founding(text)
    }
}

#[cfg(test)]
mod tests {
    use smc_authority::pki::SerialNumber;
    use tempfile::TempDir;

    use super::super::Purpose;
    use super::*;

    fn context() -> SealContext<'static> {
        SealContext { purpose: Purpose::Root, name: "cluster.local", serial: SerialNumber::draw([1; 16]) }
    }

    fn ring(dir: &TempDir, first: &str, others: &[&str]) -> KeyRing {
        let env = Env::system();
        let others: Vec<_> = others.iter().map(|name| dir.path().join(name)).collect();
        KeyRing::load(&dir.path().join(first), &others, true, &env).unwrap()
    }

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let dir = TempDir::new().unwrap();
        let (old, new) = (ring(&dir, "old", &[]), ring(&dir, "new", &[]));
        let sealed = old.seal(context(), b"a key").unwrap();
        assert!(matches!(new.open(context(), &sealed), Err(SealError::OtherKey { .. })));
        let both = ring(&dir, "new", &["old"]);
        assert_eq!(**both.open(context(), &sealed).unwrap(), *b"a key");
        let again = both.seal(context(), b"a key").unwrap();
        assert_eq!(again.encryption_key, new.id());
        assert_eq!(**new.open(context(), &again).unwrap(), *b"a key");
        assert!(old.open(context(), &again).is_err());
    }

    #[test]
    fn a_founding_under_any_of_them_is_a_founding() {
        let dir = TempDir::new().unwrap();
        let (old, _new) = (ring(&dir, "old", &[]), ring(&dir, "new", &[]));
        assert_eq!(ring(&dir, "new", &["old"]).founding_note().unwrap(), None);
        old.note_founding("founded").unwrap();
        let both = ring(&dir, "new", &["old"]);
        assert!(both.founding_note().unwrap().is_some());
        both.note_founding("founded").unwrap();
        assert!(ring(&dir, "new", &[]).founding_note().unwrap().is_some());
    }

    #[test]
    fn no_key_is_made_beside_another_one() {
        let dir = TempDir::new().unwrap();
        let env = Env::system();
        ring(&dir, "old", &[]);
        for (first, other) in [("new", "old"), ("new", "missing")] {
            let (first, other) = (dir.path().join(first), dir.path().join(other));
            let refused = KeyRing::load(&first, &[other], true, &env);
            assert!(matches!(refused, Err(KeyFileError::Missing(_))));
            assert!(!first.exists());
        }
    }
}
