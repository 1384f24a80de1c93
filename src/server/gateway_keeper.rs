//! Keeps the certificate of an ingress gateway: issues it when it is due, and hands it to the platform.
//!
//! Owns the order. A certificate is on record, with its sealed key, before its Secret is written, so that any
//! leader can write the Secret again; a Secret goes before its record does, so that none is left behind.
//! [`smc_authority::rules::plan_gateways`] decides what is due.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_authority::ledger::Rejection;
use smc_authority::pki::{SerialNumber, ServiceCertificate, TrustBundle};
use smc_authority::rules::{IngressGateway, WantedGateway};
use smc_host::backoff::Backoff;
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_issuing::issuer::authority_changed;
use smc_issuing::{BuiltinCa, CaError, Issuer};
use smc_raft::{Group, ProposeError, ReplicatedLedger};
use smc_types::causes::causes;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Subject};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::problems::Problems;
use crate::publisher::DeclaredGateway;

/// How often a Secret is written that nothing has changed of: a person may have deleted or changed it. The
/// leader may not read it. An API server stores nothing where the content is the same.
pub const REWRITE: Duration = Duration::from_mins(1);

/// The waits after a failure.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The content of a gateway's Secret.
#[derive(Debug, Clone)]
pub struct GatewaySecret {
    /// The roots by which the gateway verifies the mesh.
    pub roots: TrustBundle,
    /// What it shows to the mesh.
    pub certificate: ServiceCertificate,
}

/// A Secret cannot be written or deleted.
pub type SecretFailure = Box<dyn Error + Send + Sync>;

/// Where a platform keeps the certificates of gateways.
pub trait GatewaySecrets: Send + Sync {
    /// Writes the Secret, whether or not it is there.
    fn write<'a>(
        &'a self,
        secret: &'a NamespacedName,
        content: &'a GatewaySecret,
    ) -> BoxFuture<'a, Result<(), SecretFailure>>;

    /// Deletes the Secret if it is this mesh's.
    fn delete<'a>(&'a self, secret: &'a NamespacedName) -> BoxFuture<'a, Result<Deleted, SecretFailure>>;
}

/// What became of a Secret that is not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or was not there.
    Gone,
    /// It is there and not this mesh's, and is left as it is.
    Left,
}

/// On machines there are no Secrets: a gateway's certificate is asked for at the administration socket.
impl GatewaySecrets for () {
    fn write<'a>(
        &'a self,
        _: &'a NamespacedName,
        _: &'a GatewaySecret,
    ) -> BoxFuture<'a, Result<(), SecretFailure>> {
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, _: &'a NamespacedName) -> BoxFuture<'a, Result<Deleted, SecretFailure>> {
        Box::pin(async { Ok(Deleted::Gone) })
    }
}

/// What the certificate of a gateway waits for.
#[derive(Debug, Error)]
enum Obstacle {
    #[error("waits until every controller runs a version that makes certificates for gateways")]
    Rules,
    #[error("cannot keep the certificate of the gateway")]
    Authority(#[from] CaError),
    #[error("cannot keep the certificate of the gateway: the group does not confirm what is on record")]
    Group(#[from] ProposeError),
    #[error("has a certificate for the gateway, and Secret {secret} cannot be written")]
    Write { secret: NamespacedName, source: SecretFailure },
    #[error("asks for Secret {secret} no more, and it cannot be deleted")]
    Delete { secret: NamespacedName, source: SecretFailure },
}

/// Keeps the certificates of gateways. Each replica has one, and that of the leader acts.
pub struct GatewayKeeper {
    pub(crate) ca: Arc<BuiltinCa>,
    pub(crate) group: Arc<Group>,
    pub(crate) declared: watch::Receiver<Option<DeclaredGateway>>,
    pub(crate) problems: Problems,
    pub(crate) env: Env,
}

/// What the leader wrote last, and when.
type Written = Option<(SerialNumber, TrustBundle, Instant)>;

impl GatewayKeeper {
    /// Starts the task.
    pub fn start(self, secrets: Box<dyn GatewaySecrets>, tasks: &mut Tasks) {
        tasks.spawn("gateways' certificates", |stopping| self.run(secrets, stopping));
    }

    async fn run(mut self, secrets: Box<dyn GatewaySecrets>, stopping: CancellationToken) {
        let mut announcements = self.ca.announcements();
        let keeping = async {
            let (mut written, mut failures) = (None, 0_u32);
            loop {
                // Read before the step, so that a change of leader during the step is not missed.
                let status = self.group.status();
                let declared = self.declared.borrow_and_update().clone();
                let mut pause = REWRITE;
                match declared.filter(|_| status.leads()) {
                    None => {
                        (written, failures) = (None, 0);
                        self.problems.set_gateways(None);
                    }
                    Some(declared) => {
                        let kept = self.keep(&declared.certificate, &*secrets, &mut written).await;
                        self.report(&declared, kept.as_ref().err());
                        failures = if let Ok(next) = kept {
                            pause = next;
                            0
                        } else {
                            pause = RETRY.wait_with_jitter(failures, self.env.random_u64().unwrap_or(0));
                            failures.saturating_add(1)
                        };
                    }
                }
                tokio::select! {
                    () = authority_changed(&mut announcements) => {}
                    () = self.group.leader_changed(status.leader) => {}
                    changed = self.declared.changed() => if changed.is_err() {
                        // The replica is shutting down.
                        std::future::pending::<()>().await;
                    },
                    () = sleep(pause) => {}
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = keeping => {}
        }
    }

    /// Does what is due. Returns the time until the next step. What is asked for comes before what is not
    /// wanted any more goes, unless the record is full of it.
    async fn keep(
        &self,
        asked: &IngressGateway,
        secrets: &dyn GatewaySecrets,
        written: &mut Written,
    ) -> Result<Duration, Obstacle> {
        let is_idle = match asked {
            IngressGateway::Unreadable => true,
            // In most meshes: nothing is asked of the group.
            IngressGateway::Absent => self.ca.plan_gateways(asked).unwanted.is_empty(),
            IngressGateway::Wanted(_) => false,
        };
        if is_idle {
            return Ok(REWRITE);
        }
        // A replica that does not know yet that another one leads has former records and roots.
        self.group.barrier().await?;
        if let IngressGateway::Wanted(wanted) = asked {
            match self.supply(wanted, secrets, written).await {
                Err(Obstacle::Authority(CaError::Rejected { source: Rejection::Full { .. }, .. })) => {
                    self.clear(asked, secrets, written).await?;
                    self.supply(wanted, secrets, written).await?;
                }
                supplied => supplied?,
            }
        }
        self.clear(asked, secrets, written).await?;
        // At least one second, the resolution of the clock.
        let next = self.ca.plan_gateways(asked).next;
        let next = next.map_or(REWRITE, |next| next.since(self.env.now()));
        Ok(next.clamp(Duration::from_secs(1), REWRITE))
    }

    /// Issues the wanted certificate if it is due, and writes its Secret if it may have changed.
    async fn supply(
        &self,
        wanted: &Arc<WantedGateway>,
        secrets: &dyn GatewaySecrets,
        written: &mut Written,
    ) -> Result<(), Obstacle> {
        let plan = self.ca.plan_gateways(&IngressGateway::Wanted(Arc::clone(wanted)));
        if plan.waits_for_rules {
            return Err(Obstacle::Rules);
        }
        let issued = if plan.due { self.ca.issue_gateway(wanted).await } else { Ok(()) };
        if plan.due && issued.is_ok() {
            info!(secret = %wanted.secret, names = ?wanted.names, "issued a certificate for a gateway");
        }
        // Where it cannot be renewed, the one that is valid is kept up.
        let Some(current) = self.ca.gateway(wanted)? else { return Ok(issued?) };
        let roots = self.ca.bundle();
        let is_written = written.as_ref().is_some_and(|(serial, trusted, at)| {
            *serial == current.serial && *trusted == roots && at.elapsed() < REWRITE
        });
        if !is_written {
            let content = GatewaySecret { roots: roots.clone(), certificate: current.certificate };
            let secret = &wanted.secret;
            let wrote = secrets.write(secret, &content).await;
            wrote.map_err(|source| Obstacle::Write { secret: secret.clone(), source })?;
            *written = Some((current.serial, roots, Instant::now()));
        }
        Ok(issued?)
    }

    /// Deletes the Secrets that are not wanted, and then their records. One that stays keeps no other.
    async fn clear(
        &self,
        asked: &IngressGateway,
        secrets: &dyn GatewaySecrets,
        written: &mut Written,
    ) -> Result<(), Obstacle> {
        let mut cleared = Ok(());
        for (secret, serial) in self.ca.plan_gateways(asked).unwanted {
            *written = None;
            match secrets.delete(&secret).await {
                Ok(Deleted::Gone) => {
                    info!(%secret, "deleted the certificate of a gateway that is not wanted");
                }
                Ok(Deleted::Left) => warn!(%secret, "left a Secret that is not wanted, and not this mesh's"),
                Err(source) => {
                    cleared = cleared.and(Err(Obstacle::Delete { secret, source }));
                    continue;
                }
            }
            let forgotten = self.ca.forget_gateway(&secret, serial).await;
            cleared = cleared.and(forgotten.map_err(Obstacle::from));
        }
        cleared
    }

    fn report(&self, declared: &DeclaredGateway, obstacle: Option<&Obstacle>) {
        let problem = obstacle.map(|obstacle| {
            let text = causes(obstacle);
            warn!(error = text, "cannot keep the certificate of a gateway; will retry");
            let config = declared.by.clone().map(|name| ObjectRef::Namespaced(Kind::MeshConfig, name));
            let subject = config.map_or(Subject::Mesh, Subject::Object);
            Problem::error(subject, "spec.certificate.ingressGateway", text)
        });
        self.problems.set_gateways(problem);
    }
}

#[cfg(test)]
mod tests;
