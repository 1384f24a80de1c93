//! Issuing and renewing service certificates.
//!
//! Owns the task that carries out [`Issuer::plan_renewal`]: it issues missing certificates, renews those
//! that are due, and publishes the current certificate of each identity once, or its removal. Certificates
//! that exist already are published as they are, so that a restart changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_authority::pki::{SerialNumber, ServiceCertificate};
use smc_authority::rules::WantedCertificates;
use smc_host::backoff::Backoff;
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_types::ids::ServiceAccountId;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::RECHECK;
use super::error::CaError;
use super::issuer::{Announcement, IssuedService, Issuer};

/// Certificates issued at the same time. Each spends most of its time waiting for a synced write, and those
/// that wait together share one; more would only wait longer.
const CONCURRENT: usize = 64;

/// The waits before a failed issuance is retried.
pub(super) const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The published certificate of each identity.
type Published = BTreeMap<ServiceAccountId, SerialNumber>;

/// The result of an issuing task.
type Issuance = (ServiceAccountId, Result<IssuedService, CaError>);

/// The result of one round.
#[derive(Clone, Copy)]
enum Round {
    /// Every due certificate was issued and published.
    Done,
    /// At least one has to be retried.
    Failed,
}

impl Round {
    fn and(self, other: Self) -> Self {
        match self {
            Self::Done => other,
            Self::Failed => Self::Failed,
        }
    }
}

/// The receiver of certificates was dropped.
struct ReceiverClosed;

/// Keeps every wanted identity supplied with a current certificate.
pub struct Renewer {
    /// Issues the certificates.
    pub issuer: Arc<dyn Issuer>,
    /// The clock, and randomness for jitter.
    pub env: Env,
    /// The identities that exist, and the lifetime of their certificates.
    pub wanted: watch::Receiver<WantedCertificates>,
    /// Receives the current certificate of each wanted identity, every new one, and `None` when an identity
    /// is no longer wanted, since its certificate will not be renewed. The channel's bound is the
    /// back-pressure on issuing.
    pub issued: mpsc::Sender<(ServiceAccountId, Option<ServiceCertificate>)>,
}

impl Renewer {
    /// Starts the task.
    pub fn start(self, tasks: &mut Tasks) {
        tasks.spawn("certificate renewal", |stopping| self.run(stopping));
    }

    /// Runs until `shutdown`, or until the receiver of certificates is dropped. Failed issuances are
    /// retried with back-off; the current certificate stays in use meanwhile.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut announcements = self.issuer.announcements();
        let mut published = Published::new();
        let mut failures = 0u32;
        loop {
            let round = tokio::select! {
                () = shutdown.cancelled() => return,
                round = self.round(&mut published, &mut announcements) => round,
            };
            failures = match round {
                Ok(Round::Done) => 0,
                Ok(Round::Failed) => failures.saturating_add(1),
                Err(ReceiverClosed) => return,
            };
            let pause = self.pause(failures);
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = service_issued(&mut announcements), if failures == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Issues and publishes until every wanted certificate is current or has failed once. Follows changes
    /// of the wanted identities meanwhile; a slow issuance delays no other identity.
    async fn round(
        &mut self,
        published: &mut Published,
        announcements: &mut broadcast::Receiver<Announcement>,
    ) -> Result<Round, ReceiverClosed> {
        let mut issuing = JoinSet::new();
        // A failed identity is retried in the next round, after a pause.
        let mut tried = BTreeSet::new();
        let mut outcome = Round::Done;
        let wanted = 'wanted: loop {
            let wanted = self.wanted.borrow_and_update().clone();
            // Existing certificates first, so that after a restart they do not wait for new ones.
            outcome = outcome.and(self.publish(&wanted.accounts, published).await?);
            let mut plan = self.issuer.plan_renewal(&wanted);
            plan.begin_at(self.env.random_u64().unwrap_or_default());
            let mut due = plan.due.into_iter();
            loop {
                while issuing.len() < CONCURRENT
                    && let Some(account) = due.next()
                {
                    if !self.is_due(&wanted, &account) {
                        // Another replica was faster.
                        if let Ok(Some(issued)) = self.issuer.service(&account) {
                            self.publish_new(account, issued, published).await?;
                        }
                    } else if tried.insert(account.clone()) {
                        let (issuer, lifetime) = (Arc::clone(&self.issuer), wanted.lifetime);
                        issuing.spawn(async move {
                            let issued = issuer.issue_service(&account, lifetime).await;
                            (account, issued)
                        });
                    }
                }
                tokio::select! {
                    changed = self.wanted.changed() => match changed {
                        Ok(()) => continue 'wanted,
                        Err(_) => return Err(ReceiverClosed),
                    },
                    joined = issuing.join_next() => match joined {
                        None => break 'wanted wanted.accounts,
                        Some(joined) => match successful(joined) {
                            Some((account, issued)) if wanted.accounts.contains(&account) => {
                                self.publish_new(account, issued, published).await?;
                            }
                            Some(_) => {}
                            None => outcome = Round::Failed,
                        },
                    },
                }
            }
        };
        // Every certificate announced up to here is on record, so the next line publishes it.
        *announcements = announcements.resubscribe();
        Ok(outcome.and(self.publish(&wanted, published).await?))
    }

    /// Whether the identity is still due. A long plan may be outdated.
    fn is_due(&self, wanted: &WantedCertificates, account: &ServiceAccountId) -> bool {
        let accounts = BTreeSet::from([account.clone()]);
        let alone = WantedCertificates { accounts, lifetime: wanted.lifetime };
        !self.issuer.plan_renewal(&alone).due.is_empty()
    }

    /// Publishes the current certificates that are not published yet, and the removal of identities no
    /// longer wanted.
    async fn publish(
        &self,
        wanted: &BTreeSet<ServiceAccountId>,
        published: &mut Published,
    ) -> Result<Round, ReceiverClosed> {
        let unwanted: Vec<_> =
            published.keys().filter(|account| !wanted.contains(account)).cloned().collect();
        for account in unwanted {
            published.remove(&account);
            self.issued.send((account, None)).await.map_err(|_| ReceiverClosed)?;
        }
        let now = self.env.now();
        let mut outcome = Round::Done;
        for account in wanted {
            let Some((serial, validity)) = self.issuer.service_validity(account) else { continue };
            if !validity.contains(now) || published.get(account) == Some(&serial) {
                continue;
            }
            match self.issuer.service(account) {
                Ok(Some(issued)) => self.send(account.clone(), issued, published).await?,
                Ok(None) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(%account, error, "cannot read a service certificate");
                    outcome = Round::Failed;
                }
            }
        }
        Ok(outcome)
    }

    /// Publishes a certificate that was just issued, unless it is published already or is no longer the
    /// current one: an identity must not go back to an older certificate.
    async fn publish_new(
        &self,
        account: ServiceAccountId,
        issued: IssuedService,
        published: &mut Published,
    ) -> Result<(), ReceiverClosed> {
        let current = self.issuer.service_validity(&account).map(|(serial, _)| serial);
        if current != Some(issued.serial) || published.get(&account) == Some(&issued.serial) {
            return Ok(());
        }
        self.send(account, issued, published).await
    }

    async fn send(
        &self,
        account: ServiceAccountId,
        issued: IssuedService,
        published: &mut Published,
    ) -> Result<(), ReceiverClosed> {
        published.insert(account.clone(), issued.serial);
        self.issued.send((account, Some(issued.certificate))).await.map_err(|_| ReceiverClosed)
    }

    /// The time until the next certificate falls due, or until failed issuances are retried.
    fn pause(&self, failures: u32) -> Duration {
        if let Some(attempt) = failures.checked_sub(1) {
            return RETRY.wait_with_jitter(attempt, self.env.random_u64().unwrap_or(0));
        }
        let now = self.env.now();
        let plan = self.issuer.plan_renewal(&self.wanted.borrow());
        let next = if plan.due.is_empty() { plan.next } else { Some(now) };
        // At least one second, the resolution of the clock.
        next.map_or(RECHECK, |next| next.since(now).clamp(Duration::from_secs(1), RECHECK))
    }
}

/// Waits until another replica or an operator issued a service certificate, or the CAs changed.
async fn service_issued(announcements: &mut broadcast::Receiver<Announcement>) {
    loop {
        match announcements.recv().await {
            Ok(
                Announcement::ServiceIssued { .. } | Announcement::AuthorityChanged | Announcement::Replaced,
            )
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The sender lives as long as the issuer, which the renewer holds. The timer goes on regardless.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The certificate of a successful issuing task. Logs a failure.
fn successful(joined: Result<Issuance, JoinError>) -> Option<(ServiceAccountId, IssuedService)> {
    match joined {
        Ok((account, Ok(issued))) => Some((account, issued)),
        Ok((account, Err(error))) => {
            let (transient, error) = (error.is_transient(), &error as &dyn std::error::Error);
            tracing::warn!(%account, transient, error, "cannot issue a service certificate; will retry");
            None
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "an issuing task failed");
            None
        }
    }
}
