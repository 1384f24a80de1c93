//! `smc uninstall`.
//!
//! Owns what goes, in which order, and what is left to another control plane.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use smc_kubernetes::install::apply::{Cluster, object_name};
use smc_kubernetes::install::conversion::{self, Conversion};
use smc_kubernetes::install::manifests::{chart_objects, is_kept};
use smc_kubernetes::install::ownership;
use smc_types::ids::{MeshName, MeshNamespace};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::duration;
use super::install::{LOOK, WhereArgs};
use super::outcome::{Outcome, Verdict};
use super::output::{self, print_progress};

/// Flags of `smc uninstall`.
#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait until the controllers are gone; 0s for not at all
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    wait: Duration,
}

/// An uninstallation cannot go on.
#[derive(Debug, Error)]
enum UninstallError {
    #[error(
        "SMC is not installed in {asked}, and the mesh {mesh} is that of the namespace {namespace}: use --mesh-namespace \
         {namespace}"
    )]
    Elsewhere { asked: MeshNamespace, mesh: MeshName, namespace: String },
    #[error(
        "the controllers in {namespace} have not ended within {seconds} s; uninstall again to delete the rest"
    )]
    NotGone { namespace: MeshNamespace, seconds: u64 },
}

/// Waits for the end of the StatefulSet, which is deleted after its pods: each ends within its grace period.
async fn wait_until_gone(
    cluster: &Cluster,
    wait: Duration,
    place: &WhereArgs,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let deadline = Instant::now() + wait;
    let mut said = false;
    while !wait.is_zero() && cluster.find(&place.set()).await?.is_some() {
        if Instant::now() >= deadline {
            let namespace = place.mesh_namespace.clone();
            return Err(UninstallError::NotGone { namespace, seconds: wait.as_secs() }.into());
        }
        if !said {
            print_progress("waiting   the controllers end");
            said = true;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

pub(super) async fn uninstall(args: UninstallArgs) -> Outcome {
    let cluster = Cluster::new(args.place.kube.client().await?);
    // An uninstallation that was interrupted has left none.
    let set = cluster.find(&args.place.set()).await?;
    if let Some(set) = &set {
        ownership::check(set, &args.place.mesh_name, &args.place.mesh_namespace, "uninstall")?;
    }
    let elsewhere = args.place.elsewhere(&cluster).await?;
    if let (None, Some(namespace)) = (&set, &elsewhere) {
        let (asked, mesh) = (args.place.mesh_namespace, args.place.mesh_name);
        return Err(UninstallError::Elsewhere { asked, mesh, namespace: namespace.clone() }.into());
    }
    if !args.dry_run {
        // While the controllers still answer.
        match conversion::end(cluster.client(), &args.place.mesh_namespace).await? {
            Conversion::NotOurs => {}
            Conversion::Ended(Some(count)) => print_progress(&format!(
                "changed   TrafficSplits are no longer converted; {count} are stored in their present version"
            )),
            Conversion::Ended(None) => print_progress(
                "changed   TrafficSplits are no longer converted; those stored in an earlier version can be deleted, \
                 and a new installation converts them again",
            ),
        }
    }
    let mut objects = chart_objects(&args.place.settings())?;
    // What the cluster has one of is then the other control plane's.
    let own = |object: &Value| elsewhere.is_none() || object.pointer("/metadata/namespace").is_some();
    objects.retain(|object| !is_kept(object) && own(object));
    // What calls the controllers goes before them, so that no pod waits for an answer.
    objects.reverse();
    for object in &objects {
        let Some(name) = object_name(object) else { continue };
        if args.dry_run {
            if cluster.find(object).await?.is_some() {
                output::write(&format!("{name}\n"))?;
            }
        } else if cluster.delete(object).await? {
            print_progress(&format!("deleted   {name}"));
            if name.kind == "StatefulSet" {
                // Before their rights, which they use until their end.
                wait_until_gone(&cluster, args.wait, &args.place).await?;
            }
        }
    }
    if !args.dry_run {
        print_progress(&format!(
            "kept      in {}: the key-encryption key (Secret smc-kek), the roots (Secret smc-ca-bundle), the \
             records of the founding and of the group (ConfigMaps smc-founding and smc-group), the controllers' volumes \
             and their own Services; and the custom resources, with the MeshConfig and all policy. A new installation goes on with them.",
            args.place.mesh_namespace
        ));
    }
    Ok(Verdict::Ok)
}
