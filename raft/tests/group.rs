//! A group of one replica.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::{Operation, RecordProxyCertificate, Rejection, Reply};
use smc_host::env::Env;
use smc_types::ids::ReplicaId;
use tokio::time::timeout;

use super::commands::{commit, found, issue, serial};
use crate::group::{Group, GroupError, MAX_COMMANDS};
use crate::replicated::{ProposeError, ReplicatedLedger};
use crate::storage::Storage;
use crate::storage::disk::Disk;
use crate::storage::group_id::GroupId;
use crate::storage::identity::Identity;
use crate::storage::memory::MemoryDisk;

pub(super) async fn try_open_as(id: u64, storage: Storage) -> Result<Group, GroupError> {
    // Not a seed: the sessions of a restarted process must differ from its former ones.
    Group::alone(ReplicaId(id), storage, &Env::system()).await
}

pub(super) async fn try_open(storage: Storage) -> Result<Group, GroupError> {
    try_open_as(0, storage).await
}

pub(super) async fn open(storage: Storage) -> Group {
    try_open(storage).await.unwrap()
}

async fn in_memory() -> Group {
    open(Storage::Memory(MemoryDisk::default())).await
}

#[tokio::test]
async fn an_interrupted_founding_is_continued() {
    let disk = MemoryDisk::default();
    let identity = Identity::open(Disk::new(Arc::new(disk.clone())), ReplicaId(0), &*Env::system().entropy)
        .await
        .unwrap();
    assert!(identity.adopt(GroupId([9; 16])).await.unwrap());
    let opening = open(Storage::Memory(disk));
    let group = timeout(Duration::from_secs(20), opening).await.expect("a group");
    assert_eq!(group.status().group, Some(GroupId([9; 16])));
    group.stop().await;
}

#[tokio::test]
async fn a_rejection_is_an_answer_like_any_other() {
    let ledger = in_memory().await;
    let outcomes = ledger.propose(vec![issue(2), found(), issue(2), issue(2)]).await.unwrap();
    let expected = [
        Err(Rejection::NotFounded),
        Ok(Reply::Founded),
        Ok(Reply::Recorded),
        Err(Rejection::DuplicateSerial(serial(2))),
    ];
    assert_eq!(outcomes, expected);
    ledger.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_proposals_are_all_committed_and_each_gets_its_own_answer() {
    let ledger = Arc::new(in_memory().await);
    commit(&ledger, vec![found()]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..32u32 {
        let ledger = Arc::clone(&ledger);
        tasks.spawn(async move {
            let mut recorded = 0;
            for n in 0..16 {
                // Neighbours propose the same serials: exactly one of each pair is recorded.
                let outcomes = ledger.propose(vec![issue(2 + client / 2 * 16 + n)]).await.unwrap();
                assert_eq!(outcomes.len(), 1);
                recorded += usize::from(outcomes[0].is_ok());
            }
            recorded
        });
    }
    let mut recorded = 0;
    while let Some(result) = tasks.join_next().await {
        recorded += result.unwrap();
    }
    assert_eq!(recorded, 256);
    assert_eq!(ledger.local().read(|ledger| ledger.proxy_certificates().count()), 256);
    ledger.stop().await;
}

#[tokio::test]
async fn an_oversized_proposal_is_refused_and_the_next_one_taken() {
    let ledger = in_memory().await;
    let many = vec![issue(2); MAX_COMMANDS + 1];
    assert!(matches!(ledger.propose(many).await, Err(ProposeError::TooLarge { .. })));
    let mut huge = issue(2);
    if let Operation::RecordProxyCertificate(RecordProxyCertificate { proxy, .. }) = &mut huge.operation {
        proxy.namespace = "x".repeat(2 * 1024 * 1024).into();
    }
    assert!(matches!(ledger.propose(vec![huge]).await, Err(ProposeError::TooLarge { .. })));
    commit(&ledger, vec![found()]).await;
    ledger.barrier().await.unwrap();
    ledger.stop().await;
}

#[tokio::test]
async fn the_last_replica_that_votes_is_not_removed() {
    let ledger = in_memory().await;
    let error = ledger.remove(ReplicaId(0)).await.unwrap_err();
    assert!(error.to_string().contains("the last voter"), "{error}");
    ledger.stop().await;
}

#[tokio::test]
async fn a_stopped_group_takes_no_proposals() {
    let ledger = in_memory().await;
    ledger.stop().await;
    ledger.propose(vec![found()]).await.unwrap_err();
}
