//! Certificates for gateways, which are outside of the mesh and send requests into it.
//!
//! Owns the effect of their commands. A gateway is known by the Secret that its certificate goes to. Its
//! record has the sealed key, so that the Secret can be written again by any replica, and lasts until the
//! Secret is gone, so that a Secret that is not wanted any more is known. What a certificate's issuer is
//! trusted for is kept after it is replaced ([`super::forgotten`]): a gateway may use it until it ends.

use std::sync::Arc;

use smc_types::ids::NamespacedName;

use super::bounds::{MAX_GATEWAYS, check_names};
use super::command::{ForgetGateway, RecordGatewayCertificate};
use super::outcome::{Outcome, Rejection, Reply};
use super::record::GatewayCertificateRecord;
use super::rules::Rules;
use super::state::Ledger;
use smc_types::time::Timestamp;

impl Ledger {
    /// The current certificate of a gateway. It may have ended.
    pub fn gateway_certificate(&self, secret: &NamespacedName) -> Option<&GatewayCertificateRecord> {
        self.gateways.get(secret).map(|record| &**record)
    }

    /// The current certificates of all gateways, sorted by their Secrets.
    pub fn gateway_certificates(
        &self,
    ) -> impl Iterator<Item = (&NamespacedName, &GatewayCertificateRecord)> + '_ {
        self.gateways.iter().map(|(secret, record)| (secret, &**record))
    }

    pub(super) fn record_gateway(&mut self, command: &RecordGatewayCertificate, at: Timestamp) -> Outcome {
        let RecordGatewayCertificate { secret, replaces, record } = command;
        self.check_rules(Rules::Fourth)?;
        check_names(record.names.iter())?;
        self.check_with_key(&record.certificate, at)?;
        match self.gateway_certificate(secret).map(|current| current.certificate.serial) {
            Some(current) if *replaces != Some(current) => {
                return Err(Rejection::GatewayCertificateConflict { secret: secret.clone(), current });
            }
            None if self.gateways.len() >= MAX_GATEWAYS => {
                return Err(Rejection::Full { what: "certificates of gateways", max: MAX_GATEWAYS });
            }
            _ => {}
        }
        if let Some(former) = self.gateways.insert(secret.clone(), Arc::new((**record).clone())) {
            self.end_gateway(&former);
        }
        self.serials.insert(record.certificate.serial);
        Ok(Reply::Recorded)
    }

    pub(super) fn forget_gateway(&mut self, command: &ForgetGateway) -> Outcome {
        let ForgetGateway { secret, serial } = command;
        self.check_rules(Rules::Fourth)?;
        if self.gateway_certificate(secret).is_none_or(|current| current.certificate.serial != *serial) {
            return Ok(Reply::Forgotten { identities: 0 });
        }
        if let Some(former) = self.gateways.remove(secret) {
            self.end_gateway(&former);
        }
        Ok(Reply::Forgotten { identities: 1 })
    }

    /// Keeps of a record that went until when its issuer is needed.
    fn end_gateway(&mut self, former: &GatewayCertificateRecord) {
        let certificate = &former.certificate;
        self.serials.remove(&certificate.serial);
        self.forgotten.note(certificate.issuer, certificate.validity.not_after, self.now.now());
    }
}
