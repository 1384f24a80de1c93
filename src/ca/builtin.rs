//! The built-in authority: keys of its own, sealed in the ledger, and signatures made here.

mod founding;
mod making;
mod rekeying;
mod rotating;
mod signing;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rcgen::KeyPair;
use smc_mesh::ids::{ProxyName, ServiceAccountId, TrustDomain};
use smc_mesh::ledger::{
    Authority, ControllerCertificateRecord, Operation, Rejection, Reply, ServiceCertificateRecord, SignedFor,
};
use smc_mesh::pki::{CaPlan, Lifetimes, SerialNumber, ServiceCertificate, TrustBundle, service_identity};
use smc_raft::{ReplicatedLedger, SharedLedger};
use tokio::sync::broadcast;
use zeroize::Zeroizing;

use super::error::CaError;
use super::manager::{
    Announcement, CertificateManager, ControllerNames, IssuedController, IssuedProxy, IssuedService, Pending,
    Rotate,
};
use super::profile;
use super::seal::{KeyEncryption, Purpose, SealContext, SealError};
use super::status::{self, AuthorityStatus, Issued};
use crate::env::Env;
use signing::IssuingCa;

/// How often something is signed again because its issuer signs no more when the record comes to the ledger. CAs do not
/// change more often than people ask for it.
const SIGNING_ATTEMPTS: u32 = 3;

/// What the authority is configured with.
#[derive(Debug, Clone)]
pub struct CaSettings {
    /// The trust domain. It is fixed when the ledger is founded.
    pub trust_domain: TrustDomain,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
}

/// See the module.
pub struct BuiltinCa {
    ledger: Arc<dyn ReplicatedLedger>,
    keys: Arc<dyn KeyEncryption>,
    env: Env,
    settings: CaSettings,
    /// The issuing CAs that sign, two at most, by serial number: which they are, the ledger says.
    issuing: Mutex<BTreeMap<SerialNumber, Arc<IssuingCa>>>,
}

impl BuiltinCa {
    /// Founds the authority if the ledger has none, and takes it up in either case.
    pub async fn open(
        ledger: Arc<dyn ReplicatedLedger>,
        keys: Arc<dyn KeyEncryption>,
        env: Env,
        settings: CaSettings,
    ) -> Result<Self, CaError> {
        founding::found_or_load(&*ledger, &*keys, &env, &settings).await?;
        let ca = Self { ledger, keys, env, settings, issuing: Mutex::default() };
        ca.issuer(SignedFor::Workloads)?;
        Ok(ca)
    }

    /// Looks at the authority, which is there from [`Self::open`] on.
    fn authority<T>(&self, look: impl FnOnce(&Authority) -> T) -> Result<T, CaError> {
        let found = self.ledger.local().read(|ledger| ledger.authority().map(look));
        found.ok_or_else(|| CaError::NoAnswer("a question about the authority".to_owned()))
    }

    /// The CA that signs by the latest that the ledger holds here, with its key. Keys that do not sign any more are
    /// dropped.
    fn issuer(&self, what: SignedFor) -> Result<Arc<IssuingCa>, CaError> {
        let now = self.env.now();
        let (serial, signing) = self.authority(|authority| {
            let all = [SignedFor::Workloads, SignedFor::Controllers];
            (authority.signer(what, now).serial, all.map(|what| authority.signer(what, now).serial))
        })?;
        let mut unsealed = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        unsealed.retain(|serial, _| signing.contains(serial));
        if let Some(known) = unsealed.get(&serial) {
            return Ok(Arc::clone(known));
        }
        let ca = self.authority(|authority| authority.signer(what, now).clone())?;
        let issuing = IssuingCa::unseal(&*self.keys, self.settings.trust_domain.as_str(), &ca)?;
        let issuing = Arc::new(issuing);
        unsealed.insert(ca.serial, Arc::clone(&issuing));
        Ok(issuing)
    }

    async fn commit(&self, what: &str, operation: Operation) -> Result<Result<Reply, Rejection>, CaError> {
        founding::commit(&*self.ledger, &self.env, what, operation).await
    }

    async fn recorded(&self, what: &str, operation: Operation) -> Result<(), CaError> {
        match self.commit(what, operation).await? {
            Ok(Reply::Recorded) => Ok(()),
            Ok(_) => Err(CaError::NoAnswer(what.to_owned())),
            Err(source) => Err(CaError::Rejected { what: what.to_owned(), source }),
        }
    }

    async fn sign_service(
        &self,
        account: ServiceAccountId,
        lifetime: Option<Duration>,
    ) -> Result<IssuedService, CaError> {
        let what = format!("a service certificate for {account}");
        let lifetimes = match lifetime {
            None => self.settings.lifetimes,
            Some(lifetime) => Lifetimes::with_service(lifetime)
                .map_err(|source| CaError::Lifetime { what: what.clone(), source })?,
        };
        let name = account.to_string();
        let replaces = self
            .ledger
            .local()
            .read(|ledger| ledger.service_certificate(&account).map(|record| record.serial));
        let random = self.env.random_u64()?;
        let issuer = self.issuer(SignedFor::Workloads)?;
        let leaf = issuer.sign(
            &what,
            &self.env,
            |now, issuer| lifetimes.service_validity(now, issuer, random),
            |serial, validity| profile::service(&self.settings.trust_domain, &account, serial, validity),
        )?;
        if service_identity(&leaf.reads_as, &self.settings.trust_domain).as_ref() != Some(&account) {
            return Err(CaError::Missigned(what));
        }
        let context = SealContext { purpose: Purpose::Service, name: &name, serial: leaf.serial };
        let key = self
            .keys
            .seal(context, leaf.key_pem.as_bytes())
            .map_err(|source| CaError::Sealing { what: what.clone(), source })?;
        let record = ServiceCertificateRecord {
            serial: leaf.serial,
            validity: leaf.validity,
            issued_at: leaf.issued_at,
            issuer: issuer.serial(),
            chain_pem: leaf.chain_pem.clone(),
            key,
        };
        let operation = Operation::RecordServiceCertificate {
            account: account.clone(),
            replaces,
            record: Box::new(record),
        };
        match self.commit(&what, operation).await? {
            Ok(Reply::Recorded) => {}
            Ok(_) => return Err(CaError::NoAnswer(what)),
            // Somebody else renewed at the same moment. Theirs is the one that everybody serves.
            Err(Rejection::Superseded { .. }) => {
                return self.service(&account)?.ok_or(CaError::NoAnswer(what));
            }
            Err(source) => return Err(CaError::Rejected { what, source }),
        }
        Ok(IssuedService {
            serial: leaf.serial,
            validity: leaf.validity,
            issued_at: leaf.issued_at,
            certificate: ServiceCertificate { chain_pem: leaf.chain_pem, key_pem: leaf.key_pem },
        })
    }

    async fn sign_proxy(&self, proxy: ProxyName, account: ServiceAccountId) -> Result<IssuedProxy, CaError> {
        let what = format!("a proxy certificate for {proxy}");
        let issuer = self.issuer(SignedFor::Workloads)?;
        let leaf = issuer.sign(
            &what,
            &self.env,
            |now, issuer| self.settings.lifetimes.proxy_validity(now, issuer),
            |serial, validity| profile::proxy(&proxy, serial, validity),
        )?;
        if leaf.reads_as.common_names != [proxy.to_string()] || !leaf.reads_as.uris.is_empty() {
            return Err(CaError::Missigned(what));
        }
        let operation = Operation::RecordProxyCertificate {
            serial: leaf.serial,
            proxy: proxy.clone(),
            service_account: Some(account),
            validity: leaf.validity,
            issuer: issuer.serial(),
            fingerprint: leaf.reads_as.fingerprint,
        };
        self.recorded(&what, operation).await?;
        Ok(IssuedProxy {
            serial: leaf.serial,
            validity: leaf.validity,
            chain_pem: leaf.chain_pem,
            key_pem: leaf.key_pem,
        })
    }

    async fn commit_release(&self, what: String, release: Operation) -> Result<Vec<SerialNumber>, CaError> {
        match self.commit(&what, release).await? {
            Ok(Reply::Released { serials }) => Ok(serials),
            Ok(_) => Err(CaError::NoAnswer(what)),
            Err(source) => Err(CaError::Rejected { what, source }),
        }
    }

    async fn sign_controller(&self, names: ControllerNames) -> Result<IssuedController, CaError> {
        let what = "a controller certificate".to_owned();
        let random = self.env.random_u64()?;
        let issuer = self.issuer(SignedFor::Controllers)?;
        let leaf = issuer.sign(
            &what,
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
        let operation =
            Operation::RecordControllerCertificate { serial: leaf.serial, record: Box::new(record) };
        self.recorded(&what, operation).await?;
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

/// Signs something, again if its issuer was retired before the record came to the ledger.
async fn signed<T, F: Future<Output = Result<T, CaError>>>(sign: impl Fn() -> F) -> Result<T, CaError> {
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

impl CertificateManager for BuiltinCa {
    fn issue_service(
        &self,
        account: &ServiceAccountId,
        lifetime: Option<Duration>,
    ) -> Pending<'_, Result<IssuedService, CaError>> {
        let account = account.clone();
        Box::pin(signed(move || self.sign_service(account.clone(), lifetime)))
    }

    fn service(&self, account: &ServiceAccountId) -> Result<Option<IssuedService>, CaError> {
        let record = self.ledger.local().read(|ledger| ledger.service_certificate(account).cloned());
        let Some(record) = record else { return Ok(None) };
        let name = account.to_string();
        let context = SealContext { purpose: Purpose::Service, name: &name, serial: record.serial };
        let key_pem = self.keys.open(context, &record.key).and_then(text).map_err(|source| {
            CaError::Sealing { what: format!("the service certificate of {account}"), source }
        })?;
        Ok(Some(IssuedService {
            serial: record.serial,
            validity: record.validity,
            issued_at: record.issued_at,
            certificate: ServiceCertificate { chain_pem: record.chain_pem, key_pem },
        }))
    }

    fn issue_proxy(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
    ) -> Pending<'_, Result<IssuedProxy, CaError>> {
        let (proxy, account) = (proxy.clone(), account.clone());
        Box::pin(signed(move || self.sign_proxy(proxy.clone(), account.clone())))
    }

    fn issue_controller(&self, names: &ControllerNames) -> Pending<'_, Result<IssuedController, CaError>> {
        let names = names.clone();
        Box::pin(signed(move || self.sign_controller(names.clone())))
    }

    fn bundle(&self) -> TrustBundle {
        // The authority is there; were it not, nobody would be trusted.
        self.authority(Authority::bundle).unwrap_or_else(|_| TrustBundle { pem: String::new() })
    }

    fn controllers_issuer(&self) -> Option<SerialNumber> {
        let now = self.env.now();
        self.authority(|authority| authority.signer(SignedFor::Controllers, now).serial).ok()
    }

    fn rotate(&self, what: Rotate) -> Pending<'_, Result<SerialNumber, CaError>> {
        Box::pin(self.rotate_by_hand(what))
    }

    fn rekey(&self) -> Pending<'_, Result<usize, CaError>> {
        Box::pin(self.seal_anew())
    }

    fn acknowledge_root(&self, replica: u64, root: SerialNumber) -> Pending<'_, Result<(), CaError>> {
        Box::pin(self.commit_acknowledgement(replica, root))
    }

    fn maintain<'a>(
        &'a self,
        replicas: &'a BTreeSet<u64>,
        steady: bool,
    ) -> Pending<'a, Result<CaPlan, CaError>> {
        Box::pin(self.take_due_step(replicas, steady))
    }

    fn trust_domain(&self) -> &TrustDomain {
        &self.settings.trust_domain
    }

    fn claim(&self, serial: SerialNumber) -> Pending<'_, Result<bool, CaError>> {
        Box::pin(async move {
            let what = format!("the claim of proxy certificate {serial}");
            match self.commit(&what, Operation::ClaimProxyCertificate(serial)).await? {
                Ok(Reply::Claimed { first }) => Ok(first),
                Ok(_) => Err(CaError::NoAnswer(what)),
                Err(source) => Err(CaError::Rejected { what, source }),
            }
        })
    }

    fn release(&self, proxy: &ProxyName) -> Pending<'_, Result<Vec<SerialNumber>, CaError>> {
        let what = format!("the release of {proxy}");
        Box::pin(self.commit_release(what, Operation::ReleaseProxy(proxy.clone())))
    }

    fn release_certificates(
        &self,
        serials: Vec<SerialNumber>,
    ) -> Pending<'_, Result<Vec<SerialNumber>, CaError>> {
        let what = format!("the release of {} proxy certificates", serials.len());
        Box::pin(self.commit_release(what, Operation::ReleaseProxyCertificates(serials)))
    }

    fn prune(&self) -> Pending<'_, Result<usize, CaError>> {
        Box::pin(async move {
            let now = self.env.now();
            if !self.ledger.local().read(|ledger| ledger.is_prunable(now)) {
                return Ok(0);
            }
            let what = "pruning".to_owned();
            match self.commit(&what, Operation::Prune).await? {
                Ok(Reply::Pruned { certificates }) => Ok(certificates),
                Ok(_) => Err(CaError::NoAnswer(what)),
                Err(source) => Err(CaError::Rejected { what, source }),
            }
        })
    }

    fn status(&self) -> AuthorityStatus {
        let CaSettings { trust_domain, lifetimes } = &self.settings;
        let now = self.env.now();
        self.ledger
            .local()
            .read(|ledger| status::status(ledger, trust_domain, lifetimes, self.keys.id(), now))
    }

    fn warnings(&self) -> Vec<String> {
        let now = self.env.now();
        self.ledger.local().read(|ledger| status::warnings(ledger, &self.settings.lifetimes, now))
    }

    fn list(&self) -> Vec<Issued> {
        let now = self.env.now();
        self.ledger.local().read(|ledger| status::list(ledger, now))
    }

    fn barrier(&self) -> Pending<'_, Result<(), CaError>> {
        Box::pin(async move {
            let what = "the freshness of the ledger".to_owned();
            self.ledger.barrier().await.map_err(|source| CaError::NotCommitted { what, source })
        })
    }

    fn ledger(&self) -> &SharedLedger {
        self.ledger.local()
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.ledger.local().announcements()
    }
}

/// A key of the mesh, ECDSA P-256: the one place where any comes from.
#[expect(clippy::disallowed_methods, reason = "rcgen takes no other source; see ARCHITECTURE.md, known gaps")]
fn new_key() -> Result<Zeroizing<KeyPair>, rcgen::Error> {
    KeyPair::generate().map(Zeroizing::new)
}

/// The text that was sealed, without leaving a copy behind.
fn text(mut octets: Zeroizing<Vec<u8>>) -> Result<Zeroizing<String>, SealError> {
    match String::from_utf8(std::mem::take(&mut *octets)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(SealError::Refused)
        }
    }
}
