//! The effect of the commands that replace an issuing CA or a root.
//!
//! Owns the conditions of each step. Every replica checks them on the same state, so replicas may
//! propose concurrently, any replica can go on after a crash, and no order of proposals ends the
//! trust in a certificate that is alive. The time is the command's own: a single wrong clock can
//! push the ledger's ahead for good.

use std::collections::BTreeSet;

use super::authority::{Authority, CaCertificate, FormerIssuing, FormerRoot, NextRoot};
use super::bounds::{MAX_ACKNOWLEDGING, MAX_FORMER_ISSUING, MAX_PEM_LEN, check_key, check_len, check_within};
use super::command::NameRoot;
use super::outcome::{Outcome, Rejection, Reply};
use super::rules::Rules;
use super::state::Ledger;
use crate::pki::{SerialNumber, Validity};
use smc_types::time::Timestamp;

impl Ledger {
    fn founded(&self) -> Result<&Authority, Rejection> {
        self.authority.as_ref().ok_or(Rejection::NotFounded)
    }

    /// Checks the conditions for every new CA.
    fn check_ca(&self, ca: &CaCertificate, issuer: &Validity, at: Timestamp) -> Result<(), Rejection> {
        check_len("the certificate of a CA", ca.certificate_pem.len(), MAX_PEM_LEN)?;
        check_key(&ca.key)?;
        if self.serials.contains(&ca.serial) {
            return Err(Rejection::DuplicateSerial(ca.serial));
        }
        check_within(ca.serial, &ca.validity, issuer)?;
        if ca.validity.contains(at) { Ok(()) } else { Err(Rejection::CaNotValid(ca.serial)) }
    }

    pub(super) fn rotate_issuing(
        &mut self,
        replaces: SerialNumber,
        issuing: &CaCertificate,
        at: Timestamp,
    ) -> Outcome {
        let authority = self.founded()?;
        let current = authority.issuing.serial;
        if current == issuing.serial {
            return Ok(Reply::AuthorityUnchanged);
        }
        if current != replaces {
            return Err(Rejection::CaConflict { expected: replaces, current });
        }
        if authority.former_issuing.len() >= MAX_FORMER_ISSUING {
            return Err(Rejection::Full { what: "former issuing CAs", max: MAX_FORMER_ISSUING });
        }
        self.check_ca(issuing, &authority.root.validity, at)?;
        self.serials.insert(issuing.serial);
        if let Some(authority) = &mut self.authority {
            let former = std::mem::replace(&mut authority.issuing, issuing.clone());
            authority.former_issuing.push(former_issuing(&former, authority.root.serial));
            authority.signing_since = Some(at);
        }
        Ok(Reply::AuthorityChanged)
    }

    pub(super) fn trust_root(
        &mut self,
        beside: SerialNumber,
        root: &CaCertificate,
        at: Timestamp,
    ) -> Outcome {
        let authority = self.founded()?;
        if authority.trusted_roots().any(|trusted| trusted == root.serial) {
            return Ok(Reply::AuthorityUnchanged);
        }
        // A next root that is not valid was made by a wrong clock and has signed nothing: it is
        // replaced.
        let replaced = authority.next_root.as_ref().map(|next| &next.ca);
        if let Some(next) = replaced.filter(|next| next.validity.contains(at)) {
            return Err(Rejection::RootRotating(next.serial));
        }
        let replaced = replaced.map(|next| next.serial);
        if let Some(former) = &authority.former_root {
            return Err(Rejection::RootRotating(former.serial));
        }
        let current = authority.root.serial;
        if current != beside {
            return Err(Rejection::CaConflict { expected: beside, current });
        }
        self.check_ca(root, &root.validity, at)?;
        // Certificates that are recorded later are sent together with the new root, on every
        // replica.
        let old_trust_ends = self.last_service_end(at).map_or(at, |end| end.max(at));
        self.serials.insert(root.serial);
        if let Some(replaced) = replaced {
            self.serials.remove(&replaced);
        }
        if let Some(authority) = &mut self.authority {
            authority.declared_roots.retain(|root, _| Some(*root) != replaced);
            authority.next_root = Some(Box::new(NextRoot {
                ca: root.clone(),
                trusted_since: at,
                old_trust_ends,
                acknowledged: BTreeSet::new(),
                hastened: false,
            }));
        }
        Ok(Reply::AuthorityChanged)
    }

    pub(super) fn acknowledge_root(&mut self, replica: u64, root: SerialNumber) -> Outcome {
        let last_end = self.last_service_end(self.now());
        let authority = self.authority.as_mut().ok_or(Rejection::NotFounded)?;
        if authority.root.serial == root {
            return Ok(Reply::AuthorityUnchanged);
        }
        let next = authority.next_root.as_mut().filter(|next| next.ca.serial == root);
        let next = next.ok_or(Rejection::UnknownCa(root))?;
        if next.acknowledged.contains(&replica) {
            return Ok(Reply::AuthorityUnchanged);
        }
        if next.acknowledged.len() >= MAX_ACKNOWLEDGING {
            return Err(Rejection::Full {
                what: "replicas that acknowledged a root",
                max: MAX_ACKNOWLEDGING,
            });
        }
        next.acknowledged.insert(replica);
        // A proxy that refused the root and then disconnected is not covered by the
        // acknowledgement.
        next.old_trust_ends = last_end.map_or(next.old_trust_ends, |end| end.max(next.old_trust_ends));
        Ok(Reply::AuthorityChanged)
    }

    /// Gives up a next root. Nothing is signed under it, so nothing loses its trust.
    pub(super) fn cancel_root(&mut self, root: SerialNumber) -> Outcome {
        self.next_root(root)?;
        self.serials.remove(&root);
        if let Some(authority) = &mut self.authority {
            authority.next_root = None;
            authority.declared_roots.remove(&root);
        }
        Ok(Reply::AuthorityChanged)
    }

    /// Lets a next root sign without waiting for the service certificates from before its trust. Who
    /// holds one and was not connected since cannot verify peers until it connects again; its own
    /// certificate stays trusted.
    pub(super) fn hasten_root(&mut self, root: SerialNumber) -> Outcome {
        if self.next_root(root)?.hastened {
            return Ok(Reply::AuthorityUnchanged);
        }
        if let Some(next) = self.authority.as_mut().and_then(|authority| authority.next_root.as_mut()) {
            next.hastened = true;
        }
        Ok(Reply::AuthorityChanged)
    }

    /// The next root, if it is this one and the group has agreed on a time.
    fn next_root(&self, root: SerialNumber) -> Result<&NextRoot, Rejection> {
        let authority = self.founded()?;
        if self.agreed_time().is_none() {
            return Err(Rejection::NoAgreedTime);
        }
        let next = authority.next_root.as_deref().filter(|next| next.ca.serial == root);
        next.ok_or(Rejection::UnknownCa(root))
    }

    pub(super) fn sign_with_next_root(
        &mut self,
        root: SerialNumber,
        replicas: &BTreeSet<u64>,
        issuing: &CaCertificate,
        at: Timestamp,
    ) -> Outcome {
        let authority = self.founded()?;
        if authority.root.serial == root {
            return Ok(Reply::AuthorityUnchanged);
        }
        let next = authority.next_root.as_ref().filter(|next| next.ca.serial == root);
        let next = next.ok_or(Rejection::UnknownCa(root))?;
        check_len("the list of replicas", replicas.len(), MAX_ACKNOWLEDGING)?;
        if let Some(&replica) = replicas.difference(&next.acknowledged).next() {
            return Err(Rejection::NotAcknowledged { root, replica });
        }
        if replicas.is_empty() {
            return Err(Rejection::UnknownCa(root));
        }
        if next.old_trust_ends >= at && !next.hastened {
            return Err(Rejection::StillNeeded { ca: authority.root.serial, until: next.old_trust_ends });
        }
        self.check_ca(issuing, &next.ca.validity, at)?;
        self.serials.insert(issuing.serial);
        if let Some(authority) = &mut self.authority
            && let Some(next) = authority.next_root.take()
        {
            let root = std::mem::replace(&mut authority.root, next.ca);
            let old_issuing = std::mem::replace(&mut authority.issuing, issuing.clone());
            authority.former_issuing.push(former_issuing(&old_issuing, root.serial));
            authority.controller_issuer = Some(Box::new(old_issuing));
            let CaCertificate { serial, validity, certificate_pem, .. } = root;
            authority.former_root = Some(FormerRoot { serial, validity, certificate_pem });
            authority.signing_since = Some(at);
        }
        Ok(Reply::AuthorityChanged)
    }

    pub(super) fn end_controller_issuer(&mut self, issuing: SerialNumber, at: Timestamp) -> Outcome {
        let authority = self.founded()?;
        let signs = authority.is_controller_issuer(issuing);
        let Some(former) = authority.former_root.as_ref().filter(|_| signs) else {
            return Ok(Reply::AuthorityUnchanged);
        };
        if let Some(until) = self.last_proxy_end_under(former.serial, at) {
            return Err(Rejection::StillNeeded { ca: issuing, until });
        }
        if let Some(authority) = &mut self.authority {
            authority.controller_issuer = None;
        }
        Ok(Reply::AuthorityChanged)
    }

    pub(super) fn retire_ca(&mut self, ca: SerialNumber, at: Timestamp) -> Outcome {
        let authority = self.founded()?;
        let is_former_root = authority.former_root.as_ref().is_some_and(|former| former.serial == ca);
        let is_former_issuing = authority.former_issuing.iter().any(|former| former.serial == ca);
        if is_former_root {
            let under = authority.former_issuing.iter().filter(|former| former.root == ca);
            if let Some(until) = under.map(|former| former.validity.not_after).max() {
                return Err(Rejection::StillNeeded { ca, until });
            }
        } else if is_former_issuing {
            if let Some(issuer) = authority.controller_issuer.as_ref().filter(|issuer| issuer.serial == ca) {
                return Err(Rejection::StillNeeded { ca, until: issuer.validity.not_after });
            }
            if let Some(until) = self.signed(at).get(&ca).and_then(|signed| signed.last_end) {
                return Err(Rejection::StillNeeded { ca, until });
            }
        } else if self.serials.contains(&ca) {
            return Err(Rejection::UnknownCa(ca));
        } else {
            return Ok(Reply::AuthorityUnchanged);
        }
        self.serials.remove(&ca);
        if let Some(authority) = &mut self.authority {
            authority.former_root.take_if(|former| former.serial == ca);
            authority.former_issuing.retain(|former| former.serial != ca);
            authority.declared_roots.remove(&ca);
        }
        Ok(Reply::AuthorityChanged)
    }
}

impl Ledger {
    /// Notes which object declares a trusted root.
    pub(super) fn name_root(&mut self, command: &NameRoot) -> Outcome {
        let NameRoot { root, object } = command;
        self.check_rules(Rules::Fifth)?;
        let authority = self.authority.as_mut().ok_or(Rejection::NotFounded)?;
        if !authority.trusted_roots().any(|trusted| trusted == *root) {
            return Err(Rejection::UnknownCa(*root));
        }
        if authority.declared_by(*root) == Some(object) {
            return Ok(Reply::AuthorityUnchanged);
        }
        authority.declared_roots.retain(|_, by| by != object);
        authority.declared_roots.insert(*root, object.clone());
        Ok(Reply::AuthorityChanged)
    }
}

fn former_issuing(ca: &CaCertificate, root: SerialNumber) -> FormerIssuing {
    FormerIssuing { serial: ca.serial, validity: ca.validity, root }
}
