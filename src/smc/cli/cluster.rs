//! `smc cluster`: the replicas of the control plane.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Subcommand;
use smc_host::env::Env;
use smc_proto::admin::v1::{
    AddReplicaRequest, DrainReplicaRequest, GetClusterStatusRequest, GetClusterStatusResponse,
    GetShardsRequest, GetShardsResponse, RemoveReplicaRequest, ReplicaPhase, Shard, TakeSnapshotRequest,
    TransferLeadershipRequest,
};
use smc_types::host_port::HostPort;
use smc_types::time::Timestamp;
use tokio::time::sleep;

use super::admin_access::AdminArgs;
use super::backup::{BackupArgs, RecoverArgs, RestoreArgs, run_backup, run_recover, run_restore};
use super::duration;
use super::older_disks::{self, AcceptDisksArgs};
use super::outcome::{Outcome, Refused, Verdict};
use super::output::OutputArgs;
use super::table::Table;

/// How often to ask whether a drain has ended.
const DRAIN_LOOK: Duration = Duration::from_millis(200);

/// Subcommands of `smc cluster`.
#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Show the members of the Raft group, its leader, and the log position of each.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show which replica should serve how many proxies, and where they are connected.
    Shards {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Hand all sidecars of the replica that is called over to the others. It runs on and takes none.
    Drain {
        /// Return when the last sidecar has gone
        #[arg(long, conflicts_with = "cancel")]
        wait: bool,
        /// End the drain: the replica takes sidecars again
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Add a replica that runs and belongs to no group; returns once it votes.
    Add {
        /// Its id
        id: u64,
        /// Its Raft address
        #[arg(value_name = "HOST:PORT")]
        address: HostPort,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Remove a replica, running or lost.
    Remove {
        /// Its id
        id: u64,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Transfer leadership to a replica.
    Transfer {
        /// Its id
        to: u64,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Write a snapshot on the replica that is called, and purge the log that it includes.
    Snapshot {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Write a backup of all acknowledged changes, sealed with the key-encryption key.
    Backup(BackupArgs),
    /// Restore a backup: make a data directory that of the only replica of a new group.
    Restore(RestoreArgs),
    /// Last resort when a majority is lost for good: make the data of one replica a new group.
    ///
    /// Without --confirm it shows what that data holds, and changes nothing.
    Recover(RecoverArgs),
    /// Confirm that the group in a cluster goes on, although all of its disks are older than it was.
    ///
    /// Its controllers wait for this where all volumes were put back from a copy. Without --confirm it shows
    /// how far the group was, and changes nothing.
    AcceptDisks(AcceptDisksArgs),
}

pub(super) async fn run(command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Status { admin, output } => {
            let asked = admin.client().await?.get_cluster_status(GetClusterStatusRequest {}).await;
            output.print(&asked.map_err(Refused)?.into_inner(), status)?;
        }
        ClusterCommand::Shards { admin, output } => {
            let asked = admin.patient_client().await?.get_shards(GetShardsRequest {}).await;
            output.print(&asked.map_err(Refused)?.into_inner(), shards)?;
        }
        ClusterCommand::Drain { wait, cancel, admin } => {
            let mut client = admin.patient_client().await?;
            loop {
                let asked = client.drain_replica(DrainReplicaRequest { cancel }).await;
                let streams = asked.map_err(Refused)?.into_inner().streams;
                if !wait || streams == 0 {
                    break;
                }
                sleep(DRAIN_LOOK).await;
            }
        }
        ClusterCommand::Add { id, address, admin } => {
            admin
                .patient_client()
                .await?
                .add_replica(AddReplicaRequest { id, address: address.to_string() })
                .await
                .map_err(Refused)?;
        }
        ClusterCommand::Remove { id, admin } => {
            admin
                .patient_client()
                .await?
                .remove_replica(RemoveReplicaRequest { id })
                .await
                .map_err(Refused)?;
        }
        ClusterCommand::Transfer { to, admin } => {
            let request = TransferLeadershipRequest { to };
            admin.patient_client().await?.transfer_leadership(request).await.map_err(Refused)?;
        }
        ClusterCommand::Snapshot { admin } => {
            admin.client().await?.take_snapshot(TakeSnapshotRequest {}).await.map_err(Refused)?;
        }
        ClusterCommand::Backup(args) => return run_backup(args).await,
        ClusterCommand::Restore(args) => return run_restore(args).await,
        ClusterCommand::Recover(args) => return run_recover(args).await,
        ClusterCommand::AcceptDisks(args) => return older_disks::run(args).await,
    }
    Ok(Verdict::Ok)
}

fn status(answer: &GetClusterStatusResponse) -> String {
    let mut table = Table::new(["REPLICA", "ADDRESS", "ROLE", "HEARD", "MATCHED"]);
    for replica in &answer.replicas {
        let role = match (answer.leader == Some(replica.id), replica.voter) {
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        };
        let mine = if replica.id == answer.replica { " (asked)" } else { "" };
        let matched = replica.matched.map(|index| index.to_string()).unwrap_or_default();
        let id = format!("{}{mine}", replica.id);
        let heard = if replica.heard { "yes" } else { "no" };
        table.row([id, replica.address.clone(), role.to_owned(), heard.to_owned(), matched]);
    }
    let group = if answer.group.is_empty() { "none yet" } else { &answer.group };
    let clock = match answer.clock_problem.as_str() {
        "" => format!("clock {:+} s from the group's\n", answer.clock_offset),
        problem => format!("warning: {problem}\n"),
    };
    let waits = match answer.waits_for.as_str() {
        "" => String::new(),
        what => format!("this controller does not serve; it waits for {what}\n"),
    };
    format!(
        "{}\ngroup {group}, term {}, entry {} ({} applied, {} in the snapshot), shard epoch {}\n{clock}{waits}",
        table.render(),
        answer.term,
        answer.last,
        answer.applied,
        answer.snapshot,
        answer.shard_epoch,
    )
}

fn shards(answer: &GetShardsResponse) -> String {
    let mut table =
        Table::new(["REPLICA", "PHASE", "FOR", "OWNS", "CONNECTED", "TO MOVE", "MOVING", "MOVED", "REFUSED"]);
    let now = Env::system().now();
    let mut notes = String::new();
    for shard in &answer.shards {
        let since = match shard.phase() {
            ReplicaPhase::Unspecified => String::new(),
            _ => duration::print(now.since(Timestamp(shard.since))),
        };
        let told = |count: u64| if shard.problem.is_empty() { count.to_string() } else { "?".to_owned() };
        table.row([
            shard.replica.to_string(),
            phase(shard).to_owned(),
            since,
            shard.owned.to_string(),
            told(shard.connected),
            told(shard.to_move),
            told(shard.moves_in_flight),
            told(shard.moved),
            told(shard.refused),
        ]);
        if !shard.problem.is_empty() {
            let _ = writeln!(notes, "replica {} does not answer: {}", shard.replica, shard.problem);
        } else if shard.seen_epoch != answer.epoch {
            let _ = writeln!(notes, "replica {} has seen epoch {}", shard.replica, shard.seen_epoch);
        }
    }
    if answer.unowned > 0 {
        let _ = writeln!(notes, "{} proxies have no replica that is ready", answer.unowned);
    }
    format!("{}\nshard epoch {}\n{notes}", table.render(), answer.epoch)
}

fn phase(shard: &Shard) -> &'static str {
    match shard.phase() {
        ReplicaPhase::Unspecified => "not joined",
        ReplicaPhase::Joining => "joining",
        ReplicaPhase::Ready => "ready",
        ReplicaPhase::Draining => "draining",
        ReplicaPhase::Down => "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_answer_is_shown_with_what_is_known() {
        let one = Shard { replica: 0, owned: 3, connected: 4, to_move: 1, seen_epoch: 7, ..Shard::default() };
        let one = Shard { phase: ReplicaPhase::Ready.into(), ..one };
        let lost = Shard { replica: 1, problem: "no route".to_owned(), owned: 2, ..Shard::default() };
        let printed = shards(&GetShardsResponse { epoch: 7, shards: vec![one, lost], unowned: 5 });
        let rows: Vec<Vec<_>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1][..2], ["0", "ready"]);
        assert_eq!(rows[1][rows[1].len() - 6..], ["3", "4", "1", "0", "0", "0"], "{printed}");
        assert_eq!(rows[2], ["1", "not", "joined", "-", "2", "?", "?", "?", "?", "?"], "{printed}");
        assert!(printed.ends_with(
            "shard epoch 7\nreplica 1 does not answer: no route\n5 proxies have no replica that is ready\n"
        ));
    }
}
