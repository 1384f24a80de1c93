//! The shards of a replica that is alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use smc_authority::ledger::ReplicaPhase::{Draining, Joining, Ready};
use smc_authority::ledger::{AgreeOnTime, Command, Ledger, LedgerOperation, Rules};
use smc_host::env::fixed::SettableClock;
use smc_host::env::{Clock, Env};
use smc_host::tasks::Tasks;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{Phase, ShardsQuestion};
use smc_raft::{Group, MemoryDisk, NotAnswered, ReplicatedLedger, Storage};
use smc_sidecar::bootstrap::Controllers;
use smc_types::ids::{ProxyUuid, ReplicaId, WorkloadId};
use smc_types::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{Parts, PhaseError, Placement, Shards};
use crate::config::TIME_TO_CONNECT;
use crate::metrics::Metrics;
use crate::problems::Problems;
use crate::sidecars::{Refusals, Sidecars};
use crate::xds::proxies::Proxies;

const ME: ReplicaId = ReplicaId(2);

fn proxy() -> ProxyUuid {
    ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap())
}

struct Alone {
    group: Arc<Group>,
    ready: Arc<AtomicBool>,
    shards: Shards,
    tasks: Tasks,
}

/// Starts a replica that serves no mesh yet, on this disk.
async fn start(disk: &MemoryDisk) -> Alone {
    start_in(Env::system(), disk).await
}

async fn start_in(env: Env, disk: &MemoryDisk) -> Alone {
    let group = Arc::new(Group::alone(ME, Storage::Memory(disk.clone()), &env).await.unwrap());
    let addresses = [ReplicaId(0), ME].map(|replica| (replica, "10.0.0.1:1".parse().unwrap()));
    let ready = Arc::new(AtomicBool::new(false));
    let is_ready = Arc::clone(&ready);
    let mut tasks = Tasks::new(CancellationToken::new());
    let (metrics, settings) = (Metrics::new(), tokio::sync::watch::Sender::default());
    let proxies = Proxies::new(100, settings.subscribe(), metrics.clone());
    let (problems, refusals) = (Problems::default(), Refusals::default());
    let parts = Parts {
        group: Arc::clone(&group),
        env,
        controllers: Arc::new(Controllers::new(addresses.into())),
        sidecars: Sidecars::new(&proxies, &refusals, &problems, &metrics, TIME_TO_CONNECT),
        proxies,
        reports: Box::new(|_| Box::pin(std::future::ready(Err(NotAnswered::NotNow)))),
        served: tokio::sync::watch::Sender::default().subscribe(),
        ready: Box::new(move || is_ready.load(Ordering::Relaxed)),
        stops: Box::new(|| false),
    };
    let shards = Shards::start(parts, &mut tasks).unwrap();
    Alone { group, ready, shards, tasks }
}

/// The placement once it is as wanted.
async fn until(shards: &Shards, wanted: impl FnMut(&Arc<Placement>) -> bool) -> Arc<Placement> {
    Arc::clone(&*shards.watch().wait_for(wanted).await.unwrap())
}

/// Agrees on the time of this clock, as another part of a replica does.
async fn agree(group: &Group, clock: &dyn Clock) {
    let time = AgreeOnTime { clocks: BTreeMap::from([(ME.0, clock.now())]) };
    let time = Command { at: clock.now(), operation: time.into_operation() };
    group.propose(vec![time]).await.unwrap();
}

#[tokio::test]
async fn a_replica_joins_and_owns_its_shard_once_it_serves_the_mesh() {
    let disk = MemoryDisk::default();
    let alone = start(&disk).await;
    let joined = until(&alone.shards, |placement| placement.phases.contains_key(&ME)).await;
    assert_eq!((joined.epoch, joined.phases[&ME].phase), (1, Joining));
    assert_eq!(alone.shards.owner(proxy()), None, "nobody is ready");

    alone.ready.store(true, Ordering::Relaxed);
    let ready = until(&alone.shards, |placement| !placement.ready.is_empty()).await;
    assert_eq!((ready.epoch, ready.phases[&ME].phase), (2, Ready));
    assert_eq!(alone.shards.owner(proxy()), Some(ME), "whatever the order, the other does not exist");

    let limit = Duration::from_secs(5);
    let answer = alone.group.ask(ME, Question::Shards(ShardsQuestion {}), limit).await.unwrap();
    let Answer::Shards(answer) = answer else { panic!("{answer:?}") };
    assert_eq!((answer.run, answer.epoch, answer.phase()), (alone.shards.run(), 2, Phase::Ready));
    alone.group.stop().await;
}

#[tokio::test]
async fn a_phase_begins_at_the_present_time_however_old_the_ledgers_is() {
    let clock = Arc::new(SettableClock::at(Timestamp(1_800_000_000)));
    let env = Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::system() };
    let alone = start_in(env, &MemoryDisk::default()).await;
    until(&alone.shards, |placement| placement.phases.contains_key(&ME)).await;
    agree(&alone.group, &*clock).await;
    clock.advance(Duration::from_hours(5));
    alone.ready.store(true, Ordering::Relaxed);
    let ready = until(&alone.shards, |placement| !placement.ready.is_empty()).await;
    assert_eq!(ready.phases[&ME].since, clock.now());
    alone.group.stop().await;
}

#[tokio::test]
async fn new_rules_begin_by_themselves_after_an_agreed_time() {
    let (disk, env) = (MemoryDisk::default(), Env::system());
    let alone = start_in(env.clone(), &disk).await;
    let rules = |group: &Group| group.local().read(Ledger::rules);
    alone.ready.store(true, Ordering::Relaxed);
    until(&alone.shards, |placement| !placement.ready.is_empty()).await;
    assert_eq!(rules(&alone.group), Rules::First);

    agree(&alone.group, &*env.clock).await;
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    while rules(&alone.group) == Rules::First {
        looks.tick().await;
    }
    assert_eq!(rules(&alone.group), Rules::LATEST);
    alone.group.stop().await;
    drop(alone.tasks);

    let after = start(&disk).await;
    until(&after.shards, |placement| placement.epoch > 2).await;
    assert_eq!(rules(&after.group), Rules::LATEST, "from the log");
    after.group.stop().await;
}

#[tokio::test]
async fn a_replica_that_drains_stays_so_until_it_joins_again() {
    let disk = MemoryDisk::default();
    let alone = start(&disk).await;
    alone.ready.store(true, Ordering::Relaxed);
    until(&alone.shards, |placement| !placement.ready.is_empty()).await;
    assert!(alone.shards.set_phase(Draining).await.unwrap());
    assert!(!alone.shards.set_phase(Draining).await.unwrap());
    assert!(matches!(alone.shards.set_phase(Ready).await, Err(PhaseError::Rejected(_))));
    let drains = until(&alone.shards, |placement| placement.ready.is_empty()).await;
    assert_eq!(drains.phases[&ME].phase, Draining);

    alone.shards.set_phase(Joining).await.unwrap();
    until(&alone.shards, |placement| placement.ready.contains(&ME)).await;
    alone.group.stop().await;
}

#[tokio::test]
async fn a_restarted_replica_is_another_process_and_joins_first() {
    let disk = MemoryDisk::default();
    let before = start(&disk).await;
    before.ready.store(true, Ordering::Relaxed);
    let placement = until(&before.shards, |placement| !placement.ready.is_empty()).await;
    before.group.stop().await;
    drop(before.tasks);

    let after = start(&disk).await;
    assert_ne!(after.shards.run(), placement.phases[&ME].run);
    let joined = until(&after.shards, |now| now.epoch > placement.epoch).await;
    assert_eq!((joined.phases[&ME].phase, joined.phases[&ME].run), (Joining, after.shards.run()));
    after.group.stop().await;
}
