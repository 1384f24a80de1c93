//! Letting a proxy in: its certificate, the ledger and the mesh together say who it is.
//!
//! Owns the waiting around [`smc_mesh::pki::admit`], which decides; a connection without a certificate that could ever be
//! admitted does not get that far. Nothing is answered before a world has been published, that is, before the sources
//! have synced.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use smc_mesh::ids::ProxyName;
use smc_mesh::pki::{Admission, Identified, KnownWorkload, PeerCertificate, Refusal, admit, identify};
use smc_mesh::world::World;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::proxies::Connected;
use super::stream::Context;
use crate::ca::CaError;
use crate::ca::verify::{UnreadableCertificate, peer_certificate};
use crate::error::causes;

/// How long a proxy may be ahead of the news of its own pod. Refusing at once would cost it a back-off of
/// seconds at the very start.
const POD_PATIENCE: Duration = Duration::from_secs(5);

/// Why a proxy was not let in.
#[derive(Debug, Error)]
pub(super) enum NotAdmitted {
    #[error("the client presented no certificate")]
    NoCertificate,
    #[error("the client's certificate cannot be read")]
    Unreadable(#[from] UnreadableCertificate),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the certificate authority cannot say whether the certificate is good")]
    Authority(#[from] CaError),
    #[error("the server is shutting down")]
    Draining,
}

impl NotAdmitted {
    /// What the proxy is told. Envoy tries again after any of these, with its back-off.
    pub(super) fn status(&self) -> Status {
        let text = causes(self);
        match self {
            Self::NoCertificate | Self::Unreadable(_) => Status::unauthenticated(text),
            Self::Refused(refusal) if refusal.temporary() => Status::unavailable(text),
            Self::Refused(_) => Status::permission_denied(text),
            // Why the authority failed is for the operator, not for a proxy.
            Self::Authority(_) => Status::unavailable("the certificate authority is not available"),
            Self::Draining => Status::unavailable(text),
        }
    }

    /// The label it is counted under.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Unreadable(_) => "unreadable_certificate",
            Self::Refused(refusal) => refusal_reason(refusal),
            Self::Authority(_) => "authority_unavailable",
            Self::Draining => "draining",
        }
    }
}

/// Reads the leaf of the chain that a peer showed, of which the handshake has verified that the mesh's CA signed it,
/// and enters the connection under the name of its proxy, if the certificate is good so far.
pub(super) async fn identified(
    context: &Context,
    connected: &mut Connected,
    chain: &[CertificateDer<'_>],
) -> Result<PeerCertificate, NotAdmitted> {
    let certificate = peer_certificate(chain.first().ok_or(NotAdmitted::NoCertificate)?)?;
    let look = || context.ca.ledger().read(|ledger| identify(&certificate, ledger, context.env.now()));
    if let Err(Refusal::NotIssued { .. }) = look() {
        // Another replica may have issued it a moment ago.
        context.ca.barrier().await?;
    }
    let Identified { proxy, serial, .. } = look()?;
    connected.identify(&proxy, serial);
    // A release between the look and the entry did not find this connection to close it.
    look()?;
    Ok(certificate)
}

/// Waits for a world, admits the peer, and makes the claim a recorded fact.
pub(super) async fn admitted(
    context: &Context,
    certificate: &PeerCertificate,
    worlds: &mut watch::Receiver<Option<Arc<World>>>,
) -> Result<Admission, NotAdmitted> {
    worlds.wait_for(Option::is_some).await.map_err(|_| NotAdmitted::Draining)?;
    let patience = Instant::now() + POD_PATIENCE;
    let admission = loop {
        let world = worlds.borrow_and_update().clone();
        match check(context, certificate, world.as_deref()) {
            Err(refusal) if refusal.temporary() => match timeout_at(patience, worlds.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(NotAdmitted::Draining),
                Err(_) => return Err(refusal.into()),
            },
            decided => break decided?,
        }
    };
    if admission.first_claim {
        // Nothing is served before the claim is committed; what was released meanwhile cannot be claimed.
        match context.ca.claim(admission.serial).await {
            // What it was rejected for is in the ledger here by now.
            Err(rejected @ CaError::Rejected { .. }) => {
                check(context, certificate, worlds.borrow().as_deref())?;
                return Err(rejected.into());
            }
            claimed => claimed?,
        };
        return Ok(admission);
    }
    // This replica may not have heard of a release yet.
    context.ca.barrier().await?;
    Ok(check(context, certificate, worlds.borrow().as_deref())?)
}

/// Whether the holder of this certificate belongs here, by the ledger and `world` as they are now.
pub(super) fn check(
    context: &Context,
    certificate: &PeerCertificate,
    world: Option<&World>,
) -> Result<Admission, Refusal> {
    let find = |proxy: &ProxyName| {
        let known = world?.proxies.get(proxy)?;
        Some(KnownWorkload { workload: known.workload.clone(), service_account: known.class.account.clone() })
    };
    let now = context.env.now();
    context.ca.ledger().read(|ledger| admit(certificate, ledger, find, now))
}

fn refusal_reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::OtherKind(_) => "other_kind",
        Refusal::BadName(_) => "bad_name",
        Refusal::NotIssued { .. } => "not_issued",
        Refusal::NotTheIssued { .. } => "not_the_issued",
        Refusal::Released { .. } => "released",
        Refusal::NotNow { .. } => "not_now",
        Refusal::NoWorkload(_) => "no_workload",
        Refusal::OtherAccount { .. } => "other_account",
        Refusal::NoAccount { .. } => "no_account",
        Refusal::OtherPod(_) => "other_pod",
        Refusal::OtherNode { .. } => "other_node",
    }
}
