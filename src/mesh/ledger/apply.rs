//! What each command does. Every check comes before the first change, so a rejected command leaves the
//! state as it was (but for the ledger's time).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::authority::{Authority, SignedFor};
use super::bounds::{
    MAX_CERTIFICATES_PER_PROXY, MAX_CONTROLLER_CERTIFICATES, MAX_NAMES, MAX_PEM_LEN, MAX_PROXY_CERTIFICATES,
    MAX_RELEASED_TOGETHER, MAX_SEALED_LEN, MAX_SERVICE_ACCOUNTS, RELEASED_KEPT,
};
use super::command::{Command, Operation, Rejection, Reply};
use super::record::{
    ControllerCertificateRecord, ProxyCertificateRecord, ProxyCertificateState, ServiceCertificateRecord,
    SupersededCertificate,
};
use super::signed::is_past;
use super::state::{Ledger, ServiceCertificates};
use crate::ids::ServiceAccountId;
use crate::pki::{SealedKey, SerialNumber, Validity};
use crate::time::Timestamp;

impl Ledger {
    /// Applies one command, and says what it did or why it did nothing. A function of the state and the
    /// command alone.
    pub fn apply(&mut self, command: &Command) -> Result<Reply, Rejection> {
        let at = command.at;
        self.now = self.now.max(at);
        match &command.operation {
            Operation::InitAuthority(authority) => self.init_authority(authority),
            Operation::RecordServiceCertificate { account, replaces, record } => {
                self.record_service(account, *replaces, record, at)
            }
            Operation::RecordProxyCertificate {
                serial,
                proxy,
                service_account,
                validity,
                issuer,
                fingerprint,
            } => {
                let record = ProxyCertificateRecord {
                    proxy: proxy.clone(),
                    service_account: service_account.clone(),
                    validity: *validity,
                    issued_at: self.now(),
                    issuer: *issuer,
                    fingerprint: *fingerprint,
                    state: ProxyCertificateState::Unclaimed,
                };
                self.record_proxy(*serial, record, at)
            }
            Operation::RecordControllerCertificate { serial, record } => {
                self.record_controller(*serial, record, at)
            }
            Operation::ClaimProxyCertificate(serial) => self.claim(serial),
            Operation::ReleaseProxy(proxy) => {
                let serials = self.by_proxy.get(proxy).cloned().unwrap_or_default();
                Ok(self.release(Arc::unwrap_or_clone(serials)))
            }
            Operation::ReleaseProxyCertificates(serials) => {
                check_len("the list of serial numbers", serials.len(), MAX_RELEASED_TOGETHER)?;
                Ok(self.release(serials.iter().copied().collect()))
            }
            Operation::Prune => Ok(self.prune(at)),
            Operation::RotateIssuing { replaces, issuing } => self.rotate_issuing(*replaces, issuing, at),
            Operation::TrustRoot { beside, root } => self.trust_root(*beside, root, at),
            Operation::AcknowledgeRoot { replica, root } => self.acknowledge_root(*replica, *root),
            Operation::SignWithNextRoot { root, replicas, issuing } => {
                self.sign_with_next_root(*root, replicas, issuing, at)
            }
            Operation::EndVouching { issuing } => self.end_vouching(*issuing, at),
            Operation::RetireCa(ca) => self.retire_ca(*ca, at),
            Operation::ResealKeys(keys) => self.reseal(keys),
        }
    }

    fn init_authority(&mut self, authority: &Authority) -> Result<Reply, Rejection> {
        if let Some(existing) = &self.authority {
            return Err(Rejection::AlreadyFounded(existing.trust_domain.clone()));
        }
        let Authority { trust_domain, root, issuing, .. } = authority;
        for ca in [root, issuing] {
            check_len("the certificate of a CA", ca.certificate_pem.len(), MAX_PEM_LEN)?;
            check_key(&ca.key)?;
        }
        if root.serial == issuing.serial {
            return Err(Rejection::DuplicateSerial(root.serial));
        }
        check_within(root.serial, &root.validity, &root.validity)?;
        check_within(issuing.serial, &issuing.validity, &root.validity)?;
        self.serials.extend([root.serial, issuing.serial]);
        // Whatever else it says: nothing is being rotated at its founding.
        self.authority = Some(Authority::new(trust_domain.clone(), root.clone(), issuing.clone()));
        Ok(Reply::Founded)
    }

    fn record_service(
        &mut self,
        account: &ServiceAccountId,
        replaces: Option<SerialNumber>,
        record: &ServiceCertificateRecord,
        at: Timestamp,
    ) -> Result<Reply, Rejection> {
        check_len("the certificate chain", record.chain_pem.len(), MAX_PEM_LEN)?;
        check_key(&record.key)?;
        self.check_issued(SignedFor::Workloads, record.serial, &record.validity, record.issuer, at)?;
        let full = self.services.len() >= MAX_SERVICE_ACCOUNTS;
        match self.services.get_mut(account).map(Arc::make_mut) {
            Some(certificates) => {
                let current = &certificates.current;
                if replaces != Some(current.serial) {
                    return Err(Rejection::Superseded { account: account.clone(), current: current.serial });
                }
                certificates.superseded.push(SupersededCertificate {
                    serial: current.serial,
                    validity: current.validity,
                    issuer: current.issuer,
                });
                certificates.current = record.clone();
                if let Some(serial) = certificates.forget_one() {
                    self.serials.remove(&serial);
                }
            }
            None if full => {
                return Err(Rejection::Full { what: "service certificates", max: MAX_SERVICE_ACCOUNTS });
            }
            None => {
                let certificates = ServiceCertificates { current: record.clone(), superseded: Vec::new() };
                self.services.insert(account.clone(), Arc::new(certificates));
            }
        }
        self.serials.insert(record.serial);
        Ok(Reply::Recorded)
    }

    fn record_proxy(
        &mut self,
        serial: SerialNumber,
        record: ProxyCertificateRecord,
        at: Timestamp,
    ) -> Result<Reply, Rejection> {
        self.check_issued(SignedFor::Workloads, serial, &record.validity, record.issuer, at)?;
        if self.proxies.len() >= MAX_PROXY_CERTIFICATES {
            return Err(Rejection::Full { what: "proxy certificates", max: MAX_PROXY_CERTIFICATES });
        }
        let live = self.certificates_of(&record.proxy).filter(|(_, other)| !other.state.is_released());
        if live.count() >= MAX_CERTIFICATES_PER_PROXY {
            return Err(Rejection::Full {
                what: "live certificates of this proxy",
                max: MAX_CERTIFICATES_PER_PROXY,
            });
        }
        Arc::make_mut(self.by_proxy.entry(record.proxy.clone()).or_default()).insert(serial);
        self.serials.insert(serial);
        self.proxies.insert(serial, Arc::new(record));
        Ok(Reply::Recorded)
    }

    fn record_controller(
        &mut self,
        serial: SerialNumber,
        record: &ControllerCertificateRecord,
        at: Timestamp,
    ) -> Result<Reply, Rejection> {
        check_len("the list of names", record.names.len(), MAX_NAMES)?;
        for name in &record.names {
            check_len("a name", name.len(), 253)?;
        }
        self.check_issued(SignedFor::Controllers, serial, &record.validity, record.issuer, at)?;
        if self.controllers.len() >= MAX_CONTROLLER_CERTIFICATES {
            let first =
                self.controllers.iter().min_by_key(|(serial, old)| (old.validity.not_after, **serial));
            if let Some(first) = first.map(|(serial, _)| *serial) {
                self.controllers.remove(&first);
                self.serials.remove(&first);
            }
        }
        self.serials.insert(serial);
        self.controllers.insert(serial, Arc::new(record.clone()));
        Ok(Reply::Recorded)
    }

    fn claim(&mut self, serial: &SerialNumber) -> Result<Reply, Rejection> {
        let at = self.now();
        let record = self.proxies.get_mut(serial).map(Arc::make_mut);
        let record = record.ok_or(Rejection::UnknownProxyCertificate(*serial))?;
        match record.state {
            ProxyCertificateState::Unclaimed => {
                record.state = ProxyCertificateState::Claimed { at };
                Ok(Reply::Claimed { first: true })
            }
            ProxyCertificateState::Claimed { .. } => Ok(Reply::Claimed { first: false }),
            ProxyCertificateState::Released { .. } => Err(Rejection::Released(*serial)),
        }
    }

    fn release(&mut self, mut serials: BTreeSet<SerialNumber>) -> Reply {
        let at = self.now();
        serials.retain(|serial| match self.proxies.get_mut(serial).map(Arc::make_mut) {
            Some(record) if !record.state.is_released() => {
                record.state = ProxyCertificateState::Released { at };
                true
            }
            _ => false,
        });
        Reply::Released { serials: serials.into_iter().collect() }
    }

    /// By the command's own time and not the ledger's, which one wild clock can push ahead for good.
    fn prune(&mut self, now: Timestamp) -> Reply {
        let before = self.serials.len();
        let past = self.proxies.iter().filter(|(_, record)| proxy_is_past(record, now));
        for (serial, record) in past.map(|(serial, record)| (*serial, Arc::clone(record))).collect::<Vec<_>>()
        {
            self.proxies.remove(&serial);
            self.serials.remove(&serial);
            if let Some(serials) = self.by_proxy.get_mut(&record.proxy).map(Arc::make_mut) {
                serials.remove(&serial);
                if serials.is_empty() {
                    self.by_proxy.remove(&record.proxy);
                }
            }
        }
        let past = self.controllers.iter().filter(|(_, record)| is_past(&record.validity, now));
        for serial in past.map(|(serial, _)| *serial).collect::<Vec<_>>() {
            self.controllers.remove(&serial);
            self.serials.remove(&serial);
        }
        let past = self.services.iter().filter(|(_, certificates)| has_past(certificates, now));
        for account in past.map(|(account, _)| account.clone()).collect::<Vec<_>>() {
            let Some(certificates) = self.services.get_mut(&account).map(Arc::make_mut) else { continue };
            certificates.superseded.retain(|old| {
                let keep = !is_past(&old.validity, now);
                if !keep {
                    self.serials.remove(&old.serial);
                }
                keep
            });
            if has_past(certificates, now) {
                self.serials.remove(&certificates.current.serial);
                self.services.remove(&account);
            }
        }
        Reply::Pruned { certificates: before - self.serials.len() }
    }

    /// Whether [`Operation::Prune`] at `now` would forget anything, so that idle meshes write no log.
    pub fn is_prunable(&self, now: Timestamp) -> bool {
        self.proxies.values().any(|record| proxy_is_past(record, now))
            || self.controllers.values().any(|record| is_past(&record.validity, now))
            || self.services.values().any(|certificates| has_past(certificates, now))
    }

    /// What holds for every certificate that is put on record: a fresh serial, an issuing CA of ours that signs such
    /// certificates and has not ended, and a life within that one's.
    fn check_issued(
        &self,
        what: SignedFor,
        serial: SerialNumber,
        validity: &Validity,
        issuer: SerialNumber,
        at: Timestamp,
    ) -> Result<(), Rejection> {
        let authority = self.authority.as_ref().ok_or(Rejection::NotFounded)?;
        let Some(ca) = authority.may_sign(what, issuer) else {
            return Err(match authority.root_of(issuer) {
                Some(_) => Rejection::RetiredIssuer { serial, issuer },
                None => Rejection::UnknownIssuer { serial, issuer },
            });
        };
        if ca.validity.not_after < at {
            return Err(Rejection::CaNotValid(issuer));
        }
        if self.serials.contains(&serial) {
            return Err(Rejection::DuplicateSerial(serial));
        }
        check_within(serial, validity, &ca.validity)
    }
}

pub(super) fn check_within(
    serial: SerialNumber,
    validity: &Validity,
    issuer: &Validity,
) -> Result<(), Rejection> {
    let within = issuer.not_before <= validity.not_before
        && validity.not_before < validity.not_after
        && validity.not_after <= issuer.not_after;
    if within { Ok(()) } else { Err(Rejection::OutlivesIssuer(serial)) }
}

pub(super) fn check_len(what: &'static str, len: usize, max: usize) -> Result<(), Rejection> {
    if len > max { Err(Rejection::TooLong { what, len, max }) } else { Ok(()) }
}

pub(super) fn check_key(key: &SealedKey) -> Result<(), Rejection> {
    check_len("the sealed key", key.sealed.len(), MAX_SEALED_LEN)?;
    check_len("the name of the key-encryption key", key.encryption_key.len(), 256)
}

/// Whether pruning forgets any of these. What was superseded may outlive the current one, if lifetimes were shortened.
fn has_past(certificates: &ServiceCertificates, now: Timestamp) -> bool {
    let ServiceCertificates { current, superseded } = certificates;
    superseded.iter().any(|old| is_past(&old.validity, now))
        || (is_past(&current.validity, now) && superseded.is_empty())
}

fn proxy_is_past(record: &ProxyCertificateRecord, now: Timestamp) -> bool {
    let released_long_ago = match record.state {
        ProxyCertificateState::Released { at } => at.plus(RELEASED_KEPT) < now,
        ProxyCertificateState::Unclaimed | ProxyCertificateState::Claimed { .. } => false,
    };
    released_long_ago || is_past(&record.validity, now)
}
