//! The effect of each command.
//!
//! Owns the conditions that all leaf certificates share, and dispatches the commands. Every check
//! comes before the first change: a rejected command changes nothing but the ledger's time.

use std::sync::Arc;

use super::authority::{Authority, SignedFor};
use super::bounds::{
    MAX_CONTROLLER_CERTIFICATES, MAX_PEM_LEN, MAX_PROXY_CERTIFICATES, MAX_RELEASED_TOGETHER, check_key,
    check_len, check_names, check_within,
};
use super::command::{
    AcknowledgeRoot, AgreeOnTime, CancelRoot, Command, EndControllerIssuer, HastenRoot, Operation,
    RecordControllerCertificate, RecordProxyCertificate, RotateIssuing, SignWithNextRoot, TrustRoot,
};
use super::outcome::{Outcome, Rejection, Reply};
use super::record::{
    ControllerCertificateRecord, ProxyCertificateRecord, ProxyCertificateState, ServiceCertificateRecord,
};
use super::signed::is_ended;
use super::state::{Ledger, ServiceCertificates};
use crate::pki::{SerialNumber, Validity};
use smc_types::time::Timestamp;

impl Ledger {
    /// Applies one command, and returns its effect or the reason for its rejection. A function of
    /// the state and the command alone.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        self.apply_within(command, MAX_PROXY_CERTIFICATES)
    }

    /// As [`Ledger::apply`], with another bound on the number of proxy certificates on record.
    pub(super) fn apply_within(&mut self, command: &Command, max_proxies: usize) -> Outcome {
        let at = command.at;
        self.now.observe(at);
        self.check_clock(&command.operation, at)?;
        match &command.operation {
            Operation::InitAuthority(authority) => self.init_authority(authority),
            Operation::RecordServiceCertificate(command) => self.record_service(command, at),
            Operation::RecordProxyCertificate(RecordProxyCertificate {
                serial,
                proxy,
                service_account,
                validity,
                issuer,
                fingerprint,
            }) => {
                let record = ProxyCertificateRecord {
                    proxy: proxy.clone(),
                    service_account: service_account.clone(),
                    validity: *validity,
                    issued_at: self.now(),
                    issuer: *issuer,
                    fingerprint: *fingerprint,
                    number: 0,
                    state: ProxyCertificateState::Unclaimed,
                };
                self.record_proxy(*serial, record, at, max_proxies)
            }
            Operation::RecordControllerCertificate(RecordControllerCertificate { serial, record }) => {
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
            Operation::ForgetServices(unused) => self.forget_services(unused),
            Operation::RecordGatewayCertificate(command) => self.record_gateway(command, at),
            Operation::ForgetGateway(command) => self.forget_gateway(command),
            Operation::RotateIssuing(RotateIssuing { replaces, issuing }) => {
                self.rotate_issuing(*replaces, issuing, at)
            }
            Operation::TrustRoot(TrustRoot { beside, root }) => self.trust_root(*beside, root, at),
            Operation::AcknowledgeRoot(AcknowledgeRoot { replica, root }) => {
                self.acknowledge_root(*replica, *root)
            }
            Operation::SignWithNextRoot(SignWithNextRoot { root, replicas, issuing }) => {
                self.sign_with_next_root(*root, replicas, issuing, at)
            }
            Operation::EndControllerIssuer(EndControllerIssuer { issuing }) => {
                self.end_controller_issuer(*issuing, at)
            }
            Operation::RetireCa(ca) => self.retire_ca(*ca, at),
            Operation::Rekey(keys) => self.rekey(keys),
            Operation::AgreeOnTime(AgreeOnTime { clocks }) => self.agree_on_time(clocks),
            Operation::CancelRoot(CancelRoot { root }) => self.cancel_root(*root),
            Operation::HastenRoot(HastenRoot { root }) => self.hasten_root(*root),
            Operation::NameRoot(command) => self.name_root(command),
            Operation::SetReplicaPhase(command) => self.set_replica_phase(command),
            Operation::ForgetReplica(command) => self.forget_replica(command),
            Operation::UseRules(rules) => self.use_rules(*rules),
        }
    }

    fn init_authority(&mut self, authority: &Authority) -> Outcome {
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
        // Fields for rotations are ignored: none is under way at the founding.
        self.authority = Some(Authority::new(trust_domain.clone(), root.clone(), issuing.clone()));
        Ok(Reply::Founded)
    }

    fn record_controller(
        &mut self,
        serial: SerialNumber,
        record: &ControllerCertificateRecord,
        at: Timestamp,
    ) -> Outcome {
        check_names(record.names.iter())?;
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

    /// Uses the command's own time: a single wrong clock can push the ledger's ahead for good.
    fn prune(&mut self, now: Timestamp) -> Reply {
        let before = self.serials.len();
        let ended = self.proxies.iter().filter(|(_, record)| self.is_proxy_prunable(record, now));
        let ended: Vec<_> = ended.map(|(serial, _)| *serial).collect();
        self.forget_all(&ended);
        let ended = self.controllers.iter().filter(|(_, record)| is_ended(&record.validity, now));
        for serial in ended.map(|(serial, _)| *serial).collect::<Vec<_>>() {
            self.controllers.remove(&serial);
            self.serials.remove(&serial);
        }
        let ended = self.services.iter().filter(|(_, certificates)| service_is_prunable(certificates, now));
        for account in ended.map(|(account, _)| account.clone()).collect::<Vec<_>>() {
            let Some(certificates) = self.services.get_mut(&account).map(Arc::make_mut) else { continue };
            certificates.superseded.retain(|old| {
                let keep = !is_ended(&old.validity, now);
                if !keep {
                    self.serials.remove(&old.serial);
                }
                keep
            });
            if service_is_prunable(certificates, now) {
                self.serials.remove(&certificates.current.serial);
                self.services.remove(&account);
            }
        }
        self.forgotten.forget_ended(now);
        Reply::Pruned { certificates: before - self.serials.len() }
    }

    /// Whether [`Operation::Prune`] at `now` would delete anything. Without this check an idle mesh
    /// would write a log.
    pub fn is_prunable(&self, now: Timestamp) -> bool {
        self.proxies.values().any(|record| self.is_proxy_prunable(record, now))
            || self.controllers.values().any(|record| is_ended(&record.validity, now))
            || self.services.values().any(|certificates| service_is_prunable(certificates, now))
            || self.forgotten.has_ended(now)
    }

    /// Checks the conditions for a certificate that is recorded with its key.
    pub(super) fn check_with_key(
        &self,
        record: &ServiceCertificateRecord,
        at: Timestamp,
    ) -> Result<(), Rejection> {
        check_len("the certificate chain", record.chain_pem.len(), MAX_PEM_LEN)?;
        check_key(&record.key)?;
        self.check_issued(SignedFor::Workloads, record.serial, &record.validity, record.issuer, at)
    }

    /// Checks the conditions for every certificate: a fresh serial number, an issuing CA of the
    /// mesh that signs such certificates and has not ended, and a validity within the issuer's, which
    /// contains the time of the group.
    pub(super) fn check_issued(
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
        check_within(serial, validity, &ca.validity)?;
        match self.agreed_time() {
            Some(now) if !validity.contains(now) => Err(Rejection::NotValidNow(serial)),
            _ => Ok(()),
        }
    }
}

/// Whether pruning deletes any of these. Shortened lifetimes let a superseded certificate outlive
/// the current one.
fn service_is_prunable(certificates: &ServiceCertificates, now: Timestamp) -> bool {
    let ServiceCertificates { current, superseded } = certificates;
    superseded.iter().any(|old| is_ended(&old.validity, now))
        || (is_ended(&current.validity, now) && superseded.is_empty())
}
