//! Groups that lost their quorum or all disks.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::commands::{commit, found, hash, holds, issue};
use super::group::open;
use super::replicas::{Cluster, address, env, eventually};
use crate::group::{Group, Replaced};
use crate::recovery::backup::{self, Backup};
use crate::recovery::{RecoveryError, inspect, recover, restore};
use crate::replicated::ReplicatedLedger;
use crate::storage::Storage;
use crate::storage::memory::MemoryDisk;
use crate::transport::tls::GroupSecret;
use smc_types::ids::ReplicaId;

/// Collects what is written to it.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a backup of a group with this secret, and reads it again.
async fn backup_under(secret: u8, group: &Group) -> Backup {
    let sink = Sink::default();
    group.backup(sink.clone()).await.unwrap();
    let bytes = sink.0.lock().unwrap().clone();
    backup::read(&GroupSecret::new(Zeroizing::new([secret; 32])), &*bytes).unwrap()
}

/// Makes a backup of a group of a [`Cluster`].
async fn backup_of(group: &Group) -> Backup {
    backup_under(1, group).await
}

async fn restored(cluster: &Cluster, backup: &Backup, id: u64) -> Result<(), RecoveryError> {
    let disk = Storage::Memory(cluster.disks.get(&id).cloned().unwrap_or_default());
    restore(backup, disk, ReplicaId(id), address(id), &env()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_any_replica_has_all_that_was_acknowledged() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    for n in 2..30 {
        let group = cluster.group(u64::from(n % 3));
        commit(group, vec![issue(n)]).await;
        let other = cluster.group(u64::from((n + 1) % 3));
        let backup = backup_of(other).await;
        assert_eq!(backup.ledger.proxy_certificates().count(), n as usize - 1, "the backup is behind");
        assert_eq!(backup.group, group.status().group);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_lost_all_disks_is_restored_from_a_backup_and_grows() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    for n in 2..50 {
        commit(cluster.any(), vec![issue(n)]).await;
    }
    let backup = backup_of(cluster.group(1)).await;
    let before = cluster.group(0).status().group;
    commit(cluster.any(), vec![issue(100)]).await;
    for id in [0, 1, 2] {
        cluster.crash(id).await;
    }
    cluster.disks.remove(&0);
    cluster.disks.remove(&1);

    let disk = cluster.disks.entry(0).or_default().clone();
    restore(&backup, Storage::Memory(disk), ReplicaId(0), address(0), &env()).await.unwrap();
    for id in [0, 1, 2] {
        cluster.start(id).await;
    }
    for id in [0, 1] {
        cluster.group(id).ready().await.unwrap();
    }
    commit(cluster.group(1), vec![issue(101)]).await;
    for id in [0, 1] {
        let group = cluster.group(id);
        eventually("a barrier", || group.barrier()).await;
        assert!((2..50).all(|n| holds(group, n)) && holds(group, 101), "replica {id}");
        assert!(!holds(group, 100), "it is later than the backup");
        assert_ne!(group.status().group, before);
    }
    // A replica of the old group that returns with its disk stays out, and does nothing by itself.
    let members = cluster.group(0).status().members;
    assert!(members.iter().all(|member| member.id != ReplicaId(2)), "{members:?}");
    assert_eq!(cluster.group(2).status().group, before);
    cluster.group(2).barrier().await.unwrap_err();
    let replaced = timeout(Duration::from_mins(1), cluster.group(2).replaced()).await.unwrap();
    let (mine, newer) = (before.unwrap(), cluster.group(0).status().group.unwrap());
    assert_eq!(replaced, Replaced::Group { mine, newer });
}

/// The case of an operator: disk 0 is restored, and disks 1 and 2, a majority, are not emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_beside_a_restored_group_learns_that_it_is_over() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    commit(cluster.any(), vec![issue(2)]).await;
    let backup = backup_of(cluster.group(1)).await;
    let mine = cluster.group(0).status().group.unwrap();
    for id in [0, 1, 2] {
        cluster.crash(id).await;
    }
    cluster.disks.remove(&0);
    let disk = cluster.disks.entry(0).or_default().clone();
    let newer = restore(&backup, Storage::Memory(disk), ReplicaId(0), address(0), &env()).await.unwrap();
    for id in [0, 1, 2] {
        cluster.start(id).await;
    }
    for id in [1, 2] {
        let replaced = timeout(Duration::from_mins(1), cluster.group(id).replaced()).await.unwrap();
        assert_eq!(replaced, Replaced::Group { mine, newer }, "replica {id}");
    }
    let lasting = timeout(Duration::from_secs(2), cluster.group(0).replaced()).await;
    assert!(lasting.is_err(), "the restored group goes on");
    // Emptied, they join it.
    for id in [1, 2] {
        cluster.crash(id).await;
        cluster.disks.remove(&id);
        cluster.start(id).await;
    }
    for id in [0, 1, 2] {
        cluster.group(id).ready().await.unwrap();
        assert_eq!(cluster.group(id).status().group, Some(newer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_not_restored_over_anything() {
    let mut cluster = Cluster::found(&[0]).await;
    commit(cluster.any(), vec![issue(2)]).await;
    let backup = backup_of(cluster.any()).await;
    let before = hash(cluster.any()).to_string();
    commit(cluster.any(), vec![issue(3)]).await;
    cluster.crash(0).await;
    let refused = restored(&cluster, &backup, 0).await;
    assert!(matches!(refused, Err(RecoveryError::InUse { .. })), "{refused:?}");
    cluster.start(0).await;
    cluster.group(0).ready().await.unwrap();
    assert!(holds(cluster.any(), 3), "it was changed");
    assert_ne!(hash(cluster.any()).to_string(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_replica_of_three_recovers_with_all_it_has_and_grows() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    for n in 2..50 {
        commit(cluster.any(), vec![issue(n)]).await;
    }
    let (survivor, old) = (cluster.leader().await, cluster.any().status().group.unwrap());
    let returning = (survivor + 1) % 3;
    for id in [0, 1, 2] {
        cluster.crash(id).await;
    }
    let disk = cluster.disks[&survivor].clone();
    let inspection = inspect(Storage::Memory(disk.clone())).await.unwrap();
    assert_eq!(
        (inspection.replica, inspection.group, inspection.members.len()),
        (ReplicaId(survivor), old, 3)
    );
    assert_eq!(inspection.ledger.proxy_certificates().count(), 48);
    assert_eq!(
        inspect(Storage::Memory(disk.clone())).await.unwrap(),
        inspection,
        "the inspection changed it"
    );

    let (had, new) = recover(Storage::Memory(disk), None, &env()).await.unwrap();
    assert_eq!(had, inspection);
    assert_ne!(new, old);
    // One returns with an empty disk, the other with its disk of the old group.
    let emptied = (survivor + 2) % 3;
    cluster.disks.remove(&emptied);
    for id in [0, 1, 2] {
        cluster.start(id).await;
    }
    for id in [survivor, emptied] {
        cluster.group(id).ready().await.unwrap();
    }
    commit(cluster.group(emptied), vec![issue(100)]).await;
    for id in [survivor, emptied] {
        let group = cluster.group(id);
        eventually("a barrier", || group.barrier()).await;
        assert!((2..50).all(|n| holds(group, n)) && holds(group, 100), "replica {id}");
        assert_eq!(group.status().group, Some(new));
    }
    cluster.group(returning).barrier().await.unwrap_err();
    assert_eq!(cluster.group(returning).status().group, Some(old));
}

#[tokio::test]
async fn an_entry_that_only_the_survivor_has_is_kept() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    // The entry is in the leader's log, and on no other disk.
    let others: Vec<_> = [0, 1, 2].into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.crash(*id).await;
    }
    cluster.group(leader).propose(vec![issue(2)]).await.unwrap_err();
    cluster.crash(leader).await;
    let disk = cluster.disks[&leader].clone();
    let (inspection, _) = recover(Storage::Memory(disk), Some(address(leader)), &env()).await.unwrap();
    assert_eq!(inspection.ledger.proxy_certificates().count(), 1);
    cluster.initial_members = vec![leader];
    cluster.start(leader).await;
    cluster.group(leader).ready().await.unwrap();
    assert!(holds(cluster.group(leader), 2));
}

#[tokio::test]
async fn without_a_ledger_nothing_is_recovered() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("missing");
    let refused = inspect(Storage::Directory(path.clone())).await;
    assert!(matches!(refused, Err(RecoveryError::Nothing)), "{refused:?}");
    assert!(!path.exists());
    std::fs::create_dir(&path).unwrap();
    let refused = inspect(Storage::Directory(path.clone())).await;
    assert!(matches!(refused, Err(RecoveryError::Nothing)), "{refused:?}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "the inspection created something");
    let empty = recover(Storage::Memory(MemoryDisk::default()), None, &env()).await;
    assert!(matches!(empty, Err(RecoveryError::Nothing)), "{empty:?}");
}

#[tokio::test]
async fn files_are_used_after_a_restore_and_after_repeated_recoveries() {
    let dir = TempDir::new().unwrap();
    let first = open(Storage::Directory(dir.path().join("first"))).await;
    commit(&first, vec![found()]).await;
    commit(&first, (2..50).map(issue).collect()).await;
    let (ledger, backup) = (hash(&first).to_string(), backup_under(0, &first).await);
    first.stop().await;

    let path = dir.path().join("second");
    let storage = || Storage::Directory(path.clone());
    restore(&backup, storage(), ReplicaId(0), address(0), &env()).await.unwrap();
    for n in 50..53 {
        let group = open(storage()).await;
        if n == 50 {
            assert_eq!(hash(&group).to_string(), ledger);
        }
        commit(&group, vec![issue(n)]).await;
        let expected = hash(&group).to_string();
        group.stop().await;
        drop(group);
        recover(storage(), None, &env()).await.unwrap();
        let group = open(storage()).await;
        assert_eq!(hash(&group).to_string(), expected);
        group.stop().await;
    }
}
