//! `smc cluster accept-disks`: a person confirms that a group goes on from disks that are older than it was.
//!
//! Owns the question whether the person means it. Only controllers that wait for the answer get one.

use clap::Args;
use smc_kubernetes::install::apply::Cluster;
use smc_kubernetes::install::check::facts::group;
use smc_kubernetes::recovery::accept_older_disks;
use smc_types::ids::MeshNamespace;
use thiserror::Error;

use super::kube_access::KubeArgs;
use super::outcome::{Outcome, Verdict};
use super::output;

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct AcceptDisksArgs {
    /// Confirm it. What the group did since those disks were copied is lost for good
    #[arg(long)]
    confirm: bool,
    /// The control plane's namespace in the cluster
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    mesh_namespace: MeshNamespace,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Nothing was changed.
#[derive(Debug, Error)]
enum NotDone {
    #[error("the controllers in {0} wait for no such word: their disks are as far as their group was")]
    NotAsked(MeshNamespace),
    #[error("cannot tell what the controllers in {namespace} wait for: {reason}")]
    Unknown { namespace: MeshNamespace, reason: String },
}

/// What to do afterwards: the ledger has no memory of it.
const AFTERWARDS: &str = "the controllers go on within seconds. Release again what was released since the copy \
                          was made (smc proxy release), and rotate again what was rotated (smc ca rotate); \
                          sidecars whose certificates are unknown need a new bootstrap: smc check names them\n";

pub(super) async fn run(args: AcceptDisksArgs) -> Outcome {
    let AcceptDisksArgs { confirm, mesh_namespace: namespace, kube } = args;
    let client = kube.client().await?;
    let group = group(&Cluster::new(client.clone()), &namespace).await;
    let group = group.map_err(|reason| NotDone::Unknown { namespace: namespace.clone(), reason })?;
    let waits_for = group.waits_for_older_disks().ok_or_else(|| NotDone::NotAsked(namespace.clone()))?;
    if !confirm {
        output::write(&format!(
            "the controllers wait for {waits_for}\nnothing was changed; --confirm goes on with these disks\n"
        ))?;
        return Ok(Verdict::Ok);
    }
    accept_older_disks(client, &namespace).await?;
    output::write(AFTERWARDS)?;
    Ok(Verdict::Ok)
}
