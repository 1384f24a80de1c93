//! The effect of the command for service certificates.
//!
//! Owns when a certificate replaces another one. Once the group has agreed on a time, it decides
//! whether the current certificate is due: replicas whose clocks differ do not replace each other's
//! certificates in turns.

use std::sync::Arc;

use super::bounds::{CLOCK_TOLERANCE, MAX_SERVICE_ACCOUNTS, MAX_SERVICE_ACCOUNTS_PER_NAMESPACE};
use super::command::RecordServiceCertificate;
use super::outcome::{Outcome, Rejection, Reply};
use super::record::{ServiceCertificateRecord, SupersededCertificate};
use super::state::{Ledger, ServiceCertificates};
use crate::pki::renewal_time;
use smc_types::time::Timestamp;

impl Ledger {
    pub(super) fn record_service(&mut self, command: &RecordServiceCertificate, at: Timestamp) -> Outcome {
        let RecordServiceCertificate { account, replaces, record, requested } = command;
        self.check_with_key(record, at)?;
        if let Some(current) = self.service_certificate(account) {
            if *replaces != Some(current.serial) {
                return Err(Rejection::ServiceCertificateConflict {
                    account: account.clone(),
                    current: current.serial,
                });
            }
            if !requested && !self.is_due(current, record) {
                return Err(Rejection::NotDue { account: account.clone(), current: current.serial });
            }
        }
        let full = self.services.len() >= MAX_SERVICE_ACCOUNTS;
        // An older version does not know this bound: it begins with the rules that need an agreed time.
        let crowded = self.agreed_time().is_some()
            && !self.services.contains_key(account)
            && self.service_places(account.namespace()) == 0;
        match self.services.get_mut(account).map(Arc::make_mut) {
            Some(certificates) => {
                let current = &certificates.current;
                certificates.superseded.push(SupersededCertificate {
                    serial: current.serial,
                    validity: current.validity,
                    issuer: current.issuer,
                });
                certificates.current = (**record).clone();
                if let Some(serial) = certificates.forget_one() {
                    self.serials.remove(&serial);
                }
            }
            None if full => {
                return Err(Rejection::Full { what: "service certificates", max: MAX_SERVICE_ACCOUNTS });
            }
            None if crowded => {
                let (what, max) =
                    ("service certificates of one namespace", MAX_SERVICE_ACCOUNTS_PER_NAMESPACE);
                return Err(Rejection::Full { what, max });
            }
            None => {
                let current = (**record).clone();
                let certificates = ServiceCertificates { current, superseded: Vec::new() };
                self.services.insert(account.clone(), Arc::new(certificates));
            }
        }
        self.serials.insert(record.serial);
        Ok(Reply::Recorded)
    }

    /// Whether `new` may replace `current`: by the group's time the current one is not valid or near
    /// its renewal, another CA signs by now, or lifetimes were shortened, so that the new one ends
    /// first. One that was issued before the current one ends first, too, without shorter lifetimes: its
    /// issuer's clock is behind, and finds the current one not yet valid.
    fn is_due(&self, current: &ServiceCertificateRecord, new: &ServiceCertificateRecord) -> bool {
        let Some(now) = self.agreed_time() else { return true };
        let renewal = renewal_time(&current.serial, current.issued_at, &current.validity);
        !current.validity.contains(now)
            || renewal <= now.plus(CLOCK_TOLERANCE)
            || new.issuer != current.issuer
            || (new.validity.not_after < current.validity.not_after && new.issued_at >= current.issued_at)
    }
}
