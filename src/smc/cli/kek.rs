//! `smc kek`: the key-encryption key of a control plane in Kubernetes.

use clap::Subcommand;
use smc_host::env::Env;
use smc_kubernetes::stateful_set::{KekSecret, OwnObjects};
use smc_types::ids::MeshNamespace;

use super::outcome::{Outcome, Verdict};
use crate::log_args::LogArgs;

/// Subcommands of `smc kek`.
#[derive(Debug, Subcommand)]
pub(super) enum KekCommand {
    /// Create the Secret with a new key-encryption key, unless there is one; never changes one.
    ///
    /// For the init container of a controller. If a mesh was founded here before and its Secret is gone, it
    /// creates none and fails: a new key opens nothing that the old one sealed.
    Ensure {
        /// The namespace of the Secret
        #[arg(long, value_name = "NAMESPACE", value_parser = MeshNamespace::new)]
        mesh_namespace: MeshNamespace,
        /// The name of the Secret
        #[arg(long, value_name = "NAME", default_value = "smc-kek")]
        secret: String,
        #[command(flatten)]
        log: LogArgs,
    },
}

pub(super) async fn run(command: KekCommand) -> Outcome {
    match command {
        KekCommand::Ensure { mesh_namespace, secret, log } => {
            log.start_logging();
            let objects = OwnObjects::in_cluster(mesh_namespace)?;
            KekSecret { objects, name: secret }.ensure(&Env::system()).await?;
        }
    }
    Ok(Verdict::Ok)
}
