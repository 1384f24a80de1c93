//! Keeping every identity in certificates.
//!
//! Owns the task that does what [`plan_rotation`] says: issue what is missing, renew what ends, and hand the
//! current certificate of each identity on, once and as soon as it is there, and that it has none when it is gone. What
//! the ledger holds already is handed on as it is, so a restart changes nothing for anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_mesh::ids::ServiceAccountId;
use smc_mesh::pki::{
    SerialNumber, ServiceCertificate, Steadiness, WantedCertificates, plan_rotation, retry_delay,
};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::CaError;
use super::manager::{Announcement, CertificateManager, IssuedService};
use crate::env::Env;

/// Certificates that are issued at the same time. Each waits for a synced write most of its life, and those
/// that wait together share one; more would only wait longer.
const CONCURRENT: usize = 64;

/// The longest sleep. The wall clock may jump, and the timer does not know.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How often ended records are forgotten.
const PRUNE_EVERY: Duration = Duration::from_hours(1);

/// The certificate that each identity has.
type HandedOn = BTreeMap<ServiceAccountId, SerialNumber>;

/// What an issuing task returns.
type Issuance = (ServiceAccountId, Result<IssuedService, CaError>);

/// How a round went.
#[derive(Clone, Copy)]
enum Round {
    /// All is as it should be.
    Done,
    /// Something is to be tried again.
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

/// Nobody takes certificates any more.
struct Unwanted;

/// When ended records were and may be forgotten.
struct Pruning {
    steadiness: Steadiness,
    /// Where the monotonic clock counts from.
    began: Instant,
    last: Option<Instant>,
}

/// See the module.
pub struct Rotator {
    /// Who issues.
    pub manager: Arc<dyn CertificateManager>,
    /// The time, and jitter.
    pub env: Env,
    /// The identities that exist, and how long their certificates are to live.
    pub wanted: watch::Receiver<WantedCertificates>,
    /// Where current certificates go: each identity's when it is first wanted, and every new one; and `None` when it
    /// is not wanted any more, so that nobody keeps one that will not be renewed. The bound of this channel is the
    /// back-pressure on issuing.
    pub issued: mpsc::Sender<(ServiceAccountId, Option<ServiceCertificate>)>,
}

impl Rotator {
    /// Runs until `shutdown` or until nobody wants certificates any more. Issuing goes on being tried when
    /// it fails; what is current stays current meanwhile.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut announcements = self.manager.announcements();
        let mut handed_on = HandedOn::new();
        let mut pruning = Pruning { steadiness: Steadiness::default(), began: Instant::now(), last: None };
        let mut failures = 0u32;
        loop {
            let round = tokio::select! {
                () = shutdown.cancelled() => return,
                round = self.round(&mut handed_on, &mut announcements) => round,
            };
            failures = match round {
                Ok(Round::Done) => 0,
                Ok(Round::Failed) => failures.saturating_add(1),
                Err(Unwanted) => return,
            };
            self.prune(&mut pruning).await;
            let pause = self.pause(failures);
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = service_issued(&mut announcements), if failures == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Issues what is due and hands on what is there, until all that is wanted is at rest. What is wanted may change
    /// meanwhile; whose certificate takes long to issue keeps nobody else waiting.
    async fn round(
        &mut self,
        handed_on: &mut HandedOn,
        announcements: &mut broadcast::Receiver<Announcement>,
    ) -> Result<Round, Unwanted> {
        let mut at_work = JoinSet::new();
        // Who fails is tried again in the next round, after a pause.
        let mut tried = BTreeSet::new();
        let mut outcome = Round::Done;
        let wanted = 'wanted: loop {
            let wanted = self.wanted.borrow_and_update().clone();
            // First what is there already, so that a restart keeps nobody waiting for others' new ones.
            outcome = outcome.and(self.hand_on(&wanted.accounts, handed_on).await?);
            let now = self.env.now();
            let mut plan = self.manager.ledger().read(|ledger| plan_rotation(&wanted, ledger, now));
            plan.begin_at(self.env.random_u64().unwrap_or_default());
            let mut due = plan.due.into_iter();
            loop {
                while at_work.len() < CONCURRENT
                    && let Some(account) = due.next()
                {
                    if !self.is_due(&wanted, &account) {
                        // Another replica was faster.
                        if let Ok(Some(issued)) = self.manager.service(&account) {
                            self.hand_on_new(account, issued, handed_on).await?;
                        }
                    } else if tried.insert(account.clone()) {
                        let (manager, lifetime) = (Arc::clone(&self.manager), wanted.lifetime);
                        at_work.spawn(async move {
                            let issued = manager.issue_service(&account, lifetime).await;
                            (account, issued)
                        });
                    }
                }
                tokio::select! {
                    changed = self.wanted.changed() => match changed {
                        Ok(()) => continue 'wanted,
                        Err(_) => return Err(Unwanted),
                    },
                    joined = at_work.join_next() => match joined {
                        None => break 'wanted wanted.accounts,
                        Some(joined) => match successful(joined) {
                            Some((account, issued)) if wanted.accounts.contains(&account) => {
                                self.hand_on_new(account, issued, handed_on).await?;
                            }
                            Some(_) => {}
                            None => outcome = Round::Failed,
                        },
                    },
                }
            }
        };
        // Whatever was announced until here is on record and thus handed on now.
        *announcements = announcements.resubscribe();
        Ok(outcome.and(self.hand_on(&wanted, handed_on).await?))
    }

    /// Whether the identity is still due: a long plan was made long ago.
    fn is_due(&self, wanted: &WantedCertificates, account: &ServiceAccountId) -> bool {
        let accounts = BTreeSet::from([account.clone()]);
        let alone = WantedCertificates { accounts, lifetime: wanted.lifetime };
        let now = self.env.now();
        !self.manager.ledger().read(|ledger| plan_rotation(&alone, ledger, now)).due.is_empty()
    }

    /// Hands on what is current and has not been handed on.
    async fn hand_on(
        &self,
        wanted: &BTreeSet<ServiceAccountId>,
        handed_on: &mut HandedOn,
    ) -> Result<Round, Unwanted> {
        let unwanted: Vec<_> =
            handed_on.keys().filter(|account| !wanted.contains(account)).cloned().collect();
        for account in unwanted {
            handed_on.remove(&account);
            self.issued.send((account, None)).await.map_err(|_| Unwanted)?;
        }
        let now = self.env.now();
        let current = self.manager.ledger().read(|ledger| {
            wanted
                .iter()
                .filter_map(|account| Some((account, ledger.service_certificate(account)?)))
                .filter(|(_, record)| record.validity.contains(now))
                .filter(|(account, record)| handed_on.get(*account) != Some(&record.serial))
                .map(|(account, _)| account.clone())
                .collect::<Vec<_>>()
        });
        let mut outcome = Round::Done;
        for account in current {
            match self.manager.service(&account) {
                Ok(Some(issued)) => self.send(account, issued, handed_on).await?,
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

    /// Hands on a certificate that was issued just now, unless that has been done already, or another one has taken its
    /// place: nobody is to go back to an older one.
    async fn hand_on_new(
        &self,
        account: ServiceAccountId,
        issued: IssuedService,
        handed_on: &mut HandedOn,
    ) -> Result<(), Unwanted> {
        let current = self
            .manager
            .ledger()
            .read(|ledger| ledger.service_certificate(&account).map(|record| record.serial));
        if current != Some(issued.serial) || handed_on.get(&account) == Some(&issued.serial) {
            return Ok(());
        }
        self.send(account, issued, handed_on).await
    }

    async fn send(
        &self,
        account: ServiceAccountId,
        issued: IssuedService,
        handed_on: &mut HandedOn,
    ) -> Result<(), Unwanted> {
        handed_on.insert(account.clone(), issued.serial);
        self.issued.send((account, Some(issued.certificate))).await.map_err(|_| Unwanted)
    }

    /// How long until something is due, or until what failed is tried again.
    fn pause(&self, failures: u32) -> Duration {
        if let Some(attempt) = failures.checked_sub(1) {
            return retry_delay(attempt, self.env.random_u64().unwrap_or(0));
        }
        let now = self.env.now();
        let next = self.manager.ledger().read(|ledger| {
            let plan = plan_rotation(&self.wanted.borrow(), ledger, now);
            if plan.due.is_empty() { plan.next } else { Some(now) }
        });
        // A whole second at least, since that is how fine the clock is.
        next.map_or(LOOK_AGAIN, |next| next.since(now).clamp(Duration::from_secs(1), LOOK_AGAIN))
    }

    /// Forgets what has ended, once in a while, and only by a clock that can be trusted: a proxy whose certificate is
    /// forgotten is refused for good.
    async fn prune(&self, pruning: &mut Pruning) {
        let now = Instant::now();
        let steady = pruning.steadiness.look(self.env.now(), now.duration_since(pruning.began));
        let lately = pruning.last.is_some_and(|last| now.duration_since(last) < PRUNE_EVERY);
        if !steady || lately {
            return;
        }
        pruning.last = Some(now);
        match self.manager.prune().await {
            Ok(0) => {}
            Ok(certificates) => tracing::debug!(certificates, "forgot certificates that had ended"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot prune the ledger");
            }
        }
    }
}

/// Waits until another replica, or a person, issued a service certificate, or replaced what signs them.
async fn service_issued(announcements: &mut broadcast::Receiver<Announcement>) {
    loop {
        match announcements.recv().await {
            Ok(
                Announcement::ServiceIssued { .. } | Announcement::AuthorityChanged | Announcement::Replaced,
            )
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The manager lives as long as the rotator, so this does not happen; the timer goes on.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What an issuing task came to, if it came to a certificate. Logs what it came to otherwise.
fn successful(joined: Result<Issuance, JoinError>) -> Option<(ServiceAccountId, IssuedService)> {
    match joined {
        Ok((account, Ok(issued))) => Some((account, issued)),
        Ok((account, Err(error))) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(%account, error, "cannot issue a service certificate; will try again");
            None
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "issuing ended abnormally");
            None
        }
    }
}
