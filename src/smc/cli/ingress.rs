//! `smc ingress`: requests from outside of the mesh.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use smc_proto::admin::v1::{
    GetIngressRoutesPerHostRequest, GetIngressRoutesPerHostResponse, VerifyIngressRequest,
    VerifyIngressResponse,
};
use smc_types::ids::{ServiceId, WorkloadId};

use super::admin_access::AdminArgs;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::OutputArgs;
use super::table::Table;

/// Subcommands of `smc ingress`.
#[derive(Debug, Subcommand)]
pub(super) enum IngressCommand {
    /// Say whether a gateway's connection gets to a port of a pod, and what stands against it; exits with 79
    /// if it does not.
    ///
    /// Judges by what the mesh declares, and sends nothing: whether a sidecar has it already, `smc proxy
    /// list` says.
    Verify(VerifyArgs),
    /// List the requests that IngressBackends let in to a service, by host.
    Routes {
        /// The service
        #[arg(value_name = "NAMESPACE/SERVICE")]
        service: ServiceId,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Flags of `smc ingress verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The pod that the gateway connects to
    #[arg(long, value_name = "NAMESPACE/POD")]
    to: WorkloadId,
    /// The port of the pod: the Service's targetPort
    #[arg(long)]
    port: u16,
    /// The Service of the gateway's pods
    #[arg(long, value_name = "NAMESPACE/SERVICE", required_unless_present = "address")]
    from: Option<ServiceId>,
    /// The address that the gateway connects from
    #[arg(long, conflicts_with = "from")]
    address: Option<IpAddr>,
    /// It connects over TLS
    #[arg(long)]
    tls: bool,
    /// A DNS name in the certificate of the mesh's CA that it shows; may be repeated
    #[arg(long, value_name = "NAME", requires = "tls")]
    certificate: Vec<String>,
    /// The name that it asks for by SNI
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(command: IngressCommand) -> Outcome {
    match command {
        IngressCommand::Verify(args) => verify(args).await,
        IngressCommand::Routes { service, admin, output } => {
            let request = GetIngressRoutesPerHostRequest { service: service.to_string() };
            let answer = admin.client().await?.get_ingress_routes_per_host(request).await;
            output.print(&answer.map_err(Refused)?.into_inner(), routes)?;
            Ok(Verdict::Ok)
        }
    }
}

async fn verify(args: VerifyArgs) -> Outcome {
    let VerifyArgs { to, port, from, address, tls, certificate, server_name, admin, output } = args;
    let request = VerifyIngressRequest {
        workload: to.to_string(),
        port: port.into(),
        source_service: from.map(|service| service.to_string()).unwrap_or_default(),
        source_address: address.map(|address| address.to_string()).unwrap_or_default(),
        tls,
        certificate_names: certificate,
        server_name: server_name.unwrap_or_default(),
    };
    let answer = admin.client().await?.verify_ingress(request).await.map_err(Refused)?.into_inner();
    output.print(&answer, verified)?;
    Ok(if answer.admissions.is_empty() { Verdict::Findings } else { Verdict::Ok })
}

fn verified(answer: &VerifyIngressResponse) -> String {
    if answer.admissions.is_empty() {
        let obstacles = answer.obstacles.iter();
        let obstacles = obstacles.map(|it| format!("- {}\n  the gateway sees: {}\n", it.reason, it.seen_as));
        return format!("it does not get in\n{}", obstacles.collect::<String>());
    }
    let admissions = answer.admissions.iter().map(|admission| {
        let requests = admission.requests.iter().map(|request| format!("  {request}\n"));
        let which = if admission.requests.is_empty() {
            "all requests\n"
        } else {
            "requests that match one of these:\n"
        };
        let backend = &admission.backend;
        format!("IngressBackend {backend} lets it in, with {which}{}", requests.collect::<String>())
    });
    admissions.collect()
}

fn routes(answer: &GetIngressRoutesPerHostResponse) -> String {
    if answer.hosts.is_empty() {
        return "no request gets in\n".to_owned();
    }
    let mut table = Table::new(["HOST", "REQUESTS"]);
    for host in &answer.hosts {
        for route in &host.routes {
            table.row([host.host.clone(), route.clone()]);
        }
    }
    table.render()
}
