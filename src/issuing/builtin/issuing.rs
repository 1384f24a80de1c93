//! Issuing certificates of all kinds: sign, check what was signed, record it, hand it out.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_authority::ledger::{
    Authority, ControllerCertificateRecord, RecordControllerCertificate, RecordProxyCertificate,
    RecordServiceCertificate, Rejection, ServiceCertificateRecord, SignedFor,
};
use smc_authority::pki::{Lifetimes, SerialNumber, ServiceCertificate, TrustBundle, Validity};
use smc_authority::rules::{RenewalPlan, WantedCertificates, plan_renewal, service_identity};
use smc_types::ids::{ProxyName, ServiceAccountId};
use tokio::sync::broadcast;

use super::signing::Leaf;
use super::{BuiltinCa, text};
use crate::commit::{check_clock, propose};
use crate::error::{CaError, CaOperation};
use crate::issuer::{Announcement, ControllerNames, IssuedController, IssuedProxy, IssuedService, Issuer};
use crate::profile;
use crate::seal::{Purpose, SealContext};

/// The attempts to sign and record a certificate, if its issuing CA retires in between. CAs change far less
/// often than certificates are issued.
const SIGNING_ATTEMPTS: u32 = 3;

impl BuiltinCa {
    async fn sign_service(
        &self,
        account: ServiceAccountId,
        lifetime: Option<Duration>,
        requested: bool,
    ) -> Result<IssuedService, CaError> {
        let operation = CaOperation::IssueService(account.clone());
        check_clock(&*self.ledger, &operation).await?;
        let lifetimes = match lifetime {
            None => self.settings.lifetimes,
            Some(lifetime) => lifetimes(&operation, lifetime)?,
        };
        let replaces = self
            .ledger
            .local()
            .read(|ledger| ledger.service_certificate(&account).map(|record| record.serial));
        let random = self.env.random_u64()?;
        let issuer = self.issuer(SignedFor::Workloads)?;
        let leaf = issuer.sign(
            &operation,
            &self.env,
            |now, issuer| lifetimes.service_validity(now, issuer, random),
            |serial, validity| profile::service(&self.settings.trust_domain, &account, serial, validity),
        )?;
        if service_identity(&leaf.reads_as, &self.settings.trust_domain).as_ref() != Some(&account) {
            return Err(CaError::Missigned(operation));
        }
        let owner = (Purpose::Service, account.to_string());
        let record = self.sealed(&operation, owner, issuer.serial(), &leaf)?;
        let command = RecordServiceCertificate {
            account: account.clone(),
            replaces,
            record: Box::new(record),
            requested,
        };
        if let Err(source) = propose(&*self.ledger, &self.env, &operation, command).await? {
            // Another replica renewed at the same moment, or the group's time says that it is not due: every
            // replica serves the current certificate.
            if matches!(source, Rejection::ServiceCertificateConflict { .. } | Rejection::NotDue { .. })
                && let Some(current) = self.service(&account)?
            {
                return Ok(current);
            }
            return Err(CaError::Rejected { operation, source });
        }
        Ok(IssuedService {
            serial: leaf.serial,
            validity: leaf.validity,
            issued_at: leaf.issued_at,
            certificate: ServiceCertificate { chain_pem: leaf.chain_pem, key_pem: leaf.key_pem },
        })
    }

    /// The record of a certificate, with its key sealed for this owner.
    pub(super) fn sealed(
        &self,
        operation: &CaOperation,
        (purpose, name): (Purpose, String),
        issuer: SerialNumber,
        leaf: &Leaf,
    ) -> Result<ServiceCertificateRecord, CaError> {
        let context = SealContext { purpose, name: &name, serial: leaf.serial };
        let key = self.keys.seal(context, leaf.key_pem.as_bytes());
        Ok(ServiceCertificateRecord {
            serial: leaf.serial,
            validity: leaf.validity,
            issued_at: leaf.issued_at,
            issuer,
            chain_pem: leaf.chain_pem.clone(),
            key: key.map_err(|source| CaError::Sealing { operation: operation.clone(), source })?,
        })
    }

    /// A certificate on record, with its key opened.
    pub(super) fn opened(
        &self,
        operation: CaOperation,
        (purpose, name): (Purpose, String),
        record: ServiceCertificateRecord,
    ) -> Result<IssuedService, CaError> {
        let context = SealContext { purpose, name: &name, serial: record.serial };
        let opened = self.keys.open(context, &record.key).and_then(text);
        let key_pem = opened.map_err(|source| CaError::Sealing { operation, source })?;
        Ok(IssuedService {
            serial: record.serial,
            validity: record.validity,
            issued_at: record.issued_at,
            certificate: ServiceCertificate { chain_pem: record.chain_pem, key_pem },
        })
    }

    /// Replaces the key and the certificate of an identity, due or not. The certificate before stays valid
    /// until its end: there is no revocation among workloads.
    pub async fn replace_service(&self, account: &ServiceAccountId) -> Result<IssuedService, CaError> {
        signed(move || self.sign_service(account.clone(), None, true)).await
    }

    async fn sign_proxy(&self, proxy: ProxyName, account: ServiceAccountId) -> Result<IssuedProxy, CaError> {
        let operation = CaOperation::IssueProxy(proxy.clone());
        check_clock(&*self.ledger, &operation).await?;
        let issuer = self.issuer(SignedFor::Workloads)?;
        let leaf = issuer.sign(
            &operation,
            &self.env,
            |now, issuer| self.settings.lifetimes.proxy_validity(now, issuer),
            |serial, validity| profile::proxy(&proxy, serial, validity),
        )?;
        if leaf.reads_as.common_names != [proxy.to_string()] || !leaf.reads_as.uris.is_empty() {
            return Err(CaError::Missigned(operation));
        }
        let command = RecordProxyCertificate {
            serial: leaf.serial,
            proxy,
            service_account: Some(account),
            validity: leaf.validity,
            issuer: issuer.serial(),
            fingerprint: leaf.reads_as.fingerprint,
        };
        self.commit(&operation, command).await?;
        Ok(IssuedProxy {
            serial: leaf.serial,
            validity: leaf.validity,
            chain_pem: leaf.chain_pem,
            key_pem: leaf.key_pem,
        })
    }

    async fn sign_controller(&self, names: ControllerNames) -> Result<IssuedController, CaError> {
        let operation = CaOperation::IssueController;
        check_clock(&*self.ledger, &operation).await?;
        let random = self.env.random_u64()?;
        let issuer = self.issuer(SignedFor::Controllers)?;
        let leaf = issuer.sign(
            &operation,
            &self.env,
            |now, issuer| self.settings.lifetimes.service_validity(now, issuer, random),
            |serial, validity| profile::controller(&names, serial, validity),
        )?;
        let ips = names.ips.iter().map(ToString::to_string);
        let record = ControllerCertificateRecord {
            names: names.dns.iter().cloned().chain(ips).collect(),
            validity: leaf.validity,
            issuer: issuer.serial(),
            fingerprint: leaf.reads_as.fingerprint,
        };
        let command = RecordControllerCertificate { serial: leaf.serial, record: Box::new(record) };
        self.commit(&operation, command).await?;
        Ok(IssuedController {
            serial: leaf.serial,
            validity: leaf.validity,
            issued_at: leaf.issued_at,
            issuer: issuer.serial(),
            chain_pem: leaf.chain_pem,
            key_pem: leaf.key_pem,
        })
    }
}

/// The lifetimes with service certificates of this one.
pub(super) fn lifetimes(operation: &CaOperation, lifetime: Duration) -> Result<Lifetimes, CaError> {
    Lifetimes::with_service(lifetime)
        .map_err(|source| CaError::Lifetime { operation: operation.clone(), source })
}

/// Signs and records, and repeats both if the issuing CA was retired before the record was committed.
pub(super) async fn signed<T, F: Future<Output = Result<T, CaError>>>(
    sign: impl Fn() -> F,
) -> Result<T, CaError> {
    let retired = |outcome: &Result<T, CaError>| {
        matches!(outcome, Err(CaError::Rejected { source: Rejection::RetiredIssuer { .. }, .. }))
    };
    let mut outcome = sign().await;
    for _ in 1..SIGNING_ATTEMPTS {
        if !retired(&outcome) {
            break;
        }
        outcome = sign().await;
    }
    outcome
}

impl Issuer for BuiltinCa {
    fn issue_service(
        &self,
        account: &ServiceAccountId,
        lifetime: Option<Duration>,
    ) -> BoxFuture<'_, Result<IssuedService, CaError>> {
        let account = account.clone();
        Box::pin(signed(move || self.sign_service(account.clone(), lifetime, false)))
    }

    fn service(&self, account: &ServiceAccountId) -> Result<Option<IssuedService>, CaError> {
        let record = self.ledger.local().read(|ledger| ledger.service_certificate(account).cloned());
        let owner = (Purpose::Service, account.to_string());
        record.map(|record| self.opened(CaOperation::ReadService(account.clone()), owner, record)).transpose()
    }

    fn service_validity(&self, account: &ServiceAccountId) -> Option<(SerialNumber, Validity)> {
        let record = |record: &ServiceCertificateRecord| (record.serial, record.validity);
        self.ledger.local().read(|ledger| ledger.service_certificate(account).map(record))
    }

    fn plan_renewal(&self, wanted: &WantedCertificates) -> RenewalPlan {
        let now = self.env.now();
        // Nothing is due where nothing can be issued.
        if !self.ledger.time().is_agreed() {
            return RenewalPlan { next: Some(now), ..RenewalPlan::default() };
        }
        self.ledger.local().read(|ledger| plan_renewal(wanted, ledger, now))
    }

    fn issue_proxy(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
    ) -> BoxFuture<'_, Result<IssuedProxy, CaError>> {
        let (proxy, account) = (proxy.clone(), account.clone());
        Box::pin(signed(move || self.sign_proxy(proxy.clone(), account.clone())))
    }

    fn issue_controller(&self, names: &ControllerNames) -> BoxFuture<'_, Result<IssuedController, CaError>> {
        let names = names.clone();
        Box::pin(signed(move || self.sign_controller(names.clone())))
    }

    fn bundle(&self) -> TrustBundle {
        // The authority exists since `open`; without it, an empty bundle trusts no peer.
        self.authority(Authority::bundle).unwrap_or_else(|_| TrustBundle { pem: String::new() })
    }

    fn controllers_issuer(&self) -> Option<SerialNumber> {
        let now = self.env.now();
        self.authority(|authority| authority.signer(SignedFor::Controllers, now).serial).ok()
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.ledger.local().announcements()
    }
}
