//! `smc cluster`: the replicas of the control plane.

use clap::Subcommand;
use smc_proto::admin::v1::{
    AddReplicaRequest, GetClusterStatusRequest, GetClusterStatusResponse, RemoveReplicaRequest,
    TakeSnapshotRequest, TransferLeadershipRequest,
};
use smc_types::host_port::HostPort;

use super::backup::{BackupArgs, RecoverArgs, RestoreArgs, run_backup, run_recover, run_restore};
use super::output::OutputArgs;
use super::table::Table;
use super::{AdminArgs, Outcome, Refused, Verdict};

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
}

pub(super) async fn run(command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Status { admin, output } => {
            let asked = admin.client().await?.get_cluster_status(GetClusterStatusRequest {}).await;
            output.print(&asked.map_err(Refused)?.into_inner(), status)?;
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
    }
    Ok(Verdict::Ok)
}

fn status(answer: &GetClusterStatusResponse) -> String {
    let mut table = Table::new(["REPLICA", "ADDRESS", "ROLE", "MATCHED"]);
    for replica in &answer.replicas {
        let role = match (answer.leader == Some(replica.id), replica.voter) {
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        };
        let mine = if replica.id == answer.replica { " (asked)" } else { "" };
        let matched = replica.matched.map(|index| index.to_string()).unwrap_or_default();
        let id = format!("{}{mine}", replica.id);
        table.row([id, replica.address.clone(), role.to_owned(), matched]);
    }
    let group = if answer.group.is_empty() { "none yet" } else { &answer.group };
    let clock = match answer.clock_problem.as_str() {
        "" => format!("clock {:+} s from the group's\n", answer.clock_offset),
        problem => format!("warning: {problem}\n"),
    };
    format!(
        "{}\ngroup {group}, term {}, entry {} ({} applied, {} in the snapshot), shard epoch {}\n{clock}",
        table.render(),
        answer.term,
        answer.last,
        answer.applied,
        answer.snapshot,
        answer.shard_epoch,
    )
}
