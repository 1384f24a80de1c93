//! The interface to whoever issues certificates: the seeds' `certificate.Manager`.
//!
//! | seeds | here |
//! |---|---|
//! | `IssueCertificate`, `RotateCertificate` | [`CertificateManager::issue_service`], `issue_proxy`, `issue_controller` |
//! | `GetCertificate` | [`CertificateManager::service`] |
//! | `GetRootCertificate` | [`CertificateManager::bundle`] |
//! | `ListCertificates` | [`CertificateManager::list`] |
//! | `ReleaseCertificate` | [`CertificateManager::release`] |
//! | `GetAnnouncementsChannel` | [`CertificateManager::announcements`] |

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use smc_mesh::ids::{ProxyName, ServiceAccountId, TrustDomain};
pub use smc_mesh::ledger::Announcement;
use smc_mesh::pki::{CaPlan, SerialNumber, ServiceCertificate, TrustBundle, Validity};
use smc_mesh::time::Timestamp;
pub use smc_raft::Pending;
use smc_raft::SharedLedger;
use tokio::sync::broadcast;
use zeroize::Zeroizing;

use super::error::CaError;
use super::status::{AuthorityStatus, Issued};

/// A service certificate with what is on record about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedService {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// The certificate and its key.
    pub certificate: ServiceCertificate,
}

/// A certificate for one proxy, as its bootstrap carries it. Nobody else has the key.
#[derive(Clone)]
pub struct IssuedProxy {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// Concatenated PEM certificates, the leaf first, then its issuer.
    pub chain_pem: String,
    /// The leaf's private key, PKCS#8 PEM.
    pub key_pem: Zeroizing<String>,
}

impl fmt::Debug for IssuedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedProxy").field("serial", &self.serial).finish_non_exhaustive()
    }
}

/// A certificate that a controller serves with.
#[derive(Clone)]
pub struct IssuedController {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// The serial number of the CA that signed it.
    pub issuer: SerialNumber,
    /// Concatenated PEM certificates, the leaf first, then its issuer.
    pub chain_pem: String,
    /// The leaf's private key, PKCS#8 PEM.
    pub key_pem: Zeroizing<String>,
}

impl fmt::Debug for IssuedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedController").field("serial", &self.serial).finish_non_exhaustive()
    }
}

/// What a controller is called. [`smc_mesh::pki::CONTROLLER_IDENTITY`] should be among the DNS names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControllerNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
}

/// Which CA a person wants replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotate {
    /// What signs. It is replaced at once.
    Issuing,
    /// What everybody trusts, and with it what signs. This begins it; [`CertificateManager::maintain`] goes on.
    Root,
}

/// Issues, keeps and releases certificates.
pub trait CertificateManager: Send + Sync {
    /// Issues a new service certificate, which takes the place of the current one. If another replica was
    /// faster, the answer is the certificate that it issued. `lifetime` is before jitter, within the bounds of
    /// [`smc_mesh::pki::Lifetimes::with_service`]; `None` is the authority's own.
    fn issue_service(
        &self,
        account: &ServiceAccountId,
        lifetime: Option<Duration>,
    ) -> Pending<'_, Result<IssuedService, CaError>>;

    /// The current certificate of an identity, the same on every replica and after every restart. It may
    /// have ended. `None` if there is none.
    fn service(&self, account: &ServiceAccountId) -> Result<Option<IssuedService>, CaError>;

    /// Issues a certificate for a proxy, unclaimed. `account` is the identity of its pod now; the certificate is good
    /// for as long as the pod has that one.
    fn issue_proxy(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
    ) -> Pending<'_, Result<IssuedProxy, CaError>>;

    /// Issues a certificate for a controller to serve with.
    fn issue_controller(&self, names: &ControllerNames) -> Pending<'_, Result<IssuedController, CaError>>;

    /// What everybody in the mesh trusts now. [`Announcement::AuthorityChanged`] tells that it may be something else.
    fn bundle(&self) -> TrustBundle;

    /// The CA that signs controllers' certificates now; one that another CA signed is to be replaced soon.
    fn controllers_issuer(&self) -> Option<SerialNumber>;

    /// Replaces a CA. The answer is the serial number of the new one.
    fn rotate(&self, what: Rotate) -> Pending<'_, Result<SerialNumber, CaError>>;

    /// Seals all private keys with this replica's own key-encryption key. The answer is how many were sealed with another.
    fn rekey(&self) -> Pending<'_, Result<usize, CaError>>;

    /// Records that every proxy that is connected to this replica has acknowledged that the next root is trusted. Doing
    /// it again changes nothing.
    fn acknowledge_root(&self, replica: u64, root: SerialNumber) -> Pending<'_, Result<(), CaError>>;

    /// Takes the next step in the life of the CAs, if one is due, and answers what is due after it. `replicas` are the
    /// group's members, `steady` whether the clock can be trusted. One replica at a time should do this; it is harmless
    /// if several do.
    fn maintain<'a>(
        &'a self,
        replicas: &'a BTreeSet<u64>,
        steady: bool,
    ) -> Pending<'a, Result<CaPlan, CaError>>;

    /// The trust domain of all identities.
    fn trust_domain(&self) -> &TrustDomain;

    /// Claims a proxy certificate; the answer is whether it was unclaimed. An error means that the proxy
    /// must not be served.
    fn claim(&self, serial: SerialNumber) -> Pending<'_, Result<bool, CaError>>;

    /// Releases all certificates of a proxy; the answer is which of them were not released yet. From here on
    /// none of them is let in.
    fn release(&self, proxy: &ProxyName) -> Pending<'_, Result<Vec<SerialNumber>, CaError>>;

    /// Releases these proxy certificates, [`smc_mesh::ledger::MAX_RELEASED_TOGETHER`] at most; otherwise as
    /// [`Self::release`].
    fn release_certificates(
        &self,
        serials: Vec<SerialNumber>,
    ) -> Pending<'_, Result<Vec<SerialNumber>, CaError>>;

    /// Forgets what has ended; the answer is how many certificates that were.
    fn prune(&self) -> Pending<'_, Result<usize, CaError>>;

    /// The state of the authority.
    fn status(&self) -> AuthorityStatus;

    /// What a person should do something about, as [`Self::status`] has it, but cheap enough to look at all the time.
    fn warnings(&self) -> Vec<String>;

    /// Everything on record, sorted by kind and name.
    fn list(&self) -> Vec<Issued>;

    /// Waits until [`Self::ledger`] holds everything that any replica acknowledged before this call. Comes
    /// before a read that decides something, such as whether a certificate was released.
    fn barrier(&self) -> Pending<'_, Result<(), CaError>>;

    /// The ledger, for decisions such as [`smc_mesh::pki::admit`].
    fn ledger(&self) -> &SharedLedger;

    /// What happens from now on, on whichever replica, whether or not the one who asked for it still waits. A receiver
    /// that lags behind has lost some and reads the ledger.
    fn announcements(&self) -> broadcast::Receiver<Announcement>;
}

/// Waits until the authority may be another than it was.
pub(crate) async fn authority_changed(announcements: &mut broadcast::Receiver<Announcement>) {
    loop {
        match announcements.recv().await {
            Ok(Announcement::AuthorityChanged | Announcement::Replaced)
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // Whoever listens holds the manager, so this does not happen; their timers go on.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
