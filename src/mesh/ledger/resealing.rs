//! Private keys that are sealed anew, when one key-encryption key takes the place of another.
//!
//! Owns which sealed keys there are, and their exchange. Refuses to know how a key is sealed: it only sees that the
//! certificate it belongs to is still the same.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::apply::{check_key, check_len};
use super::bounds::MAX_RESEALED_TOGETHER;
use super::command::{Rejection, Reply};
use super::state::Ledger;
use crate::ids::{ServiceAccountId, TrustDomain};
use crate::pki::{SealedKey, SerialNumber};

/// Whose certificate a private key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// A root of this trust domain.
    Root(&'a TrustDomain),
    /// An issuing CA of it.
    Issuing(&'a TrustDomain),
    /// A workload identity.
    Service(&'a ServiceAccountId),
}

/// A private key, sealed anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResealedKey {
    /// The identity of its certificate; `None` if it is a CA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<ServiceAccountId>,
    /// The serial number of its certificate.
    pub serial: SerialNumber,
    /// The key.
    pub key: SealedKey,
}

impl Ledger {
    /// All private keys on record, those of CAs first.
    pub fn keys(&self) -> impl Iterator<Item = (Owner<'_>, SerialNumber, &SealedKey)> + '_ {
        let cas = self.authority.iter().flat_map(|authority| {
            let domain = &authority.trust_domain;
            let roots =
                std::iter::once(&authority.root).chain(authority.next_root.iter().map(|next| &next.ca));
            let issuing = std::iter::once(&authority.issuing).chain(authority.vouching.as_deref());
            let roots = roots.map(move |ca| (Owner::Root(domain), ca.serial, &ca.key));
            roots.chain(issuing.map(move |ca| (Owner::Issuing(domain), ca.serial, &ca.key)))
        });
        let services = self
            .services
            .iter()
            .map(|(account, held)| (Owner::Service(account), held.current.serial, &held.current.key));
        cas.chain(services)
    }

    /// Exchanges keys whose certificates are still current. Those that were replaced meanwhile are passed over.
    pub(super) fn reseal(&mut self, resealed: &[ResealedKey]) -> Result<Reply, Rejection> {
        check_len("the list of keys", resealed.len(), MAX_RESEALED_TOGETHER)?;
        for ResealedKey { key, .. } in resealed {
            check_key(key)?;
        }
        let mut keys = 0;
        for ResealedKey { account, serial, key } in resealed {
            if let Some(recorded) = self.key_of(account.as_ref(), *serial) {
                recorded.clone_from(key);
                keys += 1;
            }
        }
        Ok(Reply::Resealed { keys })
    }

    fn key_of(&mut self, account: Option<&ServiceAccountId>, serial: SerialNumber) -> Option<&mut SealedKey> {
        if let Some(account) = account {
            let current = &mut Arc::make_mut(self.services.get_mut(account)?).current;
            return (current.serial == serial).then_some(&mut current.key);
        }
        let authority = self.authority.as_mut()?;
        let next = authority.next_root.as_mut().map(|next| &mut next.ca);
        let vouching = authority.vouching.as_deref_mut();
        let cas = [Some(&mut authority.root), Some(&mut authority.issuing), next, vouching];
        cas.into_iter().flatten().find(|ca| ca.serial == serial).map(|ca| &mut ca.key)
    }
}
