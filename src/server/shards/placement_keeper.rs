//! The tasks that keep the placement: one follows the ledger, one proposes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::{Announcement, UseRules};
use smc_host::log_limit::LogLimit;
use smc_host::tasks::Tasks;
use smc_raft::{Group, ReplicatedLedger};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::decide::{InUse, Own, Silence, Unready, forgotten, next_rules, own_phase};
use super::{PhaseError, Placement, Shards};

/// How often the keeper looks at what it knows, which costs microseconds.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// Follows the placement in the ledger.
pub(super) fn follow(group: &Arc<Group>, tasks: &mut Tasks) -> watch::Receiver<Arc<Placement>> {
    // Before the first read: a change in between is announced.
    let mut announcements = group.local().announcements();
    let group = Arc::clone(group);
    let (sender, receiver) = watch::channel(Arc::new(group.local().read(Placement::of)));
    tasks.spawn("placement", |stopping| async move {
        let following = async {
            loop {
                match announcements.recv().await {
                    Ok(Announcement::PlacementChanged | Announcement::Replaced)
                    | Err(RecvError::Lagged(_)) => {
                        let placement = Arc::new(group.local().read(Placement::of));
                        sender.send_if_modified(|known| {
                            let is_new = *known != placement;
                            *known = placement;
                            is_new
                        });
                    }
                    Ok(_) => {}
                    // The ledger is gone, and so is the replica.
                    Err(RecvError::Closed) => std::future::pending::<()>().await,
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = following => {}
        }
    });
    receiver
}

/// Proposes this replica's phase and, on the leader, what others cannot say themselves.
pub(super) fn start(
    shards: Shards,
    ready: Box<dyn Fn() -> bool + Send + Sync>,
    stops: Box<dyn Fn() -> bool + Send + Sync>,
    tasks: &mut Tasks,
) {
    let keeper = Keeper {
        shards,
        ready,
        stops,
        silence: Silence::default(),
        unready: Unready::default(),
        failures: LogLimit::default(),
    };
    tasks.spawn("shards", |stopping| keeper.run(stopping));
}

struct Keeper {
    shards: Shards,
    ready: Box<dyn Fn() -> bool + Send + Sync>,
    stops: Box<dyn Fn() -> bool + Send + Sync>,
    silence: Silence,
    unready: Unready,
    /// Proposals that failed, in the log.
    failures: LogLimit,
}

impl Keeper {
    async fn run(mut self, stopping: CancellationToken) {
        let keeping = async {
            let mut looks = interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut placement = self.shards.watch();
            loop {
                tokio::select! {
                    _ = looks.tick() => self.watch_others().await,
                    // Its sender ends with this replica.
                    Ok(()) = placement.changed() => {}
                }
                self.keep_own().await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = keeping => {}
        }
    }

    async fn keep_own(&self) {
        let Shards { me, run, .. } = self.shards;
        let placement = self.shards.placement();
        let own = Own { run, ready: (self.ready)(), stops: (self.stops)() };
        let Some(phase) = own_phase(own, placement.phases.get(&me)) else { return };
        // A replica that was removed would join again and again, and be forgotten as often.
        if self.shards.group.status().members.iter().all(|member| member.id != me) {
            return;
        }
        match self.shards.set_phase(phase).await {
            Ok(true) => info!(replica = %me, %phase, "replica phase changed"),
            Ok(false) => {}
            Err(error) => self.failed("this replica's phase", &error),
        }
    }

    /// Marks members down that do not answer, forgets those that have left, and begins rules that all
    /// know: the leader does.
    async fn watch_others(&mut self) {
        let status = self.shards.group.status();
        if !status.leads() {
            self.silence.reset();
            self.unready.reset();
            return;
        }
        let placement = self.shards.placement();
        if self.unready.look(self.shards.me, &placement) {
            warn!("this replica leads and is not ready: leadership goes to one that is");
            self.shards.group.hand_over_in_time(|id| placement.ready.contains(&id)).await;
            return;
        }
        let members: BTreeSet<_> = status.members.iter().map(|member| member.id).collect();
        for gone in self.silence.look(&self.shards.group.contacts(), &placement) {
            match self.shards.propose(gone).await {
                Ok(changed) if changed => {
                    warn!(replica = gone.replica, "a replica does not answer, and is down");
                }
                Ok(_) => {}
                Err(error) => self.failed("that a replica is down", &error),
            }
        }
        for left in forgotten(&placement, &members) {
            match self.shards.propose(left).await {
                Ok(_) => info!(replica = left.replica, "a replica has left the group"),
                Err(error) => self.failed("that a replica has left", &error),
            }
        }
        self.begin_rules().await;
    }

    /// Begins the latest rules of the ledger, once every member knows them.
    async fn begin_rules(&self) {
        let group = &self.shards.group;
        let in_use = group.local().read(InUse::of);
        let Some(rules) = next_rules(in_use, &group.contacts()) else { return };
        match self.shards.commit(UseRules(rules)).await {
            Ok(true) => {
                info!(rules = rules.generation(), "the ledger has new rules: every replica knows them");
            }
            Ok(false) => {}
            Err(error) => self.failed("the rules of the ledger", &error),
        }
    }

    fn failed(&self, what: &'static str, error: &PhaseError) {
        if let Some(count) = self.failures.note() {
            warn!(count, error = error as &dyn std::error::Error, "cannot record {what}; will retry");
        }
    }
}
