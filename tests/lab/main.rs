//! `smc-lab`: runs a mesh on this machine, from the command line. See `docs/lab.md`.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use smc::cli::parsed;
use smc_lab::tools::{
    ApplicationArgs, DialogueArgs, EchoArgs, FetchArgs, LoadArgs, TcpArgs, TlsArgs, application, dialogue,
    echo, fetch, load, tcp, tls,
};
use smc_lab::{
    EnterArgs, Lab, LabError, LabHandle, LabOptions, PauseArgs, StateDir, Variant, enter, pause, run_pid1,
    run_supervisor, running_labs,
};
use smc_types::ids::NamespacedName;
use tokio::signal::unix::{SignalKind, signal};

/// Runs any mesh directory of Kubernetes YAML on this machine, with real Envoys and the real SMC.
#[derive(Parser, Debug)]
#[command(name = "smc-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a mesh directory until Ctrl-C, and follow its changes.
    Up(UpArgs),
    /// Run a command in a Pod.
    Exec(ExecArgs),
    /// Print the log of a container, `envoy`, `init` or the controller.
    Logs(LogsArgs),
    /// Print the Pods of a lab.
    Pods(NameArgs),
    /// Run `smc` against a lab's controller.
    Smc(SmcArgs),
    /// Kill, stop or start a controller replica.
    Controller(ControllerArgs),
    /// End a lab.
    Down(NameArgs),
    /// Serve HTTP, gRPC, TLS or TCP, and answer with the request as it arrived.
    Echo(EchoArgs),
    /// Send HTTP requests, and report the results as JSON.
    Fetch(FetchArgs),
    /// Send requests over many connections for a while, and report what they took as JSON.
    Load(LoadArgs),
    /// Send lines over TCP, and report the result as JSON.
    Tcp(TcpArgs),
    /// Connect with TLS and any client certificate, and report the result as JSON.
    Tls(TlsArgs),
    /// Hold dialogues that are written byte for byte with an `application`, and report as JSON what each
    /// end received.
    Dialogue(DialogueArgs),
    /// Be the other end of dialogues.
    Application(ApplicationArgs),
    #[command(hide = true)]
    Pid1 { config: PathBuf },
    #[command(hide = true)]
    Supervise,
    #[command(hide = true)]
    Pause(PauseArgs),
    #[command(hide = true)]
    Enter(EnterArgs),
}

#[derive(clap::Args, Debug)]
struct NameArgs {
    /// The lab's name; needed if several labs run.
    #[arg(long)]
    name: Option<String>,
}

#[derive(clap::Args, Debug)]
struct UpArgs {
    /// The mesh directory.
    dir: PathBuf,
    /// The lab's name.
    #[arg(long, default_value = "lab")]
    name: String,
    /// The `smc` program; by default the one in the directory of smc-lab.
    #[arg(long)]
    smc: Option<PathBuf>,
    /// The Envoy program; by default SMC_ENVOY, then envoy in PATH.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// The xDS variant the proxies use.
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// Give Pods IPv6 addresses in addition to IPv4.
    #[arg(long)]
    dual_stack: bool,
    /// Run no controller and no Envoys. Pods in the mesh do not start.
    #[arg(long)]
    no_controller: bool,
    /// Number of controller replicas.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    replicas: u16,
    /// Keep logs and state when the lab ends.
    #[arg(long)]
    keep: bool,
    /// An argument for `smc controller` (repeatable).
    #[arg(long = "controller-arg", value_name = "ARG", allow_hyphen_values = true)]
    controller_args: Vec<String>,
    /// An argument for Envoy (repeatable).
    #[arg(long = "envoy-arg", value_name = "ARG", allow_hyphen_values = true)]
    envoy_args: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct ExecArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// The user to run as; by default the Pod's.
    #[arg(long)]
    uid: Option<u32>,
    /// NAMESPACE/POD, or `node` for the node's namespace.
    pod: String,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct LogsArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// NAMESPACE/POD, or `controller` (`controller-N` for replica N).
    of: String,
    /// A container, `envoy` or `init`; by default all.
    container: Option<String>,
}

#[derive(clap::Args, Debug)]
struct ControllerArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// `kill` (SIGKILL) and `stop` (SIGTERM) wait until it has ended, `start` until it is ready.
    action: Action,
    /// The replica.
    #[arg(default_value_t = 0)]
    replica: u16,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Action {
    Kill,
    Stop,
    Start,
}

#[derive(clap::Args, Debug)]
struct SmcArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// Arguments of `smc`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let cli: Cli = match parsed() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            print_error(&format!("smc-lab: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, LabError> {
    // Namespaces must change before the process has a second thread.
    match &command {
        Command::Pause(args) => return pause(args).map(|()| ExitCode::SUCCESS),
        Command::Enter(args) => return enter(args).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    // Two threads suffice for a program that mostly waits, on the machine that runs the whole mesh.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| LabError::Refused(format!("can't start the runtime: {error}")))?;
    let result = runtime.block_on(dispatch(command));
    // A blocking read of standard input may never return, and must not delay the exit.
    runtime.shutdown_timeout(Duration::ZERO);
    result
}

async fn dispatch(command: Command) -> Result<ExitCode, LabError> {
    match command {
        Command::Up(args) => up(args).await,
        Command::Exec(args) => exec(args).await,
        Command::Logs(args) => logs(args).await,
        Command::Pods(args) => {
            let lab = find(args).await?;
            for pod in lab.pods().await? {
                let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
                print(&format!(
                    "{:<40} {:<10} {:<8} restarts={} {} {}\n",
                    pod.pod,
                    if pod.ready { "ready" } else { "not-ready" },
                    match (pod.in_mesh, pod.workload != pod.pod) {
                        (_, true) => "machine",
                        (true, false) => "mesh",
                        (false, false) => "no-mesh",
                    },
                    pod.restarts,
                    addresses.join(","),
                    pod.problem.unwrap_or_default()
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Smc(args) => {
            let lab = find(args.lab).await?;
            let argv: Vec<&str> = args.args.iter().map(String::as_str).collect();
            let output = lab.smc(&argv).await?;
            print(&output.stdout);
            print_error(output.stderr.trim_end());
            Ok(exit_code(output.status))
        }
        Command::Controller(args) => controller(args).await,
        Command::Down(args) => down(args).await,
        Command::Echo(args) => echo(args).await.map(|()| ExitCode::SUCCESS),
        Command::Fetch(args) => {
            let mut results = Vec::new();
            let mut succeeded = true;
            fetch(&args, |result| {
                succeeded &= result.error.is_none();
                if args.lines { print_json(&result) } else { results.push(result) }
            })
            .await?;
            if !args.lines {
                print_json(&results);
            }
            Ok(success_if(succeeded))
        }
        Command::Load(args) => {
            let result = load(&args).await?;
            print_json(&result);
            Ok(success_if(result.failures == 0))
        }
        Command::Tcp(args) => Ok(success_if(tcp(&args, print_json).await)),
        Command::Tls(args) => {
            let result = tls(&args).await;
            print_json(&result);
            Ok(success_if(result.error.is_none()))
        }
        Command::Dialogue(args) => {
            print_json(&dialogue(&args).await?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Application(args) => application(&args).await.map(|()| ExitCode::SUCCESS),
        Command::Pid1 { config } => run_pid1(&config).await.map(ExitCode::from),
        Command::Supervise => run_supervisor().await,
        Command::Pause(_) | Command::Enter(_) => Ok(ExitCode::SUCCESS),
    }
}

async fn up(args: UpArgs) -> Result<ExitCode, LabError> {
    let UpArgs {
        dir,
        name,
        smc,
        envoy,
        variant,
        dual_stack,
        no_controller,
        replicas,
        keep,
        controller_args,
        envoy_args,
    } = args;
    let (mut interrupt, mut terminate, mut hang_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let options = LabOptions {
        follow: true,
        name: Some(name),
        smc,
        envoy,
        variant,
        dual_stack,
        replicas: if no_controller { 0 } else { replicas },
        controller_args,
        envoy_args,
        keep_state: keep,
        ready_timeout: Duration::ZERO,
        verbose: true,
        ..LabOptions::new(dir)
    };
    let mut lab = Lab::start(options).await?;
    print(&format!("lab `{}`; state and logs in {}\n", lab.name(), lab.state_dir().path().display()));
    let on_request = tokio::select! {
        on_request = lab.ended_on_request() => on_request,
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
        _ = hang_up.recv() => true,
    };
    lab.stop().await?;
    Ok(if on_request { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn controller(args: ControllerArgs) -> Result<ExitCode, LabError> {
    let lab = find(args.lab).await?;
    let signal = match args.action {
        Action::Kill => Signal::SIGKILL,
        Action::Stop => Signal::SIGTERM,
        Action::Start => {
            lab.start_replica(args.replica).await?;
            print(&format!("controller {} is ready\n", args.replica));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let status = lab.stop_replica(args.replica, signal).await?;
    print(&format!("controller {} has ended: {status}\n", args.replica));
    Ok(ExitCode::SUCCESS)
}

async fn down(args: NameArgs) -> Result<ExitCode, LabError> {
    let named = args.name.is_some();
    let lab = find(args).await?;
    if !named && !lab.follows_a_directory() {
        let text =
            format!("the lab `{0}` was not started by `smc-lab up`; to end it, add --name {0}", lab.name());
        return Err(LabError::Refused(text));
    }
    // A lab with little to end may be gone before it has answered.
    let asked = lab.down().await;
    // The lab ends within its own grace period.
    for _ in 0..200 {
        if !running_labs().iter().any(|name| name == lab.name()) {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    asked?;
    Err(LabError::Refused(format!("the lab `{}` does not end", lab.name())))
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, LabError> {
    signal(kind).map_err(|error| LabError::Refused(format!("can't listen for signals: {error}")))
}

async fn exec(args: ExecArgs) -> Result<ExitCode, LabError> {
    let lab = find(args.lab).await?;
    let argv: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let pod = (args.pod != "node").then_some(args.pod.as_str());
    let (stdin, stdout, stderr) =
        (duplicate(std::io::stdin())?, duplicate(std::io::stdout())?, duplicate(std::io::stderr())?);
    let status = lab.run(pod, args.uid, &argv, &[], stdin, stdout, stderr).await?;
    Ok(exit_code(status))
}

/// Duplicates one of the three standard streams.
fn duplicate(stream: impl AsFd) -> Result<tokio::fs::File, LabError> {
    let owned = stream.as_fd().try_clone_to_owned();
    let file =
        owned.map_err(|error| LabError::Refused(format!("can't use the standard streams: {error}")))?;
    Ok(tokio::fs::File::from_std(file.into()))
}

/// Parses `controller` as replica 0 and `controller-N` as replica N.
fn replica_of(text: &str) -> Option<u16> {
    match text.strip_prefix("controller")? {
        "" => Some(0),
        number => number.strip_prefix('-')?.parse().ok(),
    }
}

async fn logs(args: LogsArgs) -> Result<ExitCode, LabError> {
    let lab = find(args.lab).await?;
    if let Some(replica) = replica_of(&args.of) {
        print(&lab.controller_logs_of(replica)?);
        return Ok(ExitCode::SUCCESS);
    }
    let pod: NamespacedName = args.of.parse()?;
    if let Some(container) = args.container {
        print(&lab.logs(&args.of, &container)?);
        return Ok(ExitCode::SUCCESS);
    }
    for container in lab.log_names(&pod)? {
        print(&format!("==> {container} <==\n{}\n", lab.logs(&args.of, &container)?));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the lab of this name, or the only running one, which it then names on standard error.
async fn find(args: NameArgs) -> Result<LabHandle, LabError> {
    let name = match args.name {
        Some(name) => name,
        None => match running_labs().as_slice() {
            [] => return Err(LabError::Refused("no lab is running: `smc-lab up DIR`".to_owned())),
            [name] => {
                print_error(&format!("lab `{name}`"));
                name.clone()
            }
            names => {
                let text = format!("several labs are running, choose one with --name: {}", names.join(", "));
                return Err(LabError::Refused(text));
            }
        },
    };
    StateDir::of(&name)?;
    LabHandle::find(&name).await
}

fn success_if(succeeded: bool) -> ExitCode {
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

fn print_json(value: &impl serde::Serialize) {
    // Results are plain data, which always serializes.
    print(&format!("{}\n", serde_json::to_string(value).unwrap_or_default()));
}

fn print(text: &str) {
    // A closed reader, as with `| head`, is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn print_error(text: &str) {
    if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}
