//! TLS of the servers of a replica.
//!
//! Owns a server's certificate and its renewal, and which clients pass the handshake. At the xDS port these
//! are clients with a certificate of this mesh; [`smc_authority::rules::admit`] then decides which proxy the
//! client is and whether it is admitted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use smc_authority::pki::{TrustBundle, Validity, renewal_is_due, renewal_time};
use smc_host::env::{Clock, Env};
use smc_host::tasks::Tasks;
use smc_types::time::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::RECHECK;
use super::error::CaError;
use super::issuer::{ControllerNames, IssuedController, Issuer, authority_changed};
use super::renewal::RETRY;

/// The clients that pass a server's handshake.
#[derive(Debug, Clone)]
pub enum Clients {
    /// Those with a certificate of this mesh. They speak HTTP/2.
    Mesh,
    /// Those with a certificate of one of these CAs. They speak HTTP/2 or HTTP/1.1.
    Of(Arc<RootCertStore>),
    /// All, over HTTP/2 or HTTP/1.1.
    All,
}

/// A TLS configuration whose certificate is renewed while [`ServerTls::run`] runs.
pub struct ServerTls {
    issuer: Arc<dyn Issuer>,
    env: Env,
    names: ControllerNames,
    clients: Clients,
    serving: watch::Sender<Serving>,
}

struct Serving {
    config: Arc<ServerConfig>,
    issued: IssuedController,
    /// The roots that client certificates are verified against.
    bundle: TrustBundle,
}

impl Serving {
    fn new(
        issued: IssuedController,
        bundle: TrustBundle,
        clients: &Clients,
        env: &Env,
    ) -> Result<Self, CaError> {
        let config = Arc::new(server_config(&issued, &bundle, clients, Arc::clone(&env.clock))?);
        Ok(Self { config, issued, bundle })
    }

    fn renewal(&self) -> Timestamp {
        renewal_time(&self.issued.serial, self.issued.issued_at, &self.issued.validity)
    }
}

impl ServerTls {
    /// Issues the first certificate of a server for clients of this mesh.
    pub async fn start(issuer: Arc<dyn Issuer>, env: Env, names: ControllerNames) -> Result<Self, CaError> {
        Self::start_for(Clients::Mesh, issuer, env, names).await
    }

    /// Issues the first certificate of a server for these clients.
    pub async fn start_for(
        clients: Clients,
        issuer: Arc<dyn Issuer>,
        env: Env,
        names: ControllerNames,
    ) -> Result<Self, CaError> {
        let bundle = issuer.bundle();
        let serving = Serving::new(issuer.issue_controller(&names).await?, bundle, &clients, &env)?;
        Ok(Self { issuer, env, names, clients, serving: watch::Sender::new(serving) })
    }

    /// Starts the task that renews the certificate, under this name.
    pub fn start_renewal(self: &Arc<Self>, task: &'static str, tasks: &mut Tasks) {
        let tls = Arc::clone(self);
        tasks.spawn(task, |stopping| async move { tls.run(stopping).await });
    }

    /// The configuration for the next connection. Open connections keep theirs.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.serving.borrow().config)
    }

    /// The validity of the server's certificate.
    pub fn validity(&self) -> Validity {
        self.serving.borrow().issued.validity
    }

    /// Whether the client certificate of the next connection is verified against this bundle.
    pub fn trusts(&self, bundle: &TrustBundle) -> bool {
        self.serving.borrow().bundle == *bundle
    }

    /// Renews the certificate in time and follows changes of the CAs, until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut announcements = self.issuer.announcements();
        let mut failures = 0u32;
        loop {
            let left = self.serving.borrow().renewal().since(self.env.now());
            let pause = match failures.checked_sub(1) {
                Some(attempt) => RETRY.wait_with_jitter(attempt, self.env.random_u64().unwrap_or(0)),
                None => left.min(RECHECK),
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = authority_changed(&mut announcements) => {}
                () = tokio::time::sleep(pause) => {}
            }
            match self.renew_if_due().await {
                Ok(_) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "cannot renew the server's own certificate; will retry");
                }
            }
        }
    }

    /// Takes the issuer's current bundle, and renews the certificate if it is due or another CA signs now.
    /// Returns whether the certificate was renewed.
    pub(super) async fn renew_if_due(&self) -> Result<bool, CaError> {
        let bundle = self.issuer.bundle();
        if !self.trusts(&bundle) {
            let issued = self.serving.borrow().issued.clone();
            self.serving.send_replace(Serving::new(issued, bundle, &self.clients, &self.env)?);
        }
        let due = {
            let serving = self.serving.borrow();
            renewal_is_due(&serving.issued.validity, serving.renewal(), self.env.now())
                || self.issuer.controllers_issuer().is_some_and(|issuer| issuer != serving.issued.issuer)
        };
        if due {
            let bundle = self.issuer.bundle();
            let issued = self.issuer.issue_controller(&self.names).await?;
            self.serving.send_replace(Serving::new(issued, bundle, &self.clients, &self.env)?);
        }
        Ok(due)
    }
}

/// TLS 1.2 and 1.3. Sessions are not resumed: resumption would skip the verification of the client
/// certificate, and connections live for hours anyway.
fn server_config(
    issued: &IssuedController,
    bundle: &TrustBundle,
    clients: &Clients,
    clock: Arc<dyn Clock>,
) -> Result<ServerConfig, CaError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verified = |roots| {
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        builder.build().map_err(tls)
    };
    let verifier = match clients {
        Clients::Mesh => verified(Arc::new(roots(bundle)?))?,
        Clients::Of(roots) => verified(Arc::clone(roots))?,
        Clients::All => WebPkiClientVerifier::no_client_auth(),
    };
    let chain = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(tls)?;
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).map_err(tls)?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(EnvTime(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(tls)?;
    config.alpn_protocols = match clients {
        Clients::Mesh => vec![b"h2".to_vec()],
        Clients::Of(_) | Clients::All => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn roots(bundle: &TrustBundle) -> Result<RootCertStore, CaError> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.pem.as_bytes()) {
        roots.add(root.map_err(tls)?).map_err(tls)?;
    }
    Ok(roots)
}

fn tls(error: impl std::error::Error + Send + Sync + 'static) -> CaError {
    CaError::Tls(Box::new(error))
}

/// The clock of [`Env`], for the verification of certificates.
struct EnvTime(Arc<dyn Clock>);

impl fmt::Debug for EnvTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvTime")
    }
}

impl TimeProvider for EnvTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
