//! The rekeying of private keys: replacing the key-encryption key that sealed them.
//!
//! Owns the list of sealed keys, and their replacement. Does not know how a key is sealed: it
//! checks only that the certificate of the key is still the same.

use std::sync::Arc;

use super::bounds::{MAX_REKEYED_TOGETHER, check_key, check_len};
use super::outcome::{Outcome, Reply};
use super::record::{KeyOwner, RekeyedKey};
use super::state::Ledger;
use crate::pki::{SealedKey, SerialNumber};
use smc_types::ids::ServiceAccountId;

impl Ledger {
    /// All private keys on record, those of CAs first.
    pub fn keys(&self) -> impl Iterator<Item = (KeyOwner<'_>, SerialNumber, &SealedKey)> + '_ {
        let cas = self.authority.iter().flat_map(|authority| {
            let domain = &authority.trust_domain;
            let roots =
                std::iter::once(&authority.root).chain(authority.next_root.iter().map(|next| &next.ca));
            let issuing = std::iter::once(&authority.issuing).chain(authority.controller_issuer.as_deref());
            let roots = roots.map(move |ca| (KeyOwner::Root(domain), ca.serial, &ca.key));
            roots.chain(issuing.map(move |ca| (KeyOwner::Issuing(domain), ca.serial, &ca.key)))
        });
        let services = self
            .services
            .iter()
            .map(|(account, held)| (KeyOwner::Service(account), held.current.serial, &held.current.key));
        let gateways = self.gateways.iter().map(|(secret, held)| {
            (KeyOwner::Gateway(secret), held.certificate.serial, &held.certificate.key)
        });
        cas.chain(services).chain(gateways)
    }

    /// Replaces keys whose certificates are still current. Skips those whose certificates were
    /// replaced meanwhile.
    pub(super) fn rekey(&mut self, rekeyed: &[RekeyedKey]) -> Outcome {
        check_len("the list of keys", rekeyed.len(), MAX_REKEYED_TOGETHER)?;
        for RekeyedKey { key, .. } in rekeyed {
            check_key(key)?;
        }
        let mut keys = 0;
        for RekeyedKey { account, serial, key } in rekeyed {
            if let Some(recorded) = self.key_of(account.as_ref(), *serial) {
                recorded.clone_from(key);
                keys += 1;
            }
        }
        Ok(Reply::Rekeyed { keys })
    }

    fn key_of(&mut self, account: Option<&ServiceAccountId>, serial: SerialNumber) -> Option<&mut SealedKey> {
        if let Some(account) = account {
            let current = &mut Arc::make_mut(self.services.get_mut(account)?).current;
            return (current.serial == serial).then_some(&mut current.key);
        }
        let gateway = self.gateways.iter().find(|(_, held)| held.certificate.serial == serial);
        if let Some(secret) = gateway.map(|(secret, _)| secret.clone()) {
            return Some(&mut Arc::make_mut(self.gateways.get_mut(&secret)?).certificate.key);
        }
        let authority = self.authority.as_mut()?;
        let next = authority.next_root.as_mut().map(|next| &mut next.ca);
        let controller_issuer = authority.controller_issuer.as_deref_mut();
        let cas = [Some(&mut authority.root), Some(&mut authority.issuing), next, controller_issuer];
        cas.into_iter().flatten().find(|ca| ca.serial == serial).map(|ca| &mut ca.key)
    }
}
