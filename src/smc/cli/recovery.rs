//! `smc cluster restore|recover` without `--data-dir`: on the volumes of the controllers in a cluster.
//!
//! Owns the question whether the person means it, and the waiting afterwards. A group that has a leader
//! needs neither, and would lose by both.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use smc_kubernetes::install::apply::Cluster;
use smc_kubernetes::install::check::facts::{group, leader};
use smc_kubernetes::recovery::Recovery;
use smc_kubernetes::stateful_set::{Placement, PlacementError, Ports};
use smc_types::ids::{MeshNamespace, ReplicaId};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::duration;
use super::kube_access::KubeArgs;
use super::outcome::{Outcome, Verdict};
use super::output::{self, print_progress};
use super::stateful_set::{HEADLESS_SERVICE, RAFT_PORT};

/// The longest backup that is sent to a cluster, in bytes: it is held in memory.
const MAX_BACKUP: u64 = 1 << 30;

/// The pause between two questions for the new group.
const LOOK: Duration = Duration::from_secs(1);

/// Flags of both commands.
#[derive(Debug, Args)]
pub(super) struct RecoveryArgs {
    /// Make the change. What only the lost replicas had is lost for good
    #[arg(long)]
    pub(super) confirm: bool,
    /// The control plane's namespace in the cluster
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new,
          conflicts_with = "data_dir")]
    mesh_namespace: MeshNamespace,
    /// How many controllers there are to be afterwards [default: as many as before]
    #[arg(long, value_name = "N", conflicts_with = "data_dir",
          value_parser = clap::value_parser!(u64).range(1..=smc_kubernetes::stateful_set::MAX_REPLICAS))]
    replicas: Option<u64>,
    /// How long to wait for the new group in the cluster
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse,
          conflicts_with = "data_dir")]
    wait: Duration,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Nothing was changed, or the new group is not there yet.
#[derive(Debug, Error)]
enum NotDone {
    #[error(
        "the group in {namespace} has a leader, controller {leader}, and needs no new group; to give it up all the same, \
         stop it first: kubectl scale statefulset smc-controller -n {namespace} --replicas=0"
    )]
    HasLeader { namespace: MeshNamespace, leader: u64 },
    #[error(
        "cannot tell whether the group in {namespace} has a leader: {reason}; if its controllers cannot work any more, stop \
         them first: kubectl scale statefulset smc-controller -n {namespace} --replicas=0"
    )]
    Unknown { namespace: MeshNamespace, reason: String },
    #[error(
        "the backup {0} has more than {MAX_BACKUP} bytes: restore it on a machine with the volume (--data-dir)"
    )]
    TooLong(String),
    #[error("cannot read the backup {path}")]
    Unread {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the new group has no leader after {0} s: {1}; smc check says more")]
    NoLeader(u64, String),
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

impl RecoveryArgs {
    /// Puts a backup in the place of all volumes.
    pub(super) async fn restore(self, file: &Path) -> Outcome {
        let path = file.display().to_string();
        let unread = |source| NotDone::Unread { path: path.clone(), source };
        if tokio::fs::metadata(file).await.map_err(unread)?.len() > MAX_BACKUP {
            return Err(NotDone::TooLong(path).into());
        }
        let backup = tokio::fs::read(file).await.map_err(unread)?;
        let recovery = self.begin().await?;
        let steps = [
            "stop the controllers (sidecars go on with what they have), and try whether the backup can be restored",
            "delete the volumes of all controllers, and with them what the ledger has that the backup has not",
            "restore the backup onto a new volume of controller 0",
        ];
        if !self.confirmed(&steps, &recovery)? {
            return Ok(Verdict::Ok);
        }
        recovery.restore(&backup, &self.address_of_the_first()?).await?;
        self.wait_for_a_leader().await
    }

    /// Makes a new group of the volume that has the most.
    pub(super) async fn recover(self) -> Outcome {
        let recovery = self.begin().await?;
        let steps = [
            "stop the controllers (sidecars go on with what they have)",
            "look at each volume; if a majority of the group is there, start them again and change nothing",
            "make the volume that has the most that of a new group",
            "delete the volumes of the other controllers",
        ];
        if !self.confirmed(&steps, &recovery)? {
            return Ok(Verdict::Ok);
        }
        recovery.recover().await?;
        self.wait_for_a_leader().await
    }

    async fn begin(&self) -> Result<Recovery, Box<dyn std::error::Error + Send + Sync>> {
        let client = self.kube.client().await?;
        let namespace = self.mesh_namespace.clone();
        // What is unknown is not taken for the loss of the group.
        match leader(&Cluster::new(client.clone()), &namespace).await {
            Ok(None) => {}
            Ok(Some(leader)) => return Err(NotDone::HasLeader { namespace, leader }.into()),
            Err(reason) => return Err(NotDone::Unknown { namespace, reason }.into()),
        }
        Ok(Recovery::new(client, namespace, self.replicas, print_progress).await?)
    }

    /// Whether the person means it; prints the steps otherwise.
    fn confirmed(&self, steps: &[&str], recovery: &Recovery) -> Result<bool, output::NotPrinted> {
        if !self.confirm {
            let mut text = format!("in {}, this would\n", self.mesh_namespace);
            for step in steps {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "- {step}");
            }
            let _ = writeln!(text, "- start {} controllers", recovery.replicas);
            output::write(&format!("{text}nothing was changed; --confirm does it\n"))?;
        }
        Ok(self.confirm)
    }

    /// The address at which others reach controller 0.
    fn address_of_the_first(&self) -> Result<String, NotDone> {
        let ports = Ports { xds: 0, raft: RAFT_PORT };
        let first = "smc-controller-0";
        let placement = Placement::derive(first, HEADLESS_SERVICE, true, &self.mesh_namespace, 1, ports)?;
        Ok(placement.raft.get(&ReplicaId(0)).map(ToString::to_string).unwrap_or_default())
    }

    async fn wait_for_a_leader(&self) -> Outcome {
        let cluster = Cluster::new(self.kube.client().await?);
        let deadline = Instant::now() + self.wait;
        loop {
            let missing = match group(&cluster, &self.mesh_namespace).await {
                Ok(group) if group.leader.is_some() && group.waits_for.is_none() => break,
                Ok(group) => group.waits_for.unwrap_or_else(|| "no leader".to_owned()),
                Err(problem) => problem,
            };
            if Instant::now() >= deadline {
                return Err(NotDone::NoLeader(self.wait.as_secs(), missing).into());
            }
            sleep(LOOK).await;
        }
        print_progress("ready     the new group has a leader; smc check says which sidecars it knows");
        Ok(Verdict::Ok)
    }
}
