//! `smc proxy`: sidecars.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use smc_host::env::Env;
use smc_kubernetes::sidecar_request::{SidecarError, config_dump};
use smc_proto::admin::v1::{
    BootstrapRequest, CertificateState, GetProxyConfigRequest, GetProxyConfigResponse, ListProxiesRequest,
    ListProxiesResponse, Proxy, ReleaseProxyRequest, ReleaseProxyResponse, ReplacedKey, Stream, Variant,
};
use smc_types::ids::WorkloadId;
use smc_types::text::truncated;
use smc_types::time::Timestamp;
use thiserror::Error;

use super::admin_access::AdminArgs;
use super::duration;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::{self, OutputArgs};
use super::output_file::{check_target, write_secret};
use super::table::Table;

/// Subcommands of `smc proxy`.
#[derive(Debug, Subcommand)]
pub(super) enum ProxyCommand {
    /// Issue a proxy certificate and write an Envoy bootstrap with it.
    Bootstrap(BootstrapArgs),
    /// List the proxies: their certificates, connections, and participation in the mesh.
    List {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the resources that a proxy was sent, acknowledged and rejected.
    Config {
        #[command(flatten)]
        pod: Pod,
        /// Print the configuration itself, as the sidecar's Envoy has it: its `config_dump`, without
        /// private keys
        ///
        /// Asks the sidecar through the API server of the cluster, with the right to pods/portforward.
        #[arg(long, conflicts_with_all = ["output", "admin_socket"])]
        dump: bool,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Release a proxy's certificates: its streams end, and it is refused from then on.
    ///
    /// The keys of its service account, which all its sidecars share, are replaced. Other sidecars accept the
    /// certificate from before until it ends: it cannot be revoked.
    Release {
        /// The pod, machine/NAMESPACE/NAME for a machine, or UUID.NAMESPACE (UUID.SERVICE.NAMESPACE for a
        /// machine) for a proxy whose workload is gone
        #[arg(value_name = "NAMESPACE/POD")]
        proxy: String,
        /// Keep the key of its service account.
        #[arg(long)]
        keep_keys: bool,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Flags of `smc proxy bootstrap`.
#[derive(Debug, Args)]
pub(super) struct BootstrapArgs {
    #[command(flatten)]
    pod: Pod,
    #[command(flatten)]
    admin: AdminArgs,
    /// The file to write, readable by its owner only, or a device or a pipe [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The variant of the xDS protocol
    #[arg(long, default_value = "delta")]
    variant: VariantArg,
}

/// The argument that names a pod or a machine.
#[derive(Debug, Args)]
pub(super) struct Pod {
    /// The pod, or machine/NAMESPACE/NAME for a machine
    #[arg(value_name = "NAMESPACE/POD")]
    pod: WorkloadId,
}

/// A variant of xDS, as a flag.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum VariantArg {
    /// Only changes are sent
    Delta,
    /// State of the World
    Sotw,
}

impl From<VariantArg> for Variant {
    fn from(variant: VariantArg) -> Self {
        match variant {
            VariantArg::Delta => Self::Delta,
            VariantArg::Sotw => Self::Sotw,
        }
    }
}

/// The configuration of a sidecar is not known.
#[derive(Debug, Error)]
#[error("cannot print the configuration of the sidecar of {pod}")]
struct DumpError {
    pod: WorkloadId,
    source: SidecarError,
}

pub(super) async fn run(command: ProxyCommand) -> Outcome {
    match command {
        ProxyCommand::Bootstrap(args) => return bootstrap(args).await,
        ProxyCommand::List { admin, output } => {
            let mut answers = Vec::new();
            for mut client in admin.every_client().await? {
                let answer = client.list_proxies(ListProxiesRequest {}).await;
                answers.push(answer.map_err(Refused)?.into_inner());
            }
            output.print(&merged(answers), proxies)?;
        }
        ProxyCommand::Config { pod, dump: true, admin, .. } => {
            let dump = config_dump(&admin.cluster().await?, &pod.pod).await;
            let dump = dump.map_err(|source| DumpError { pod: pod.pod, source })?;
            output::write(&String::from_utf8_lossy(&dump))?;
        }
        ProxyCommand::Config { pod, dump: false, admin, output } => {
            let request = GetProxyConfigRequest { workload: pod.pod.to_string() };
            let (mut whole, mut refused) = (GetProxyConfigResponse::default(), None);
            for mut client in admin.every_client().await? {
                match client.get_proxy_config(request.clone()).await {
                    Ok(answer) => {
                        let answer = answer.into_inner();
                        whole.proxy = answer.proxy.or(whole.proxy);
                        whole.streams.extend(answer.streams);
                    }
                    // The proxy is connected to another replica, unless all say so.
                    Err(status) => refused = Some(status),
                }
            }
            if let (None, Some(status)) = (&whole.proxy, refused) {
                return Err(Refused(status).into());
            }
            output.print(&whole, config)?;
        }
        ProxyCommand::Release { proxy, keep_keys, admin, output } => {
            let answer = admin
                .client()
                .await?
                .release_proxy(ReleaseProxyRequest { proxy, keep_keys })
                .await
                .map_err(Refused)?
                .into_inner();
            output.print(&answer, released)?;
        }
    }
    Ok(Verdict::Ok)
}

/// The answers of several replicas as one: each knows all certificates, and the streams of its own
/// connections. One that has just started knows no pod yet; a proxy is in the mesh if the replica that
/// serves it says so.
fn merged(answers: Vec<ListProxiesResponse>) -> ListProxiesResponse {
    let mut places = BTreeMap::new();
    let mut proxies: Vec<Proxy> = Vec::new();
    for proxy in answers.into_iter().flat_map(|answer| answer.proxies) {
        let place = *places.entry((proxy.namespace.clone(), proxy.uuid.clone())).or_insert(proxies.len());
        match proxies.get_mut(place) {
            Some(known) => {
                known.streams.extend(proxy.streams);
                known.participant |= proxy.participant;
                if !known.discovered && proxy.discovered {
                    known.discovered = true;
                    (known.workload, known.service_account) = (proxy.workload, proxy.service_account);
                }
            }
            None => proxies.push(proxy),
        }
    }
    ListProxiesResponse { proxies }
}

pub(super) fn released(answer: &ReleaseProxyResponse) -> String {
    let replaced: String = answer.replaced.iter().map(replaced).collect();
    format!("certificates released: {}\n{replaced}", answer.released)
}

fn replaced(key: &ReplacedKey) -> String {
    let left = duration::print(Timestamp(key.earlier_until).since(Env::system().now()));
    let account = &key.service_account;
    format!("the key of {account} is replaced; peers accept the certificate from before for another {left}\n")
}

async fn bootstrap(args: BootstrapArgs) -> Outcome {
    let BootstrapArgs { pod, admin, output, variant } = args;
    if let Some(path) = &output {
        check_target(path)?;
    }
    let request = BootstrapRequest {
        workload: pod.pod.to_string(),
        variant: Variant::from(variant).into(),
        controllers: Vec::new(),
    };
    let answer = admin.client().await?.bootstrap(request).await.map_err(Refused)?.into_inner();
    match output {
        None => output::write(&answer.bootstrap)?,
        Some(path) => write_secret(&path, answer.bootstrap.as_bytes())?,
    }
    Ok(Verdict::Ok)
}

fn proxies(answer: &ListProxiesResponse) -> String {
    let now = Env::system().now();
    let mut table = Table::new([
        "WORKLOAD",
        "IDENTITY",
        "IN MESH",
        "CERTIFICATE",
        "CONNECTED",
        "VARIANT",
        "ACKED",
        "NACKS",
        "PROXY",
    ]);
    let mut participants = 0;
    for proxy in &answer.proxies {
        participants += usize::from(proxy.participant);
        let acked = proxy.streams.iter().map(|stream| stream.acked_at).max().unwrap_or(0);
        let rejections: u64 = proxy.streams.iter().map(|stream| stream.rejections).sum();
        let connected = proxy.streams.first();
        table.row([
            workload(proxy),
            proxy.service_account.clone(),
            if proxy.participant { "yes" } else { "no" }.to_owned(),
            certificate(proxy).to_owned(),
            connected.map(|stream| ago(now, stream.opened_at)).unwrap_or_default(),
            connected.map(|stream| variant(stream).to_owned()).unwrap_or_default(),
            if acked == 0 { String::new() } else { ago(now, acked) },
            if connected.is_some() { rejections.to_string() } else { String::new() },
            proxy.uuid.clone(),
        ]);
    }
    format!("{}\nparticipants of the mesh: {participants}\n", table.render())
}

/// A workload that is gone, or is not in the mesh any more, is known by its certificates alone, until these
/// are released.
fn workload(proxy: &Proxy) -> String {
    if proxy.discovered { proxy.workload.clone() } else { format!("{}/(gone)", proxy.namespace) }
}

fn variant(stream: &Stream) -> &'static str {
    match stream.variant() {
        Variant::Delta => "delta",
        Variant::Sotw => "sotw",
        Variant::Unspecified => "unknown",
    }
}

/// The state of the newest certificate, which the proxy should be using.
fn certificate(proxy: &Proxy) -> &'static str {
    match proxy.certificates.last().map(smc_proto::admin::v1::ProxyCertificate::state) {
        None => "none",
        Some(CertificateState::Unclaimed) => "unclaimed",
        Some(CertificateState::Claimed) => "claimed",
        Some(CertificateState::Released) => "released",
        Some(CertificateState::Unspecified) => "unknown",
    }
}

fn config(answer: &GetProxyConfigResponse) -> String {
    let mut table = Table::new(["STREAM", "TYPE", "RESOURCE", "SENT", "ACKED", "REJECTED"]);
    for config in &answer.streams {
        let scope = config.stream.as_ref().map(|stream| stream.scope.clone()).unwrap_or_default();
        for kind in &config.types {
            for resource in &kind.resources {
                let acked =
                    if resource.acked == resource.sent { "same".to_owned() } else { short(&resource.acked) };
                let rejected = if resource.rejected.is_empty() {
                    String::new()
                } else {
                    format!("{}: {}", short(&resource.rejected), resource.rejection)
                };
                table.row([
                    scope.clone(),
                    kind.r#type.clone(),
                    resource.name.clone(),
                    short(&resource.sent),
                    acked,
                    rejected,
                ]);
            }
        }
    }
    table.render()
}

/// The beginning of a version, enough to distinguish it.
fn short(version: &str) -> String {
    truncated(version, 12)
}

fn ago(now: Timestamp, then: i64) -> String {
    let span: Duration = now.since(Timestamp(then));
    format!("{} ago", duration::print(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_in_the_mesh_if_the_replica_that_serves_it_says_so() {
        let proxy = |uuid: &str, workload: &str, connected: bool| Proxy {
            uuid: uuid.to_owned(),
            namespace: "shop".to_owned(),
            workload: workload.to_owned(),
            discovered: !workload.is_empty(),
            participant: connected && !workload.is_empty(),
            streams: if connected { vec![Stream::default()] } else { Vec::new() },
            ..Proxy::default()
        };
        // The first replica serves one of them, and the second the other; the third has just started.
        let of_first = vec![proxy("a", "shop/a", true), proxy("b", "shop/b", false)];
        let of_second = vec![proxy("a", "shop/a", false), proxy("b", "shop/b", true)];
        let of_third = vec![proxy("a", "", false), proxy("b", "", false)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let answers = [of_first.clone(), of_second.clone(), of_third.clone()];
            let answers = order.iter().map(|&index| ListProxiesResponse { proxies: answers[index].clone() });
            let merged = merged(answers.collect()).proxies;
            let seen: Vec<_> = merged
                .iter()
                .map(|one| (one.workload.as_str(), one.participant, one.streams.len()))
                .collect();
            assert_eq!(seen, [("shop/a", true, 1), ("shop/b", true, 1)], "{order:?}");
        }
    }
}
