//! The life of the CAs on one replica: telling everybody here what is trusted, telling the ledger when they have taken
//! it, and, where this replica leads the group, taking the steps that are due.
//!
//! Owns the waiting. Refuses to decide what is due: that is [`smc_mesh::pki::plan_ca_rotation`], and the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smc_mesh::pki::{SerialNumber, Steadiness, TrustBundle};
use smc_raft::Group;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ca::tls::ServerTls;
use crate::ca::{Announcement, CertificateManager, authority_changed};
use crate::env::Env;
use crate::publisher::Ask;
use crate::xds::proxies::Proxies;

/// The longest sleep. The wall clock may jump, and the timer does not know.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How often is looked whether the proxies have taken a root, as long as they have not. A root is rotated once in years,
/// and a look costs microseconds per proxy.
const LOOK_AT_PROXIES: Duration = Duration::from_secs(1);

/// How many of the workloads that a root waits for are named in a line of the log. There may be thousands.
const MAX_NAMES: usize = 8;

/// Everybody on this replica who has to trust a root before it may sign.
pub(super) struct Trust {
    pub(super) ask: Ask,
    pub(super) tls: Arc<ServerTls>,
    pub(super) proxies: Proxies,
}

impl Trust {
    /// Fails, with what is missing, as long as not all is so: this replica lets in whom the root vouches for, serves every
    /// class with it, and every proxy that is connected has acknowledged that.
    async fn extend_to(&self, root: SerialNumber, bundle: TrustBundle) -> Result<(), &'static str> {
        if !self.tls.trusts(&bundle) {
            return Err("this replica does not let in yet whom it vouches for");
        }
        let served = self.ask.about(move |mesh| mesh.compiler.serves(&bundle).then(|| mesh.compiler.world()));
        let Ok(Some(world)) = served.await else {
            return Err(
                "a part of the mesh is not served with it, as where a fault holds back what was declared",
            );
        };
        self.proxies.look_for_trust(root, &world);
        if self.proxies.distrustful(root).is_empty() {
            Ok(())
        } else {
            Err("proxies have not acknowledged it")
        }
    }
}

/// See the module.
pub(super) struct Keeping {
    ca: Arc<dyn CertificateManager>,
    group: Arc<Group>,
    announcements: broadcast::Receiver<Announcement>,
    trusted: watch::Sender<TrustBundle>,
    trust: Trust,
    env: Env,
    steadiness: Steadiness,
    /// Where the monotonic clock counts from.
    began: Instant,
    /// When somebody is told next whom a root waits for, while it does.
    complain_at: Option<Instant>,
}

impl Keeping {
    /// `trusted` is kept at the roots that are trusted; it was made with those of a moment ago.
    pub(super) fn new(
        ca: Arc<dyn CertificateManager>,
        group: Arc<Group>,
        trusted: watch::Sender<TrustBundle>,
        trust: Trust,
        env: Env,
    ) -> Self {
        let announcements = ca.announcements();
        let (steadiness, began) = (Steadiness::default(), Instant::now());
        Self { ca, group, announcements, trusted, trust, env, steadiness, began, complain_at: None }
    }

    pub(super) async fn run(mut self, stopping: CancellationToken) {
        let keeping = async {
            loop {
                // Of before the look: a change during it is not to be missed.
                let leader = self.group.status().leader;
                let pause = self.look().await;
                tokio::select! {
                    () = authority_changed(&mut self.announcements) => {}
                    // It may be this replica's turn to go on with a rotation.
                    () = self.group.another_leader(leader) => {}
                    () = sleep(pause) => {}
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = keeping => {}
        }
    }

    /// Does what there is to do now; says when to look again.
    async fn look(&mut self) -> Duration {
        let bundle = self.ca.bundle();
        self.trusted.send_if_modified(|trusted| {
            let differ = *trusted != bundle;
            trusted.clone_from(&bundle);
            differ
        });
        let status = self.group.status();
        let pause = self.acknowledge(status.replica.0).await;
        let steady = self.steadiness.look(self.env.now(), self.began.elapsed());
        if status.leader != Some(status.replica) {
            return pause;
        }
        let replicas: BTreeSet<u64> = status.members.iter().map(|member| member.id.0).collect();
        match self.ca.maintain(&replicas, steady).await {
            Ok(plan) => {
                let now = self.env.now();
                let due = if plan.step.is_some() { Some(now) } else { plan.next };
                let due = due.map_or(LOOK_AGAIN, |due| due.since(now));
                pause.min(due.clamp(Duration::from_secs(1), LOOK_AGAIN))
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "the rotation of a CA does not get on; will try again");
                pause
            }
        }
    }

    /// Tells the ledger that everybody here trusts the next root, as soon as they do.
    async fn acknowledge(&mut self, replica: u64) -> Duration {
        let root = self.ca.ledger().read(|ledger| {
            let next = ledger.authority()?.next_root.as_ref()?;
            (!next.acknowledged.contains(&replica)).then_some(next.ca.serial)
        });
        let Some(root) = root else {
            self.complain_at = None;
            return LOOK_AGAIN;
        };
        // Read after the root, so that it has it: proxies are not to acknowledge what they were never told.
        let bundle = self.ca.bundle();
        if let Err(missing) = self.trust.extend_to(root, bundle).await {
            self.complain(root, missing);
            return LOOK_AT_PROXIES;
        }
        match self.ca.acknowledge_root(replica, root).await {
            Ok(()) => {
                info!(%root, "every proxy that is connected here trusts the next root");
                LOOK_AGAIN
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot record that proxies trust the next root; will try again");
                LOOK_AT_PROXIES
            }
        }
    }

    /// Says once a minute what a root waits for, and for whom: one proxy that refuses it holds it up, and only a person can say
    /// whether it is to be mended or released.
    fn complain(&mut self, root: SerialNumber, missing: &str) {
        let now = Instant::now();
        if now < *self.complain_at.get_or_insert(now + LOOK_AGAIN) {
            return;
        }
        self.complain_at = Some(now + LOOK_AGAIN);
        let awaited = self.trust.proxies.distrustful(root);
        let names: Vec<_> = awaited.iter().take(MAX_NAMES).map(ToString::to_string).collect();
        warn!(%root, missing, count = awaited.len(), ?names, "the next root cannot sign yet");
    }
}
