//! `smc vm`: machines without a pod.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use smc_host::files::{FileError, make_directory, private, sync_name};
use smc_model::cidr::{IpNet, parse_cidr};
use smc_proto::admin::v1::{BootstrapRequest, ReleaseProxyRequest, Variant};
use smc_sidecar::interception::Parameters;
use smc_sidecar::machine_files::{BOOTSTRAP, Places, machine_files};
use smc_types::host_port::ReplicaAddress;
use smc_types::ids::{InvalidName, NamespacedName, ProxyName, ProxyUuid, WorkloadId};
use thiserror::Error;

use super::admin_access::AdminArgs;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::{self, OutputArgs};
use super::proxy::{VariantArg, released};

/// Subcommands of `smc vm`.
#[derive(Debug, Subcommand)]
pub(super) enum VmCommand {
    /// Issue a machine's proxy certificate, and write what the machine needs to join the mesh.
    ///
    /// The machine is declared by a MeshWorkload. Its Envoy bootstrap, which holds a private key, systemd
    /// units for Envoy and for interception, and their environment are written into one private directory,
    /// to be copied to the machine: smc.env in it says how to go on.
    Bootstrap(Box<BootstrapArgs>),
    /// Release a machine's certificates: its streams end, and it is refused from then on.
    ///
    /// As `smc proxy release`. A machine whose MeshWorkload is gone is released by itself after a while.
    Release {
        /// The MeshWorkload
        #[arg(value_name = "NAMESPACE/NAME")]
        machine: NamespacedName,
        /// Keep the key of its service account.
        #[arg(long)]
        keep_keys: bool,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Flags of `smc vm bootstrap`.
#[derive(Debug, Args)]
pub(super) struct BootstrapArgs {
    /// The MeshWorkload
    #[arg(value_name = "NAMESPACE/NAME")]
    machine: NamespacedName,
    #[command(flatten)]
    admin: AdminArgs,
    /// The directory to write, readable by its owner only
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// The variant of the xDS protocol
    #[arg(long, default_value = "delta")]
    variant: VariantArg,
    /// A replica's address as the machine reaches it (repeatable) [default: those the controller is
    /// configured with]
    #[arg(long = "xds-replica", value_name = "N=HOST:PORT")]
    xds_replicas: Vec<ReplicaAddress>,
    /// Port of the machine that others reach directly, without the proxy, beside that of SSH (repeatable)
    #[arg(long = "exclude-inbound-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    exclude_inbound_ports: Vec<u16>,
    /// Intercept the port of SSH, too: then only clients in the mesh that policy allows can log in
    #[arg(long)]
    intercept_ssh: bool,
    /// Destination port that the machine reaches directly (repeatable)
    #[arg(long = "exclude-outbound-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    exclude_outbound_ports: Vec<u16>,
    /// Destination network that the machine reaches directly, IPv4 or IPv6 (repeatable)
    #[arg(long = "exclude-outbound-cidr", value_name = "CIDR", value_parser = parse_cidr)]
    exclude_outbound_cidrs: Vec<IpNet>,
    /// Intercept only these destination networks, IPv4 or IPv6 (repeatable)
    #[arg(long = "include-outbound-cidr", value_name = "CIDR", value_parser = parse_cidr)]
    include_outbound_cidrs: Vec<IpNet>,
    /// Where the directory will be on the machine
    #[arg(long, value_name = "PATH", default_value_t = Places::default().directory)]
    directory: String,
    /// Envoy on the machine
    #[arg(long, value_name = "PATH", default_value_t = Places::default().envoy)]
    envoy: String,
    /// This program on the machine
    #[arg(long, value_name = "PATH", default_value_t = Places::default().smc)]
    smc: String,
}

/// The port by which people reach the machine: to intercept it would lock them out.
const SSH_PORT: u16 = 22;

/// The answer cannot be used.
#[derive(Debug, Error)]
#[error("the controller names the machine's proxy {name:?}")]
struct Misnamed {
    name: String,
    #[source]
    source: InvalidName,
}

pub(super) async fn run(command: VmCommand) -> Outcome {
    match command {
        VmCommand::Bootstrap(args) => bootstrap(*args).await,
        VmCommand::Release { machine, keep_keys, admin, output } => {
            let proxy = WorkloadId::machine(machine).to_string();
            let request = ReleaseProxyRequest { proxy, keep_keys };
            let answer = admin.client().await?.release_proxy(request).await.map_err(Refused)?.into_inner();
            output.print(&answer, released)?;
            Ok(Verdict::Ok)
        }
    }
}

async fn bootstrap(args: BootstrapArgs) -> Outcome {
    let workload = WorkloadId::machine(args.machine);
    let directory = args.output;
    let places = Places { directory: args.directory, envoy: args.envoy, smc: args.smc };
    let ssh = (!args.intercept_ssh).then_some(SSH_PORT);
    let parameters = Parameters {
        exclude_inbound_ports: ssh.into_iter().chain(args.exclude_inbound_ports).collect(),
        exclude_outbound_ports: args.exclude_outbound_ports,
        exclude_outbound_cidrs: args.exclude_outbound_cidrs,
        include_outbound_cidrs: args.include_outbound_cidrs,
        ..Parameters::default()
    };
    // What would be refused afterwards is refused before a certificate is issued. Only the name is not known.
    let unnamed = ProxyName::of(ProxyUuid::derived(&workload), &workload);
    machine_files(&workload, &unnamed, &places, parameters.clone())?;
    make_directory(&directory)?;
    let request = BootstrapRequest {
        workload: workload.to_string(),
        variant: Variant::from(args.variant).into(),
        controllers: args.xds_replicas.iter().map(ToString::to_string).collect(),
    };
    let answer = args.admin.client().await?.bootstrap(request).await.map_err(Refused)?.into_inner();
    let misnamed = |source| Misnamed { name: answer.proxy.clone(), source };
    let proxy: ProxyName = answer.proxy.parse().map_err(misnamed)?;
    let files = machine_files(&workload, &proxy, &places, parameters)?;
    let texts = files.iter().map(|file| (file.name, file.text.as_str()));
    // The bootstrap comes last: a directory that has it is whole.
    for (name, text) in texts.chain([(BOOTSTRAP, answer.bootstrap.as_str())]) {
        let path = directory.join(name);
        private::replace(&path, text.as_bytes()).map_err(FileError::of("write", &path))?;
    }
    let bootstrap = directory.join(BOOTSTRAP);
    sync_name(&bootstrap).map_err(FileError::of("sync the directory of", &bootstrap))?;
    output::write(&format!(
        "{} for the proxy {proxy}: copy it to the machine as {}; smc.env in it says how to go on\n",
        directory.display(),
        places.directory
    ))?;
    Ok(Verdict::Ok)
}
