//! Claims and releases of proxy certificates, whichever issuer signed them.
//!
//! Owns the proposals to the ledger. Does not decide whether a proxy is admitted: that is
//! [`smc_authority::rules::admit`].

use std::sync::Arc;

use smc_authority::ledger::{ClaimProxyCertificate, ReleaseProxy, ReleaseProxyCertificates};
use smc_authority::pki::SerialNumber;
use smc_host::env::Env;
use smc_raft::{ReplicatedLedger, SharedLedger};
use smc_types::ids::ProxyName;

use super::commit::{barrier, commit};
use super::error::{CaError, CaOperation};

/// The proxy certificates on record. Cheap to clone.
#[derive(Clone)]
pub struct ProxyCertificates {
    ledger: Arc<dyn ReplicatedLedger>,
    env: Env,
}

impl ProxyCertificates {
    /// The proxy certificates in this ledger.
    pub fn new(ledger: Arc<dyn ReplicatedLedger>, env: Env) -> Self {
        Self { ledger, env }
    }

    /// Claims a certificate. Returns whether it was unclaimed. After an error the proxy must not be served.
    pub async fn claim(&self, serial: SerialNumber) -> Result<bool, CaError> {
        let operation = CaOperation::Claim(serial);
        commit(&*self.ledger, &self.env, &operation, ClaimProxyCertificate(serial)).await
    }

    /// Releases all certificates of a proxy: none of them is admitted from now on. Returns those that were
    /// not released before.
    pub async fn release(&self, proxy: &ProxyName) -> Result<Vec<SerialNumber>, CaError> {
        let operation = CaOperation::ReleaseProxy(proxy.clone());
        commit(&*self.ledger, &self.env, &operation, ReleaseProxy(proxy.clone())).await
    }

    /// Releases these certificates, at most [`smc_authority::ledger::MAX_RELEASED_TOGETHER`]; otherwise as
    /// [`Self::release`].
    pub async fn release_certificates(
        &self,
        serials: Vec<SerialNumber>,
    ) -> Result<Vec<SerialNumber>, CaError> {
        let operation = CaOperation::ReleaseCertificates(serials.len());
        commit(&*self.ledger, &self.env, &operation, ReleaseProxyCertificates(serials)).await
    }

    /// Waits until [`Self::ledger`] holds everything that any replica acknowledged before this call. Needed
    /// before a read that decides something, such as whether a certificate was released.
    pub async fn barrier(&self) -> Result<(), CaError> {
        barrier(&*self.ledger, &CaOperation::Barrier).await
    }

    /// The ledger as applied on this replica.
    pub fn ledger(&self) -> &SharedLedger {
        self.ledger.local()
    }
}
