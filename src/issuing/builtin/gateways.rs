//! Certificates of gateways: sign, check what was signed, record it with its key.

use std::sync::Arc;

use smc_authority::ledger::{
    ForgetGateway, GatewayCertificateRecord, Ledger, RecordGatewayCertificate, SignedFor,
};
use smc_authority::pki::SerialNumber;
use smc_authority::rules::{GatewayPlan, IngressGateway, WantedGateway, plan_gateways};
use smc_types::ids::NamespacedName;

use super::BuiltinCa;
use super::issuing::{lifetimes, signed};
use crate::commit::check_clock;
use crate::error::{CaError, CaOperation};
use crate::issuer::IssuedService;
use crate::profile;
use crate::seal::Purpose;

impl BuiltinCa {
    /// What is due for gateways now.
    pub fn plan_gateways(&self, asked: &IngressGateway) -> GatewayPlan {
        let now = self.env.now();
        // Nothing is due where nothing can be issued.
        if !self.ledger.time().is_agreed() {
            return GatewayPlan { next: Some(now), ..GatewayPlan::default() };
        }
        self.ledger.local().read(|ledger| plan_gateways(asked, ledger, now))
    }

    /// Issues the certificate of a gateway, in place of the one that it has.
    pub async fn issue_gateway(&self, wanted: &Arc<WantedGateway>) -> Result<(), CaError> {
        signed(move || self.sign_gateway(Arc::clone(wanted))).await
    }

    async fn sign_gateway(&self, wanted: Arc<WantedGateway>) -> Result<(), CaError> {
        let WantedGateway { secret, names, lifetime } = &*wanted;
        let operation = CaOperation::IssueGateway(secret.clone());
        check_clock(&*self.ledger, &operation).await?;
        let lifetimes = lifetimes(&operation, *lifetime)?;
        let replaces = self
            .ledger
            .local()
            .read(|ledger| ledger.gateway_certificate(secret).map(|record| record.certificate.serial));
        let random = self.env.random_u64()?;
        let issuer = self.issuer(SignedFor::Workloads)?;
        let leaf = issuer.sign(
            &operation,
            &self.env,
            |now, issuer| lifetimes.service_validity(now, issuer, random),
            |serial, validity| profile::gateway(names, serial, validity),
        )?;
        let reads_as = &leaf.reads_as;
        if !reads_as.dns_names.iter().eq(names)
            || !reads_as.uris.is_empty()
            || !reads_as.common_names.is_empty()
        {
            return Err(CaError::Missigned(operation));
        }
        let owner = (Purpose::Gateway, secret.to_string());
        let certificate = self.sealed(&operation, owner, issuer.serial(), &leaf)?;
        let record =
            GatewayCertificateRecord { names: names.clone(), lifetime: lifetime.as_secs(), certificate };
        let command = RecordGatewayCertificate { secret: secret.clone(), replaces, record: Box::new(record) };
        self.commit(&operation, command).await
    }

    /// The certificate of a gateway with its key, as it is wanted and valid now; `None` if there is none.
    pub fn gateway(&self, wanted: &WantedGateway) -> Result<Option<IssuedService>, CaError> {
        let (secret, now) = (&wanted.secret, self.env.now());
        let current = |ledger: &Ledger| wanted.current(ledger, now).map(|record| record.certificate.clone());
        let record = self.ledger.local().read(current);
        let owner = (Purpose::Gateway, secret.to_string());
        record.map(|record| self.opened(CaOperation::ReadGateway(secret.clone()), owner, record)).transpose()
    }

    /// Forgets the certificate of a gateway, with its key. One that was replaced meanwhile stays.
    pub async fn forget_gateway(&self, secret: &NamespacedName, serial: SerialNumber) -> Result<(), CaError> {
        let operation = CaOperation::ForgetGateway(secret.clone());
        self.commit(&operation, ForgetGateway { secret: secret.clone(), serial }).await.map(drop)
    }
}
