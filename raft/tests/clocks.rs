//! Replicas with a clock each.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_authority::ledger::{AgreeOnTime, Command, Ledger, Operation};
use smc_authority::rules::GroupTime;
use smc_types::time::Timestamp;

use super::commands::{NOW, commit};
use super::replicas::{Cluster, eventually};
use crate::group::Group;
use crate::replicated::ReplicatedLedger;

const DAYS: Duration = Duration::from_hours(72);

/// How far ahead a replica finds its clock, if it knows.
fn ahead(group: &Group) -> Option<(bool, i64)> {
    match group.time() {
        GroupTime::Agreed { offset, .. } => Some((true, offset)),
        GroupTime::Off { offset, .. } => Some((false, offset)),
        GroupTime::Disputed { .. } | GroupTime::Unknown { .. } => None,
    }
}

/// The clocks stand still, and what was heard of them goes on: seconds of difference say nothing.
const LITTLE: i64 = 20;

#[tokio::test]
async fn a_replica_whose_clock_is_wrong_knows_it_and_the_others_agree() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let all_agree = |cluster: &Cluster| {
        let agree = |group: &Group| matches!(group.time(), GroupTime::Agreed { offset, all: true, .. } if offset.abs() < LITTLE);
        cluster.running.values().all(|group| agree(group)).then_some(())
    };
    eventually("an agreement", async || all_agree(&cluster)).await;
    let days = i64::try_from(DAYS.as_secs()).unwrap();
    for (wrong, expected) in [(NOW.plus(DAYS), days), (NOW.minus(DAYS), -days)] {
        cluster.clocks[&2].set(wrong);
        eventually("a wrong clock that is noticed", async || {
            let (is_right, offset) = ahead(cluster.group(2))?;
            (!is_right && (offset - expected).abs() < LITTLE).then_some(())
        })
        .await;
        for id in [0, 1] {
            let found = ahead(cluster.group(id));
            assert!(found.is_some_and(|(is_right, offset)| is_right && offset.abs() < LITTLE), "{found:?}");
        }
        cluster.clocks[&2].set(NOW);
        eventually("an agreement again", async || all_agree(&cluster)).await;
    }
    // One is gone, and the clocks of the other two differ: no replica can say whose is right.
    cluster.crash(0).await;
    cluster.clocks[&2].set(NOW.plus(DAYS));
    eventually("a dispute", async || {
        let disputed = |group: &Group| matches!(group.time(), GroupTime::Disputed { .. });
        cluster.running.values().all(|group| disputed(group)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_agreed_time_is_the_same_everywhere_also_from_a_snapshot() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let clocks = BTreeMap::from([(0, NOW), (1, NOW.plus(Duration::from_secs(3))), (2, NOW.plus(DAYS))]);
    let agree = Command { at: Timestamp(0), operation: Operation::AgreeOnTime(AgreeOnTime { clocks }) };
    commit(cluster.any(), vec![agree]).await;
    cluster.converge().await;
    let agreed = |cluster: &Cluster, id| cluster.group(id).local().read(Ledger::agreed_time);
    for id in 0..3 {
        assert_eq!(agreed(&cluster, id), Some(NOW.plus(Duration::from_secs(3))));
    }
    cluster.group(1).snapshot().await.unwrap();
    eventually("a snapshot", async || (cluster.group(1).status().snapshot > 0).then_some(())).await;
    cluster.crash(1).await;
    cluster.start(1).await.ready().await.unwrap();
    assert_eq!(agreed(&cluster, 1), Some(NOW.plus(Duration::from_secs(3))));
    cluster.converge().await;
}
