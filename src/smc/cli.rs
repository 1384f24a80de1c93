//! The command line of `smc`.
//!
//! Owns flags, output and exit codes. Each subcommand calls the module that does the work.

mod admin_access;
mod admin_pipe;
mod backup;
mod ca;
mod check;
mod cluster;
mod controller;
mod crds;
mod duration;
mod end;
mod ingress;
mod inject;
mod install;
mod kek;
mod kube_access;
mod mesh;
mod mesh_source;
mod namespace;
mod older_disks;
mod outcome;
mod output;
mod output_file;
mod probe;
mod proxy;
mod recovery;
mod replica;
mod stateful_set;
mod suggest;
mod table;
mod uninstall;
mod vm;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use smc_host::env::Env;

use crate::interception::InitArgs;
use outcome::{Outcome, Verdict};

/// The exit codes of `smc`: `sysexits.h` where it has one.
mod exit {
    /// The command failed; standard error has the reason.
    pub(super) const FAILED: u8 = 1;
    /// The command line is invalid (`EX_USAGE`).
    pub(super) const USAGE: u8 = 64;
    /// The command worked and has findings: `smc mesh problems` found errors, `smc mesh policy --suggest`
    /// left something out.
    pub(super) const FINDINGS: u8 = 79;
}

/// A service mesh control plane: configures Envoy sidecars from SMI policy.
#[derive(Debug, Parser)]
#[command(name = "smc", version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SMC_COMMIT"), ")"), about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install SMC into a cluster.
    Install(Box<install::InstallArgs>),
    /// Bring an installation to this program's version; its settings and its number of controllers stay.
    Upgrade(install::UpgradeArgs),
    /// Remove SMC from a cluster; keys, disks and custom resources stay.
    Uninstall(uninstall::UninstallArgs),
    /// See whether SMC can be installed, and whether it works.
    Check(check::CheckArgs),
    /// Add sidecars to the Pods in YAML on standard input, for a cluster without the webhook.
    Inject(inject::InjectArgs),
    /// The namespaces of the mesh.
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// Run a controller.
    Controller(Box<controller::ControllerArgs>),
    /// Sidecars: write a bootstrap, list, inspect, release.
    #[command(subcommand)]
    Proxy(proxy::ProxyCommand),
    /// The declared mesh: problems, services, policy.
    #[command(subcommand)]
    Mesh(mesh::MeshCommand),
    /// See what of outside the mesh gets in
    #[command(subcommand)]
    Ingress(ingress::IngressCommand),
    /// The certificate authority.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// The replicas of the control plane.
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Print the CustomResourceDefinitions that SMC reads, as YAML.
    Crds(crds::CrdsArgs),
    /// Machines without a pod: write what one needs to join the mesh, release it.
    #[command(subcommand)]
    Vm(vm::VmCommand),
    /// The key-encryption key of a control plane in Kubernetes.
    #[command(subcommand)]
    Kek(kek::KekCommand),
    /// Ask a controller for a probe, by gRPC, as a kubelet does.
    Probe(probe::ProbeArgs),
    /// Connect the standard streams to the administration socket.
    #[command(hide = true)]
    AdminPipe(admin_pipe::AdminPipeArgs),
    /// Program traffic interception in the current network namespace.
    Init(InitArgs),
}

/// Parses the command line of the process. If there is nothing to run, it has printed why, and returns the
/// exit code: `EX_USAGE` for an invalid line, 0 for help and version. Every program of this project does so.
pub fn parsed<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        // A failure to print cannot be reported.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS }
    })
}

/// Parses the command line and runs it.
pub fn run() -> ExitCode {
    run_in(Env::system())
}

/// As [`run`], with a controller in this environment: a test gives one a clock of its own.
pub fn run_in(env: Env) -> ExitCode {
    let cli: Cli = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match dispatch(cli.command, env) {
        Ok(Verdict::Ok) => ExitCode::SUCCESS,
        Ok(Verdict::Findings) => ExitCode::from(exit::FINDINGS),
        Err(error) => {
            output::print_error(&outcome::printed(error.as_ref()));
            ExitCode::from(exit::FAILED)
        }
    }
}

fn dispatch(command: Command, env: Env) -> Outcome {
    match command {
        Command::Controller(args) => {
            let (main, raft, probes) =
                (many_threads()?, threads("raft", RAFT_THREADS)?, threads("probes", 1)?);
            let own = controller::Runtimes { raft: raft.handle(), probes: probes.handle() };
            let outcome = main.block_on(controller::run(*args, env, own));
            [main, raft, probes].into_iter().for_each(end::leave);
            outcome
        }
        Command::Proxy(command) => one_thread()?.block_on(proxy::run(command)),
        Command::Ingress(command) => one_thread()?.block_on(ingress::run(command)),
        Command::Mesh(command) => one_thread()?.block_on(mesh::run(command)),
        Command::Ca(command) => one_thread()?.block_on(ca::run(command)),
        Command::Cluster(command) => one_thread()?.block_on(cluster::run(command)),
        Command::Crds(args) => crds::run(args),
        Command::Vm(command) => one_thread()?.block_on(vm::run(command)),
        Command::Kek(command) => one_thread()?.block_on(kek::run(command)),
        Command::AdminPipe(args) => one_thread()?.block_on(admin_pipe::run(args)),
        Command::Install(args) => one_thread()?.block_on(install::install(*args)),
        Command::Upgrade(args) => one_thread()?.block_on(install::upgrade(args)),
        Command::Uninstall(args) => one_thread()?.block_on(uninstall::uninstall(args)),
        Command::Check(args) => one_thread()?.block_on(check::run(args)),
        Command::Inject(args) => inject::run(args),
        Command::Namespace(command) => one_thread()?.block_on(namespace::run(command)),
        Command::Probe(args) => one_thread()?.block_on(probe::run(args)),
        Command::Init(args) => {
            args.log.start_logging();
            if args.remove {
                crate::interception::remove(args.backend)?;
                return Ok(Verdict::Ok);
            }
            let (backend, dry_run) = (args.backend, args.dry_run);
            crate::interception::run(args.into(), backend, dry_run)?;
            Ok(Verdict::Ok)
        }
    }
}

/// The operating system refused threads, timers or sockets.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the runtime")]
struct NoRuntime(#[source] std::io::Error);

fn many_threads() -> Result<tokio::runtime::Runtime, NoRuntime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(NoRuntime)
}

/// The threads of the Raft group. Two, so that a step of one task does not delay another; what blocks on the
/// disk has threads of its own.
const RAFT_THREADS: usize = 2;

/// Threads for one purpose, which nothing else runs on.
fn threads(name: &str, count: usize) -> Result<tokio::runtime::Runtime, NoRuntime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(count).thread_name(name).enable_all().build().map_err(NoRuntime)
}

fn one_thread() -> Result<tokio::runtime::Runtime, NoRuntime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NoRuntime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_policy_is_suggested_as_yaml_from_a_cluster_alone() {
        let parsed = |extra: &[&str]| {
            Cli::try_parse_from(["smc", "mesh", "policy"].iter().chain(extra).copied()).is_ok()
        };
        assert!(parsed(&["-o", "json"]) && parsed(&["--admin-socket", "s"]) && parsed(&["--suggest"]));
        assert!(parsed(&["--suggest", "--mesh-namespace", "m", "--replica", "1", "--context", "c"]));
        assert!(!parsed(&["--suggest", "-o", "json"]) && !parsed(&["--suggest", "--admin-socket", "s"]));
    }

    #[test]
    fn a_configuration_is_printed_as_envoy_has_it_from_a_cluster_alone() {
        let parsed = |extra: &[&str]| {
            let line = ["smc", "proxy", "config", "shop/web"];
            Cli::try_parse_from(line.iter().chain(extra).copied()).is_ok()
        };
        assert!(parsed(&["-o", "json"]) && parsed(&["--admin-socket", "s"]) && parsed(&["--dump"]));
        assert!(!parsed(&["--dump", "-o", "json"]) && !parsed(&["--dump", "--admin-socket", "s"]));
    }

    /// As for `smc controller`: what other replicas could not connect to must not reach the disk.
    #[test]
    fn a_new_group_takes_only_an_address_to_connect_to() {
        let restore = ["smc", "cluster", "restore", "f", "--data-dir", "d", "--kek-file", "k"];
        let recover = ["smc", "cluster", "recover", "--data-dir", "d"];
        for line in [&restore[..], &recover] {
            let parsed = |address| Cli::try_parse_from(line.iter().chain(&["--raft-address", address]));
            for good in ["smc-0:15129", "127.0.0.1:1", "[fd00::1]:15129"] {
                assert!(parsed(good).is_ok(), "{good}");
            }
            for bad in ["smc-0", "smc-0:0", "smc-0:http", ":1", "0.0.0.0:1", "fd00::1:1", "http://a:1"] {
                let error = parsed(bad).err().unwrap_or_else(|| panic!("{bad:?}")).to_string();
                assert!(error.contains("invalid address"), "{error}");
            }
            assert!(Cli::try_parse_from(line).is_ok());
        }
    }

    #[test]
    fn an_invalid_command_line_is_refused() {
        let controller = ["smc", "controller", "--mesh-dir", "m", "--data-dir", "d", "--kek-file", "k"];
        assert!(Cli::try_parse_from(controller).is_ok());
        for extra in [
            vec!["--xds-listen", "nowhere"],
            vec!["--xds-address", "0.0.0.0:1"],
            vec!["--trust-domain", "Not A Domain"],
            vec!["--service-cert-lifetime", "soon"],
            vec!["--log-level", "info,=="],
            vec!["--frobnicate"],
        ] {
            let line = controller.iter().copied().chain(extra.iter().copied());
            assert!(Cli::try_parse_from(line).is_err(), "{extra:?}");
        }
        assert!(Cli::try_parse_from(["smc", "init", "--log-level", "debug", "--log-format", "json"]).is_ok());
        assert!(
            Cli::try_parse_from(["smc", "proxy", "bootstrap", "no-slash", "--admin-socket", "s"]).is_err()
        );
    }
}
