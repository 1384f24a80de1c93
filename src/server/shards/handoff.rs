//! The hand-off: ends the streams of proxies that another replica should serve, as many as that one
//! takes.
//!
//! Owns the task and its waits. Which proxies move is decided in [`smc_xds::shard::moves`], how many
//! in [`smc_xds::shard::pace`] of the receiver.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smc_host::sync::lock;
use smc_host::tasks::Tasks;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{AcceptMovesAnswer, AcceptMovesQuestion};
use smc_types::ids::{ProxyUuid, ReplicaId};
use smc_xds::shard::moves::{Division, Moved, plan};
use smc_xds::shard::pace::Pace;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Shards;
use crate::xds::open_stream::StopReason;
use crate::xds::proxies::Proxies;

/// How often the task looks for proxies that are connected to another replica than their owner. A look
/// takes a microsecond for each proxy.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest pause between two rounds of moves.
const ROUND: Duration = Duration::from_millis(20);

/// How long a receiver may take to answer. One that is frozen is down some seconds later.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The pause between proxies that are granted together. If all ended at once, each would wait for the
/// handshakes of the others. It is no shorter, since each look goes over all proxies.
const SLICE: Duration = Duration::from_millis(5);

/// Spreads the proxies over the time that they are granted for.
fn slices<T>(proxies: &[T], time: Duration) -> impl Iterator<Item = &[T]> {
    let slices = usize::try_from(time.as_millis() / SLICE.as_millis()).unwrap_or(usize::MAX).max(1);
    proxies.chunks(proxies.len().div_ceil(slices).max(1))
}

/// The receiver's side: how fast this replica takes proxies over.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The replicas that bootstraps name.
    replicas: usize,
    began: Instant,
    state: Mutex<Receiving>,
}

#[derive(Debug)]
struct Receiving {
    pace: Pace,
    /// How late this task ran at its last look.
    late: Duration,
}

impl Receiver {
    pub(super) fn new(replicas: usize) -> Self {
        let state = Receiving { pace: Pace::new(Duration::ZERO), late: Duration::ZERO };
        Self { replicas, began: Instant::now(), state: Mutex::new(state) }
    }

    /// The answer to a replica that would hand over `count` proxies.
    pub(super) fn accept(&self, count: u64, proxies: &Proxies) -> AcceptMovesAnswer {
        let mut state = lock(&self.state);
        let load = proxies.load(self.replicas, state.late);
        let grant = state.pace.grant(self.began.elapsed(), &load, count);
        let retry_after_ms = u64::try_from(grant.retry_after.as_millis()).unwrap_or(u64::MAX);
        AcceptMovesAnswer { granted: grant.granted, retry_after_ms }
    }
}

pub(super) fn start(shards: Shards, proxies: Proxies, tasks: &mut Tasks) {
    let handoff = Handoff { began: Instant::now(), moved: Moved::default(), shards, proxies };
    tasks.spawn("hand-off", |stopping| handoff.run(stopping));
}

struct Handoff {
    shards: Shards,
    proxies: Proxies,
    began: Instant,
    moved: Moved,
}

impl Handoff {
    async fn run(mut self, stopping: CancellationToken) {
        let handing_over = async {
            let mut placement = self.shards.watch();
            let mut accepting = self.proxies.accepting();
            loop {
                let pause = self.round().await;
                let due = Instant::now() + pause;
                tokio::select! {
                    () = sleep_until(due) => {
                        lock(&self.shards.receiver.state).late = due.elapsed();
                    }
                    // Their senders end with this replica.
                    Ok(()) = placement.changed() => {}
                    Ok(()) = accepting.changed() => {}
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = handing_over => {}
        }
    }

    /// Hands over what may move now, and returns how long to wait for the next round.
    async fn round(&mut self) -> Duration {
        let placement = self.shards.placement();
        let draining = !self.proxies.accepts();
        let division = Division {
            me: self.shards.me,
            draining,
            ring: self.shards.controllers.ring(),
            ready: &placement.ready,
        };
        let plan = plan(self.proxies.connected(), &division, &self.moved, self.began.elapsed());
        let mut pause = LOOK;
        for (receiver, proxies) in plan {
            pause = pause.min(self.hand_over(receiver, proxies).await.max(ROUND));
        }
        pause
    }

    /// Ends the streams of as many proxies as the receiver takes, and returns when to ask it again.
    async fn hand_over(&mut self, receiver: ReplicaId, proxies: Vec<ProxyUuid>) -> Duration {
        let moves = self.shards.moves();
        let count = u64::try_from(proxies.len()).unwrap_or(u64::MAX);
        moves.in_flight.store(count, Ordering::Relaxed);
        let question = Question::AcceptMoves(AcceptMovesQuestion { count });
        let answer = self.shards.group.ask(receiver, question, ANSWER_LIMIT).await;
        moves.in_flight.store(0, Ordering::Relaxed);
        let AcceptMovesAnswer { granted, retry_after_ms } = match answer {
            Ok(Answer::AcceptMoves(answer)) => answer,
            other => {
                debug!(%receiver, ?other, "no answer about moves");
                moves.refused.fetch_add(count, Ordering::Relaxed);
                return LOOK;
            }
        };
        let granted = granted.min(count);
        moves.refused.fetch_add(count - granted, Ordering::Relaxed);
        let now = self.began.elapsed();
        let chosen = &proxies[..usize::try_from(granted).unwrap_or(0)];
        for proxy in chosen {
            self.moved.note(*proxy, now);
        }
        let pause = Duration::from_millis(retry_after_ms).min(LOOK);
        let began = Instant::now();
        for (n, together) in slices(chosen, pause).enumerate() {
            if n > 0 {
                sleep(SLICE).await;
            }
            let together: BTreeSet<_> = together.iter().copied().collect();
            self.proxies.end_of(&together, StopReason::Moved);
        }
        if granted > 0 {
            moves.moved.fetch_add(granted, Ordering::Relaxed);
            info!(%receiver, proxies = chosen.len(), "handed proxies over");
        }
        pause.saturating_sub(began.elapsed())
    }
}

#[test]
fn proxies_are_spread_over_the_time_that_they_are_granted_for() {
    let proxies = [(); 100];
    for (count, millis, expected) in [
        (0, 50, vec![]),
        (1, 50, vec![1]),
        (10, 50, vec![1; 10]),
        (25, 50, vec![3, 3, 3, 3, 3, 3, 3, 3, 1]),
        (100, 50, vec![10; 10]),
        (100, 0, vec![100]),
        (7, 12, vec![4, 3]),
    ] {
        let slices = slices(&proxies[..count], Duration::from_millis(millis));
        assert_eq!(slices.map(<[()]>::len).collect::<Vec<_>>(), expected, "{count} in {millis} ms");
    }
}
