//! The upkeep of the built-in CA on one replica: publishing the trusted roots here, acknowledging a new
//! root once everything here trusts it, saying what declared roots wait for, and, on the leader, taking the
//! rotation steps that are due.
//!
//! Owns the waiting. [`smc_authority::rules::plan_ca_rotation`] decides what is due, and the ledger whether
//! it is valid.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_authority::pki::{SerialNumber, TrustBundle};
use smc_authority::rules::{ClockStability, DeclaredRoots, RootObstacle};
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_raft::{Group, ReplicatedLedger};
use smc_types::ids::{NamespacedName, WorkloadId};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::issuer::{Announcement, Issuer, authority_changed};
use super::pruning::Pruner;
use super::{BuiltinCa, RECHECK};

/// The interval at which proxies' trust in a new root is checked until all have acknowledged it. Roots
/// rotate once in years, and a check costs microseconds per proxy.
const TRUST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Names of workloads in one log line. Thousands may be missing.
const MAX_NAMES: usize = 8;

/// Everything on this replica that must trust a root before the root may sign.
pub trait RootTrust: Send + Sync {
    /// Fails, with what is missing, until this replica accepts the clients of `root`, serves `bundle`,
    /// which contains the root, to every proxy class, and every connected proxy has acknowledged it.
    fn check(&self, root: SerialNumber, bundle: TrustBundle) -> BoxFuture<'_, Result<(), &'static str>>;

    /// The workloads whose connected proxies had not acknowledged trust in `root` at the last check.
    fn distrustful(&self, root: SerialNumber) -> BTreeSet<WorkloadId>;
}

/// What keeps declared roots from what their roles ask for, by object.
pub type RootObstacles = Vec<(NamespacedName, RootObstacle)>;

/// The roots that a person declares, and where it is said what they wait for.
pub struct Declarations {
    /// What is declared, as it changes.
    pub roots: watch::Receiver<DeclaredRoots>,
    /// Takes what they wait for now.
    pub report: Box<dyn Fn(RootObstacles) + Send + Sync>,
}

/// The task that keeps the CA.
pub struct CaKeeper {
    ca: Arc<BuiltinCa>,
    group: Arc<Group>,
    announcements: broadcast::Receiver<Announcement>,
    trusted: watch::Sender<TrustBundle>,
    trust: Box<dyn RootTrust>,
    declared: Declarations,
    env: Env,
    clock: ClockStability,
    /// The origin of the monotonic clock.
    began: Instant,
    pruner: Pruner,
    /// When the next warning about a blocked root is due, while one is blocked.
    warning_due: Option<Instant>,
}

impl CaKeeper {
    /// Starts the task. It keeps `trusted` equal to the trusted roots.
    pub fn start(
        ca: Arc<BuiltinCa>,
        group: Arc<Group>,
        trusted: watch::Sender<TrustBundle>,
        trust: Box<dyn RootTrust>,
        declared: Declarations,
        env: Env,
        tasks: &mut Tasks,
    ) {
        let keeper = Self {
            announcements: ca.announcements(),
            pruner: Pruner::new(Arc::clone(&ca), env.clone()),
            ca,
            group,
            trusted,
            trust,
            declared,
            env,
            clock: ClockStability::default(),
            began: Instant::now(),
            warning_due: None,
        };
        tasks.spawn("certificate authority", |stopping| keeper.run(stopping));
    }

    async fn run(mut self, stopping: CancellationToken) {
        let keeping = async {
            loop {
                // Read before the step, so that a change of leader during the step is not missed.
                let leader = self.group.status().leader;
                let declared = self.declared.roots.borrow_and_update().clone();
                let pause = self.step(&declared).await;
                self.pruner.prune_if_due().await;
                tokio::select! {
                    () = authority_changed(&mut self.announcements) => {}
                    // This replica may lead now, and have to continue a rotation.
                    () = self.group.leader_changed(leader) => {}
                    changed = self.declared.roots.changed() => if changed.is_err() {
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

    /// Does what is due now. Returns the time until the next step.
    async fn step(&mut self, declared: &DeclaredRoots) -> Duration {
        let bundle = self.ca.bundle();
        self.trusted.send_if_modified(|trusted| {
            let differ = *trusted != bundle;
            trusted.clone_from(&bundle);
            differ
        });
        let status = self.group.status();
        let pause = self.acknowledge(status.replica.0).await;
        let steady = self.clock.observe(self.env.now(), self.began.elapsed());
        let replicas: BTreeSet<u64> = status.members.iter().map(|member| member.id.0).collect();
        let pause =
            if status.leads() { self.maintain(&replicas, steady, declared, pause).await } else { pause };
        let now = self.env.now();
        let obstacles = self.group.local().read(|ledger| declared.obstacles(ledger, &replicas, now));
        (self.declared.report)(obstacles);
        pause
    }

    /// Takes the step that is due. Returns the time until the next one.
    async fn maintain(
        &self,
        replicas: &BTreeSet<u64>,
        steady: bool,
        declared: &DeclaredRoots,
        pause: Duration,
    ) -> Duration {
        match self.ca.maintain(replicas, steady, declared).await {
            Ok(plan) => {
                let now = self.env.now();
                let due = if plan.step.is_some() { Some(now) } else { plan.next };
                let due = due.map_or(RECHECK, |due| due.since(now));
                pause.min(due.clamp(Duration::from_secs(1), RECHECK))
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot take a step in the rotation of a CA; will retry");
                pause
            }
        }
    }

    /// Records that this replica and its proxies trust the next root, once they do.
    async fn acknowledge(&mut self, replica: u64) -> Duration {
        let root = self.group.local().read(|ledger| {
            let next = ledger.authority()?.next_root.as_ref()?;
            (!next.acknowledged.contains(&replica)).then_some(next.ca.serial)
        });
        let Some(root) = root else {
            self.warning_due = None;
            return RECHECK;
        };
        // Read after the root, so that it contains the root.
        let bundle = self.ca.bundle();
        if let Err(missing) = self.trust.check(root, bundle).await {
            self.warn_blocked(root, missing);
            return TRUST_CHECK_INTERVAL;
        }
        match self.ca.acknowledge_root(replica, root).await {
            Ok(()) => {
                info!(%root, "every proxy connected to this replica trusts the next root");
                RECHECK
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot record that proxies trust the next root; will retry");
                TRUST_CHECK_INTERVAL
            }
        }
    }

    /// Logs once a minute what blocks a root, and which workloads. A single proxy that rejects the root
    /// blocks it, and only an operator can repair or release that proxy.
    fn warn_blocked(&mut self, root: SerialNumber, missing: &str) {
        let now = Instant::now();
        if now < *self.warning_due.get_or_insert(now + RECHECK) {
            return;
        }
        self.warning_due = Some(now + RECHECK);
        let distrustful = self.trust.distrustful(root);
        let names: Vec<_> = distrustful.iter().take(MAX_NAMES).map(ToString::to_string).collect();
        warn!(%root, missing, count = distrustful.len(), ?names, "the next root cannot sign yet");
    }
}
