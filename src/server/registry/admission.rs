//! Admits proxies: the certificate, the ledger and the mesh together decide which proxy a peer is.
//!
//! Owns the waiting around [`smc_authority::rules::admit`], which decides. A peer whose certificate can
//! never be admitted fails [`ProxyAdmission::identify`]. No peer is admitted before the sources have
//! synced.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use smc_authority::pki::SerialNumber;
use smc_authority::rules::{Admission, Identified, KnownWorkload, PeerCertificate, Refusal, admit, identify};
use smc_host::env::Env;
use smc_issuing::verify::{UnreadableCertificate, peer_certificate};
use smc_issuing::{CaError, ProxyCertificates};
use smc_types::causes::causes;
use smc_types::ids::ProxyName;
use smc_xds::served_state::ServedState;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// How long a proxy may connect before the news of its own pod arrives. An immediate refusal would cost
/// it a back-off of seconds at its very start.
const POD_PATIENCE: Duration = Duration::from_secs(5);

/// The reason why a proxy is not admitted.
#[derive(Debug, Error)]
pub(crate) enum NotAdmitted {
    #[error("the client presented no certificate")]
    NoCertificate,
    #[error("the client's certificate cannot be read")]
    Unreadable(#[from] UnreadableCertificate),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the certificate authority cannot check the certificate")]
    Authority(#[from] CaError),
    #[error("the server is shutting down")]
    Draining,
}

impl NotAdmitted {
    /// The gRPC status for the proxy. Envoy retries after any of these, with its back-off.
    pub(crate) fn status(&self) -> Status {
        let text = causes(self);
        match self {
            Self::NoCertificate | Self::Unreadable(_) => Status::unauthenticated(text),
            Self::Refused(refusal) if refusal.temporary() => Status::unavailable(text),
            Self::Refused(_) => Status::permission_denied(text),
            // The cause concerns the operator, not the proxy.
            Self::Authority(_) => Status::unavailable("the certificate authority is not available"),
            Self::Draining => Status::unavailable(text),
        }
    }

    /// The label of the metric.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Unreadable(_) => "unreadable_certificate",
            Self::Refused(refusal) => refusal_reason(refusal),
            Self::Authority(_) => "authority_unavailable",
            Self::Draining => "draining",
        }
    }
}

/// Admits proxies by the ledger of one replica.
pub(crate) struct ProxyAdmission {
    certificates: ProxyCertificates,
    env: Env,
}

impl ProxyAdmission {
    pub(crate) fn new(certificates: ProxyCertificates, env: Env) -> Self {
        Self { certificates, env }
    }

    /// Reads the leaf of a chain that the TLS handshake verified against the mesh's CA, and calls
    /// `enter` with the proxy's name if the certificate is issued, not released and not expired.
    pub(crate) async fn identify(
        &self,
        chain: &[CertificateDer<'_>],
        enter: impl FnOnce(&ProxyName, SerialNumber) + Send,
    ) -> Result<PeerCertificate, NotAdmitted> {
        let certificate = peer_certificate(chain.first().ok_or(NotAdmitted::NoCertificate)?)?;
        let look_up =
            || self.certificates.ledger().read(|ledger| identify(&certificate, ledger, self.env.now()));
        if let Err(Refusal::NotIssued { .. }) = look_up() {
            // Another replica may have issued it a moment ago.
            self.certificates.barrier().await?;
        }
        let Identified { proxy, serial, .. } = look_up()?;
        enter(&proxy, serial);
        // A release between the look-up and the entry did not find this connection to close it.
        look_up()?;
        Ok(certificate)
    }

    /// Waits for a synced state, admits the peer, and commits its claim of the certificate.
    pub(crate) async fn admit(
        &self,
        certificate: &PeerCertificate,
        served: &mut watch::Receiver<Option<Arc<ServedState>>>,
    ) -> Result<Admission, NotAdmitted> {
        served.wait_for(Option::is_some).await.map_err(|_| NotAdmitted::Draining)?;
        let deadline = Instant::now() + POD_PATIENCE;
        let admission = loop {
            let state = served.borrow_and_update().clone();
            match self.check(certificate, state.as_deref()) {
                Err(refusal) if refusal.temporary() => match timeout_at(deadline, served.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(NotAdmitted::Draining),
                    Err(_) => return Err(refusal.into()),
                },
                decided => break decided?,
            }
        };
        if admission.first_claim {
            // Nothing is served before the claim is committed; a certificate released meanwhile cannot
            // be claimed.
            match self.certificates.claim(admission.serial).await {
                // The ledger of this replica has the cause by now.
                Err(rejected @ CaError::Rejected { .. }) => {
                    self.check(certificate, served.borrow().as_deref())?;
                    return Err(rejected.into());
                }
                claimed => claimed?,
            };
            return Ok(admission);
        }
        // This replica may not have applied a release yet.
        self.certificates.barrier().await?;
        Ok(self.check(certificate, served.borrow().as_deref())?)
    }

    /// Returns which proxy the certificate is for, according to the ledger and `state` as they are now.
    pub(crate) fn check(
        &self,
        certificate: &PeerCertificate,
        state: Option<&ServedState>,
    ) -> Result<Admission, Refusal> {
        let find = |proxy: &ProxyName| {
            let known = state?.proxies.get(proxy)?;
            let service_account = known.class.account.clone();
            Some(KnownWorkload { workload: known.workload.clone(), service_account })
        };
        let now = self.env.now();
        self.certificates.ledger().read(|ledger| admit(certificate, ledger, find, now))
    }
}

fn refusal_reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::OtherKind(_) => "other_kind",
        Refusal::BadName(_) => "bad_name",
        Refusal::NotIssued { .. } => "not_issued",
        Refusal::NotTheIssued { .. } => "not_the_issued",
        Refusal::Released { .. } => "released",
        Refusal::NotClaimedInTime { .. } => "not_claimed_in_time",
        Refusal::NotNow { .. } => "not_now",
        Refusal::NoWorkload(_) => "no_workload",
        Refusal::OtherAccount { .. } => "other_account",
        Refusal::NoAccount { .. } => "no_account",
        Refusal::OtherPod(_) => "other_pod",
        Refusal::OtherNode { .. } => "other_node",
    }
}
