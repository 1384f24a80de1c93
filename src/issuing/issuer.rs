//! The interface to an issuer of certificates: the `certificate.Manager` of the original design.
//!
//! Owns the contract that the built-in CA fulfils, and that Vault or cert-manager could. What only the
//! built-in CA can do (rotation of its CAs, rekeying, pruning) are methods of [`super::BuiltinCa`]; claims
//! and releases of proxy certificates are [`super::ProxyCertificates`].
//!
//! | original design | here |
//! |---|---|
//! | `IssueCertificate`, `RotateCertificate` | [`Issuer::issue_service`], `issue_proxy`, `issue_controller` |
//! | `GetCertificate` | [`Issuer::service`] |
//! | `GetRootCertificate` | [`Issuer::bundle`] |
//! | `ListCertificates` | [`super::BuiltinCa::list`] |
//! | `ReleaseCertificate` | [`super::ProxyCertificates::release`] |
//! | `GetAnnouncementsChannel` | [`Issuer::announcements`] |

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
pub use smc_authority::ledger::Announcement;
use smc_authority::pki::{SerialNumber, ServiceCertificate, TrustBundle, Validity};
use smc_authority::rules::{RenewalPlan, WantedCertificates};
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;
use tokio::sync::broadcast;
use zeroize::Zeroizing;

use super::error::CaError;

/// A service certificate with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedService {
    /// The serial number.
    pub serial: SerialNumber,
    /// The validity period.
    pub validity: Validity,
    /// The time of issue.
    pub issued_at: Timestamp,
    /// The certificate and its key.
    pub certificate: ServiceCertificate,
}

/// A certificate for one proxy, as its bootstrap carries it. The bootstrap holds the only copy of the key.
#[derive(Clone)]
pub struct IssuedProxy {
    /// The serial number.
    pub serial: SerialNumber,
    /// The validity period.
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

/// The server certificate of a controller.
#[derive(Clone)]
pub struct IssuedController {
    /// The serial number.
    pub serial: SerialNumber,
    /// The validity period.
    pub validity: Validity,
    /// The time of issue.
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

/// The names in a controller's certificate. [`smc_authority::pki::CONTROLLER_IDENTITY`] should be among the
/// DNS names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControllerNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
}

/// Issues certificates for workloads, proxies and controllers.
pub trait Issuer: Send + Sync {
    /// Issues a new service certificate, which replaces the current one of the identity. If another replica
    /// has replaced it first, returns that replica's certificate. `lifetime` is before jitter, within the
    /// bounds of [`smc_authority::pki::Lifetimes::with_service`]; `None` means the issuer's default.
    fn issue_service(
        &self,
        account: &ServiceAccountId,
        lifetime: Option<Duration>,
    ) -> BoxFuture<'_, Result<IssuedService, CaError>>;

    /// The current certificate of an identity with its key, the same on every replica and after every
    /// restart; `None` if there is none. It may have expired.
    fn service(&self, account: &ServiceAccountId) -> Result<Option<IssuedService>, CaError>;

    /// The serial number and validity of [`Self::service`], without the cost of opening the key.
    fn service_validity(&self, account: &ServiceAccountId) -> Option<(SerialNumber, Validity)>;

    /// The service certificates that have to be issued now, and the time at which the next one falls due.
    fn plan_renewal(&self, wanted: &WantedCertificates) -> RenewalPlan;

    /// Issues an unclaimed certificate for a proxy. `account` is the current identity of its pod; the
    /// certificate is accepted only while the pod has that identity.
    fn issue_proxy(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
    ) -> BoxFuture<'_, Result<IssuedProxy, CaError>>;

    /// Issues a server certificate for a controller.
    fn issue_controller(&self, names: &ControllerNames) -> BoxFuture<'_, Result<IssuedController, CaError>>;

    /// The roots that the mesh trusts now. [`Announcement::AuthorityChanged`] announces that they may have
    /// changed.
    fn bundle(&self) -> TrustBundle;

    /// The CA that signs controllers' certificates now. A certificate of another CA has to be replaced soon.
    fn controllers_issuer(&self) -> Option<SerialNumber>;

    /// Events from now on, from all replicas. A receiver that lags has lost events, and has to read the
    /// current state.
    fn announcements(&self) -> broadcast::Receiver<Announcement>;
}

/// Waits until the CAs may have changed.
pub async fn authority_changed(announcements: &mut broadcast::Receiver<Announcement>) {
    loop {
        match announcements.recv().await {
            Ok(Announcement::AuthorityChanged | Announcement::Replaced)
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The sender lives as long as the issuer, which the caller holds. The caller's timers go on
            // regardless.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
