//! Keeping every identity in certificates.
//!
//! Owns the task that does what [`plan_rotation`] says: issue what is missing, renew what ends, and hand the
//! current certificate of each identity on, once, and that it has none when it is gone. What the ledger holds already is handed on as it is, so a
//! restart changes nothing for anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_mesh::ids::ServiceAccountId;
use smc_mesh::pki::{SerialNumber, ServiceCertificate, WantedCertificates, plan_rotation, retry_delay};
use smc_mesh::time::Timestamp;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::manager::{Announcement, CertificateManager};
use crate::env::Env;

/// Certificates that are issued at the same time. Each waits for a synced write most of its life, and those
/// that wait together share one; more would only wait longer.
const CONCURRENT: usize = 64;

/// The longest sleep. The wall clock may jump, and the timer does not know.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How often ended records are forgotten.
const PRUNE_EVERY: Duration = Duration::from_hours(1);

/// How a round went.
enum Round {
    /// All is as it should be.
    Done,
    /// Something is to be tried again.
    Failed,
    /// Nobody takes certificates any more.
    Unwanted,
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
        let mut handed_on = BTreeMap::new();
        let mut pruned_at = None;
        let mut failures = 0u32;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let round = tokio::select! {
                () = shutdown.cancelled() => return,
                round = self.round(&wanted, &mut handed_on, &mut announcements) => round,
            };
            failures = match round {
                Round::Done => 0,
                Round::Failed => failures.saturating_add(1),
                Round::Unwanted => return,
            };
            self.prune(&mut pruned_at).await;
            let pause = self.pause(&wanted, failures);
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = service_issued(&mut announcements), if failures == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn round(
        &self,
        wanted: &WantedCertificates,
        handed_on: &mut BTreeMap<ServiceAccountId, SerialNumber>,
        announcements: &mut broadcast::Receiver<Announcement>,
    ) -> Round {
        // First what is there already, so that a restart keeps nobody waiting for others' new ones.
        match self.hand_on(&wanted.accounts, handed_on).await {
            Round::Unwanted => return Round::Unwanted,
            Round::Done | Round::Failed => {}
        }
        let failed = self.renew(wanted).await;
        // Whatever was announced until here is on record and thus handed on now.
        *announcements = announcements.resubscribe();
        match self.hand_on(&wanted.accounts, handed_on).await {
            Round::Done if failed => Round::Failed,
            other => other,
        }
    }

    /// Hands on what is current and has not been handed on.
    async fn hand_on(
        &self,
        wanted: &BTreeSet<ServiceAccountId>,
        handed_on: &mut BTreeMap<ServiceAccountId, SerialNumber>,
    ) -> Round {
        let unwanted: Vec<_> =
            handed_on.keys().filter(|account| !wanted.contains(account)).cloned().collect();
        for account in unwanted {
            handed_on.remove(&account);
            if self.issued.send((account, None)).await.is_err() {
                return Round::Unwanted;
            }
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
                Ok(Some(issued)) => {
                    handed_on.insert(account.clone(), issued.serial);
                    if self.issued.send((account, Some(issued.certificate))).await.is_err() {
                        return Round::Unwanted;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(%account, error, "cannot read a service certificate");
                    outcome = Round::Failed;
                }
            }
        }
        outcome
    }

    /// Issues what is due. `true` if some of it failed.
    async fn renew(&self, wanted: &WantedCertificates) -> bool {
        let now = self.env.now();
        let due = self.manager.ledger().read(|ledger| plan_rotation(wanted, ledger, now).due);
        let lifetime = wanted.lifetime;
        let mut failed = false;
        let mut at_work = JoinSet::new();
        for account in due {
            if at_work.len() >= CONCURRENT {
                failed |= at_work.join_next().await.is_some_and(has_failed);
            }
            let manager = Arc::clone(&self.manager);
            at_work.spawn(async move {
                let Err(error) = manager.issue_service(&account, lifetime).await else { return false };
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%account, error, "cannot issue a service certificate; will try again");
                true
            });
        }
        while let Some(joined) = at_work.join_next().await {
            failed |= has_failed(joined);
        }
        failed
    }

    /// How long until something is due, or until what failed is tried again.
    fn pause(&self, wanted: &WantedCertificates, failures: u32) -> Duration {
        if let Some(attempt) = failures.checked_sub(1) {
            return retry_delay(attempt, self.env.random_u64().unwrap_or(0));
        }
        let now = self.env.now();
        let next = self.manager.ledger().read(|ledger| {
            let plan = plan_rotation(wanted, ledger, now);
            if plan.due.is_empty() { plan.next } else { Some(now) }
        });
        // A whole second at least, since that is how fine the clock is.
        next.map_or(LOOK_AGAIN, |next| next.since(now).clamp(Duration::from_secs(1), LOOK_AGAIN))
    }

    async fn prune(&self, pruned_at: &mut Option<Timestamp>) {
        let now = self.env.now();
        if pruned_at.is_some_and(|last| last <= now && now.since(last) < PRUNE_EVERY) {
            return;
        }
        *pruned_at = Some(now);
        match self.manager.prune().await {
            Ok(0) => {}
            Ok(certificates) => tracing::debug!(certificates, "forgot certificates that had ended"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot prune the ledger");
            }
        }
    }
}

/// Waits until another replica, or a person, issued a service certificate.
async fn service_issued(announcements: &mut broadcast::Receiver<Announcement>) {
    loop {
        match announcements.recv().await {
            Ok(Announcement::ServiceIssued { .. } | Announcement::Replaced)
            | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The manager lives as long as the rotator, so this does not happen; the timer goes on.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What an issuing task came to; it has logged its own failure.
fn has_failed(joined: Result<bool, JoinError>) -> bool {
    joined.unwrap_or_else(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "issuing ended abnormally");
        true
    })
}
