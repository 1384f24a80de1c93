//! The built-in CA: its keys are sealed in the ledger, and it signs in this process.
//!
//! Owns the CAs of the mesh: their founding, rotation, rekeying and state. [`issuing`] is its side of
//! [`super::Issuer`].

mod ca_rotation;
mod founding;
mod gateways;
mod issuing;
mod new_ca;
mod rekey;
mod signing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rcgen::KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use smc_authority::ledger::{
    AgreeOnTime, Authority, ForgetService, ForgetServices, Ledger, LedgerOperation, Prune, Rules, SignedFor,
};
use smc_authority::pki::{Lifetimes, SerialNumber};
use smc_host::env::Env;
use smc_host::sync::lock;
use smc_raft::ReplicatedLedger;
use smc_types::ids::TrustDomain;
use smc_types::time::Timestamp;
use zeroize::Zeroizing;

use super::clock::ClockError;
use super::commit::{check_clock, commit};
use super::error::{CaError, CaOperation};
use super::seal::{KeyEncryption, SealError};
use super::status::{self, AuthorityStatus, Issued};
use signing::IssuingCa;

/// The settings of the CA.
#[derive(Debug, Clone)]
pub struct CaSettings {
    /// The trust domain. It is fixed when the ledger is founded.
    pub trust_domain: TrustDomain,
    /// The lifetimes of certificates.
    pub lifetimes: Lifetimes,
}

/// The CA to rotate on an operator's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotate {
    /// The issuing CA, which is replaced at once.
    Issuing,
    /// The root, and the issuing CA with it. This starts the rotation, and [`BuiltinCa::maintain`]
    /// completes it.
    Root,
}

/// The CA that SMC brings with it.
pub struct BuiltinCa {
    ledger: Arc<dyn ReplicatedLedger>,
    keys: Arc<dyn KeyEncryption>,
    env: Env,
    settings: CaSettings,
    /// The unsealed issuing CAs that sign according to the ledger, by serial number: two at most.
    unsealed: Mutex<BTreeMap<SerialNumber, Arc<IssuingCa>>>,
}

impl BuiltinCa {
    /// Opens the CA, and founds it if the ledger holds none. An issuing CA that cannot sign, as one that
    /// ended while no replica ran, is replaced under its root.
    pub async fn open(
        ledger: Arc<dyn ReplicatedLedger>,
        keys: Arc<dyn KeyEncryption>,
        env: Env,
        settings: CaSettings,
    ) -> Result<Self, CaError> {
        founding::found_or_load(&*ledger, &*keys, &env, &settings).await?;
        let ca = Self { ledger, keys, env, settings, unsealed: Mutex::default() };
        ca.revive().await?;
        ca.issuer(SignedFor::Workloads)?;
        Ok(ca)
    }

    /// The trust domain of all identities.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.settings.trust_domain
    }

    /// The state of the CA.
    pub fn status(&self) -> AuthorityStatus {
        let CaSettings { trust_domain, lifetimes } = &self.settings;
        let now = self.env.now();
        let mut status = self
            .ledger
            .local()
            .read(|ledger| status::status(ledger, trust_domain, lifetimes, self.keys.id(), now));
        let wrong = ClockError::check(&self.ledger.time()).err().filter(|reason| reason.is_known());
        status.warnings.extend(wrong.map(|reason| format!("{reason}: this replica issues nothing")));
        status
    }

    /// The warnings of [`Self::status`], cheap enough to read every few seconds.
    pub fn warnings(&self) -> Vec<String> {
        let now = self.env.now();
        self.ledger.local().read(|ledger| status::warnings(ledger, &self.settings.lifetimes, now))
    }

    /// All certificates on record, sorted by kind and name.
    pub fn list(&self) -> Vec<Issued> {
        let now = self.env.now();
        self.ledger.local().read(|ledger| status::list(ledger, now))
    }

    #[cfg(test)]
    pub(super) fn ledger(&self) -> &Arc<dyn ReplicatedLedger> {
        &self.ledger
    }

    /// Deletes the records of expired certificates, and returns their number.
    pub async fn prune(&self) -> Result<usize, CaError> {
        let now = self.env.now();
        if !self.ledger.local().read(|ledger| ledger.is_prunable(now)) {
            return Ok(0);
        }
        check_clock(&*self.ledger, &CaOperation::Prune).await?;
        self.commit(&CaOperation::Prune, Prune).await
    }

    /// Forgets the service certificates of identities that no workload has, at most
    /// [`smc_authority::ledger::MAX_FORGOTTEN_TOGETHER`], and returns their number. Nothing is forgotten
    /// until every member of the group knows how ([`Rules::Third`]).
    pub async fn forget_services(&self, unused: Vec<ForgetService>) -> Result<usize, CaError> {
        if unused.is_empty() || self.ledger.local().read(Ledger::rules) < Rules::Third {
            return Ok(0);
        }
        let operation = CaOperation::ForgetServices(unused.len());
        check_clock(&*self.ledger, &operation).await?;
        self.commit(&operation, ForgetServices(unused)).await
    }

    /// Reads from the authority's record, which exists from [`Self::open`] on.
    fn authority<T>(&self, look: impl FnOnce(&Authority) -> T) -> Result<T, CaError> {
        let found = self.ledger.local().read(|ledger| ledger.authority().map(look));
        found.ok_or(CaError::NotFounded)
    }

    /// The CA that signs for `purpose` according to the ledger on this replica, with its key. Drops the
    /// keys of CAs that no longer sign.
    fn issuer(&self, purpose: SignedFor) -> Result<Arc<IssuingCa>, CaError> {
        let now = self.env.now();
        let (serial, signing) = self.authority(|authority| {
            let all = [SignedFor::Workloads, SignedFor::Controllers];
            (authority.signer(purpose, now).serial, all.map(|purpose| authority.signer(purpose, now).serial))
        })?;
        let mut unsealed = lock(&self.unsealed);
        unsealed.retain(|serial, _| signing.contains(serial));
        if let Some(known) = unsealed.get(&serial) {
            return Ok(Arc::clone(known));
        }
        let ca = self.authority(|authority| authority.signer(purpose, now).clone())?;
        let issuing = IssuingCa::unseal(&*self.keys, self.settings.trust_domain.as_str(), &ca)?;
        let issuing = Arc::new(issuing);
        unsealed.insert(ca.serial, Arc::clone(&issuing));
        Ok(issuing)
    }

    /// Sets the ledger's time by the clocks of a majority of the replicas.
    pub async fn agree_on_time(&self, clocks: BTreeMap<u64, Timestamp>) -> Result<(), CaError> {
        self.commit(&CaOperation::AgreeOnTime, AgreeOnTime { clocks }).await
    }

    async fn commit<O: LedgerOperation>(
        &self,
        operation: &CaOperation,
        command: O,
    ) -> Result<O::Reply, CaError> {
        commit(&*self.ledger, &self.env, operation, command).await
    }
}

/// A new key. All keys of the mesh are made here.
fn new_key(env: &Env) -> Result<Zeroizing<KeyPair>, rcgen::Error> {
    let pkcs8 = env.entropy.private_key().map_err(|_| rcgen::Error::RingUnspecified)?;
    KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8.as_slice())).map(Zeroizing::new)
}

/// The unsealed text, without a copy left behind in memory.
fn text(mut bytes: Zeroizing<Vec<u8>>) -> Result<Zeroizing<String>, SealError> {
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(SealError::Refused)
        }
    }
}
