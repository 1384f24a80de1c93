//! `smc-lab`: a mesh on this machine, for people. See `docs/lab.md`.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use smc_tests::demo::{DemoArgs, demo};
use smc_tests::lab::tools::{EchoArgs, FetchArgs, TcpArgs, TlsArgs, echo, fetch, tcp, tls};
use smc_tests::lab::{
    EnterArgs, Lab, LabError, LabHandle, LabOptions, NamespacedName, PauseArgs, StateDir, Variant, enter,
    names_of_labs, pause, run_pid1, run_supervisor,
};
use tokio::signal::unix::{SignalKind, signal};

/// Runs any mesh directory of Kubernetes YAML on this machine: Pods as network namespaces, real Envoys, real SMC.
#[derive(Parser, Debug)]
#[command(name = "smc-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a mesh directory until Ctrl-C, and follow what changes in it.
    Up(UpArgs),
    /// Run a command in a Pod.
    Exec(ExecArgs),
    /// Print what a container, `envoy`, `init`, or the controller said.
    Logs(LogsArgs),
    /// Print the Pods of a lab.
    Pods(NameArgs),
    /// Run `smc` against a lab's controller.
    Smc(SmcArgs),
    /// End a lab.
    Down(NameArgs),
    /// Run the bookstore in a lab of its own, and show who calls whom.
    Demo(DemoArgs),
    /// Servers that answer with what they saw.
    Echo(EchoArgs),
    /// An HTTP client that reports as JSON.
    Fetch(FetchArgs),
    /// A TCP client that reports as JSON.
    Tcp(TcpArgs),
    /// A TLS client that shows any certificate, and reports as JSON.
    Tls(TlsArgs),
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
    /// The lab, if more than one runs.
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
    /// The program under test; otherwise the one beside this one.
    #[arg(long)]
    smc: Option<PathBuf>,
    /// Envoy; otherwise SMC_ENVOY, then the one in PATH.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// The xDS variant the proxies speak.
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// Give Pods IPv6 addresses, too.
    #[arg(long)]
    dual_stack: bool,
    /// Run no controller and no Envoys; then no Pod may be in the mesh.
    #[arg(long)]
    no_controller: bool,
    /// How many replicas of the controller to run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    replicas: u16,
    /// Keep logs and state at the end.
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
    /// The user to run as, instead of the Pod's.
    #[arg(long)]
    uid: Option<u32>,
    /// NAMESPACE/POD, or `node` for the lab's own namespace.
    pod: String,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct LogsArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// NAMESPACE/POD, or `controller`.
    of: String,
    /// A container, `envoy` or `init`; otherwise all of them.
    container: Option<String>,
}

#[derive(clap::Args, Debug)]
struct SmcArgs {
    #[command(flatten)]
    lab: NameArgs,
    /// Arguments of `smc`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    args: Vec<String>,
}

/// `EX_USAGE` of sysexits, as every program of this project answers a bad command line.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do if even the usage message cannot be written.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("smc-lab: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, LabError> {
    // These two must have no other thread: they change what a process belongs to.
    match &command {
        Command::Pause(args) => return pause(args).map(|()| ExitCode::SUCCESS),
        Command::Enter(args) => return enter(args).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    // Two threads are enough for a program that waits, on the machine that the whole mesh shares.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| LabError::Refused(format!("can't start the runtime: {error}")))?;
    let result = runtime.block_on(dispatch(command));
    // A read of standard input may never end, and must not keep the program.
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
                    if pod.in_mesh { "mesh" } else { "no-mesh" },
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
            complain(output.stderr.trim_end());
            Ok(exit_code(output.status))
        }
        Command::Down(args) => {
            let lab = find(args).await?;
            lab.down().await?;
            // It ends within its own grace period.
            for _ in 0..200 {
                if !names_of_labs().iter().any(|name| name == lab.name()) {
                    return Ok(ExitCode::SUCCESS);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(LabError::Refused(format!("the lab `{}` does not end", lab.name())))
        }
        Command::Demo(args) => demo(args).await.map_err(|error| LabError::Refused(error.chain())),
        Command::Echo(args) => echo(args).await.map(|()| ExitCode::SUCCESS),
        Command::Fetch(args) => {
            let mut results = Vec::new();
            let mut well = true;
            fetch(&args, |result| {
                well &= result.error.is_none();
                if args.lines { print_json(&result) } else { results.push(result) }
            })
            .await?;
            if !args.lines {
                print_json(&results);
            }
            Ok(success_if(well))
        }
        Command::Tcp(args) => Ok(success_if(tcp(&args, print_json).await)),
        Command::Tls(args) => {
            let result = tls(&args).await;
            print_json(&result);
            Ok(success_if(result.error.is_none()))
        }
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
    let asked = tokio::select! {
        asked = lab.ended_as_asked() => asked,
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
        _ = hang_up.recv() => true,
    };
    lab.stop().await?;
    Ok(if asked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, LabError> {
    signal(kind).map_err(|error| LabError::Refused(format!("can't listen for signals: {error}")))
}

async fn exec(args: ExecArgs) -> Result<ExitCode, LabError> {
    let lab = find(args.lab).await?;
    let argv: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let pod = (args.pod != "node").then_some(args.pod.as_str());
    let (stdin, stdout, stderr) = (own(std::io::stdin())?, own(std::io::stdout())?, own(std::io::stderr())?);
    let status = lab.run(pod, args.uid, &argv, &[], stdin, stdout, stderr).await?;
    Ok(exit_code(status))
}

/// One of the three standard streams.
fn own(stream: impl AsFd) -> Result<tokio::fs::File, LabError> {
    let owned = stream.as_fd().try_clone_to_owned();
    let file =
        owned.map_err(|error| LabError::Refused(format!("can't use the standard streams: {error}")))?;
    Ok(tokio::fs::File::from_std(file.into()))
}

/// Which replica of the controller `controller`, `controller-1` and so on mean.
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
    let pod: NamespacedName = args.of.parse().map_err(|text| LabError::Invalid { what: "pod", text })?;
    if let Some(container) = args.container {
        print(&lab.logs(&args.of, &container)?);
        return Ok(ExitCode::SUCCESS);
    }
    for container in lab.log_names(&pod)? {
        print(&format!("==> {container} <==\n{}\n", lab.logs(&args.of, &container)?));
    }
    Ok(ExitCode::SUCCESS)
}

/// The lab of that name, or the only one.
async fn find(args: NameArgs) -> Result<LabHandle, LabError> {
    let name = match args.name {
        Some(name) => name,
        None => match names_of_labs().as_slice() {
            [] => return Err(LabError::Refused("no lab is running: `smc-lab up DIR`".to_owned())),
            [name] => name.clone(),
            names => {
                let text = format!("several labs are running, choose one with --name: {}", names.join(", "));
                return Err(LabError::Refused(text));
            }
        },
    };
    StateDir::of(&name)?;
    LabHandle::find(&name).await
}

fn success_if(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

fn print_json(value: &impl serde::Serialize) {
    // Results are plain data, which always has a JSON form.
    print(&format!("{}\n", serde_json::to_string(value).unwrap_or_default()));
}

fn print(text: &str) {
    // A reader that is gone, as with `| head`, is no error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn complain(text: &str) {
    if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}
