//! `smc-cluster`: a real Kubernetes on this machine, from the command line. See `docs/cluster.md`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use smc_test_kubernetes::{
    Admin, BOOKSTORE_IMAGE, Cluster, ClusterError, ClusterHandle, ClusterOptions, ENVOY_IMAGE, Image,
    MeshOptions, Programs, SMC_IMAGE, beside, bookstore, join, keep, run_pid1, running_clusters,
};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a real Kubernetes in namespaces of its own.
#[derive(Parser, Debug)]
#[command(name = "smc-cluster", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a cluster until Ctrl-C, or with --detach until `down`.
    Up(UpArgs),
    /// Run kubectl as the administrator of a cluster.
    Kubectl(RunArgs),
    /// Run a command as root on a cluster's node.
    Node(RunArgs),
    /// Give a cluster's node an image made of local programs.
    Image(ImageArgs),
    /// Install SMC with its charts, and the bookstore.
    Mesh(MeshArgs),
    /// Print the end of a component's log, for example of `kubelet`.
    Log(LogArgs),
    /// Print the names of the running clusters.
    List,
    /// End a cluster.
    Down(NameArgs),
    #[command(hide = true)]
    Keep { config: String },
    #[command(hide = true)]
    Join { config: PathBuf },
    #[command(hide = true)]
    Pid1 { config: PathBuf },
}

#[derive(Args, Debug)]
struct NameArgs {
    /// The cluster's name; needed if several run.
    #[arg(long)]
    name: Option<String>,
    /// Directories with the programs of Kubernetes, joined by colons: what `tests/setup/kubernetes`
    /// prints.
    #[arg(long, env = "SMC_KUBERNETES", default_value = "")]
    kubernetes: OsString,
}

impl NameArgs {
    fn programs(&self) -> Programs {
        Programs::new(&self.kubernetes)
    }

    async fn find(&self) -> Result<ClusterHandle, ClusterError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => match running_clusters().as_slice() {
                [name] => name.clone(),
                [] => return Err(ClusterError::NotRunning("cluster".to_owned())),
                names => {
                    let text = format!("several run, choose one with --name: {}", names.join(", "));
                    return Err(ClusterError::Invalid { what: "name of a cluster", text });
                }
            },
        };
        ClusterHandle::find(&name, self.programs()).await
    }
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on a command line")]
struct UpArgs {
    /// The cluster's name.
    #[arg(long, default_value = "cluster")]
    name: String,
    /// Directories with the programs of Kubernetes, joined by colons: what `tests/setup/kubernetes`
    /// prints. A directory of envtest serves with --api-only.
    #[arg(long, env = "SMC_KUBERNETES", default_value = "")]
    kubernetes: OsString,
    /// Run etcd, the API server and the controller manager alone: no node, no root.
    #[arg(long)]
    api_only: bool,
    /// Install SMC and the bookstore, from the charts and manifests of this directory.
    #[arg(long, conflicts_with = "api_only")]
    mesh: bool,
    #[command(flatten)]
    install: InstallArgs,
    /// Return when the cluster is up, and let it run until `down`.
    #[arg(long)]
    detach: bool,
    /// Import no image of the programs of this workspace: for a cluster that runs none of them.
    #[arg(long, conflicts_with = "mesh")]
    bare: bool,
    /// The `smc` program of the image `smc:test`; by default the one in the directory of
    /// smc-cluster, if it is there.
    #[arg(long)]
    smc: Option<PathBuf>,
    /// The Envoy binary of the image `envoy:test`.
    #[arg(long, env = "SMC_ENVOY")]
    envoy: Option<PathBuf>,
    /// Another flag of the API server (repeatable).
    #[arg(long = "api-server-flag", value_name = "FLAG", allow_hyphen_values = true)]
    api_server_flags: Vec<String>,
    /// Keep the logs when the cluster ends.
    #[arg(long)]
    keep: bool,
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    cluster: NameArgs,
    /// The arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

#[derive(Args, Debug)]
struct ImageArgs {
    #[command(flatten)]
    cluster: NameArgs,
    /// Name and tag. The name `smc` makes SMC's own image, with iptables in it.
    image: String,
    /// Programs; the first is the entry point.
    #[arg(required = true)]
    programs: Vec<PathBuf>,
}

#[derive(Args, Debug)]
struct MeshArgs {
    #[command(flatten)]
    cluster: NameArgs,
    /// The kubeconfig of another cluster, which can pull the images.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    install: InstallArgs,
}

#[derive(Args, Debug)]
struct InstallArgs {
    /// The directory of the charts.
    #[arg(long, default_value = "charts")]
    charts: PathBuf,
    /// The image of SMC.
    #[arg(long, default_value = SMC_IMAGE)]
    image: String,
    /// The image of Envoy.
    #[arg(long, default_value = ENVOY_IMAGE)]
    envoy_image: String,
    /// The image of the manifests' applications.
    #[arg(long, default_value = BOOKSTORE_IMAGE)]
    bookstore_image: String,
    /// Number of controllers.
    #[arg(long, default_value_t = 3)]
    replicas: u16,
    /// Another value of the chart, `name=value` (repeatable).
    #[arg(long = "set", value_name = "VALUE")]
    values: Vec<String>,
    /// The directory of the manifests to apply.
    #[arg(long, default_value = "tests/demo/mesh")]
    manifests: PathBuf,
}

#[derive(Args, Debug)]
struct LogArgs {
    #[command(flatten)]
    cluster: NameArgs,
    /// The component.
    component: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Before any thread starts: namespaces and cgroups belong to threads.
    if let Command::Join { config } = &cli.command {
        return finish(join(config).map(|()| ExitCode::SUCCESS));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = finish(runtime.block_on(run(cli.command)));
            // A thread may wait for standard input.
            runtime.shutdown_background();
            code
        }
        Err(error) => finish(Err(ClusterError::Command {
            command: "start the runtime".to_owned(),
            problem: error.to_string(),
        })),
    }
}

fn finish(result: Result<ExitCode, ClusterError>) -> ExitCode {
    result.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "smc-cluster: {}", error.chain());
        ExitCode::FAILURE
    })
}

async fn run(command: Command) -> Result<ExitCode, ClusterError> {
    match command {
        Command::Up(args) => up(args).await?,
        Command::Kubectl(args) => {
            let cluster = args.cluster.find().await?;
            let kubectl = cluster.programs().find("kubectl")?;
            let mut command = std::process::Command::new(kubectl);
            command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(&args.args);
            return Err(ClusterError::Command {
                command: "kubectl".to_owned(),
                problem: command.exec().to_string(),
            });
        }
        Command::Node(args) => {
            let cluster = args.cluster.find().await?;
            let mut command = cluster.enter_command().await?;
            return Err(ClusterError::Command {
                command: "nsenter".to_owned(),
                problem: command.args(&args.args).exec().to_string(),
            });
        }
        Command::Image(args) => {
            let programs: Vec<_> = args.programs.iter().map(PathBuf::as_path).collect();
            let image = match (args.image.split(':').next(), programs.as_slice()) {
                (Some("smc"), [smc]) => Image::smc(&args.image, smc),
                (_, programs) => Image::of_programs(&args.image, "", programs),
            };
            args.cluster.find().await?.import(image).await?;
        }
        Command::Mesh(args) => mesh(args).await?,
        Command::Log(args) => {
            let cluster = args.cluster.find().await?;
            print(&cluster.log_tail(&args.component))?;
        }
        Command::List => print(&running_clusters().join("\n"))?,
        Command::Down(args) => args.find().await?.down().await?,
        Command::Keep { config } => keep(&config).await?,
        Command::Pid1 { config } => run_pid1(&config).await?,
        Command::Join { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(args: UpArgs) -> Result<(), ClusterError> {
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let programs = Programs::new(&args.kubernetes);
    let options = if args.api_only {
        ClusterOptions::api_only(programs)
    } else {
        ClusterOptions::new(programs, images(&args)?)
    };
    let options = ClusterOptions {
        name: Some(args.name),
        api_server_flags: args.api_server_flags,
        keep: args.keep,
        ..options
    };
    // Dropping the future of a cluster that starts ends that cluster.
    let mut cluster = tokio::select! {
        cluster = Cluster::start(options) => cluster?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
        _ = hang_up.recv() => return Ok(()),
    };
    let kubeconfig = cluster.kubeconfig();
    if args.mesh {
        let work = install(&cluster, args.install);
        tokio::select! {
            installed = work => installed?,
            _ = interrupt.recv() => return cluster.stop().await,
            _ = terminate.recv() => return cluster.stop().await,
            _ = hang_up.recv() => return cluster.stop().await,
        }
    }
    print(&format!("up\nexport KUBECONFIG={}\n{}", kubeconfig.display(), cluster.kubectl_line()?))?;
    if args.detach {
        cluster.detach()?;
        return Ok(());
    }
    tokio::select! {
        () = cluster.ended() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    cluster.stop().await
}

async fn mesh(args: MeshArgs) -> Result<(), ClusterError> {
    let admin = match args.kubeconfig {
        Some(kubeconfig) => Admin::new(kubeconfig, args.cluster.programs()),
        None => Admin::clone(&*args.cluster.find().await?),
    };
    install(&admin, args.install).await?;
    print(&format!("up\n{}", admin.kubectl_line()?))
}

async fn install(admin: &Admin, args: InstallArgs) -> Result<(), ClusterError> {
    let InstallArgs { charts, image, envoy_image, bookstore_image, replicas, values, manifests } = args;
    print("installing SMC")?;
    admin.install_mesh(&MeshOptions { charts, image, envoy: envoy_image, replicas, values }).await?;
    print("creating the bookstore")?;
    let bookstore = bookstore(&manifests, &bookstore_image)?;
    admin.apply(&bookstore).await?;
    admin.pods_ready(&bookstore).await
}

/// The images whose programs are there: those of SMC, Envoy and the applications.
fn images(args: &UpArgs) -> Result<Vec<Image>, ClusterError> {
    let mut images = Vec::new();
    if args.bare {
        return Ok(images);
    }
    if let Some(smc) = args.smc.clone().or_else(|| beside("smc").ok()) {
        images.push(Image::smc(SMC_IMAGE, &smc));
    }
    if let Some(envoy) = &args.envoy {
        images.push(Image::envoy(ENVOY_IMAGE, envoy)?);
    }
    if let Ok(bookstore) = beside("smc-bookstore") {
        images.push(Image::of_programs(BOOKSTORE_IMAGE, "", &[&bookstore]));
    }
    if let Ok(lab) = beside("smc-lab") {
        images.push(Image::tools("tools:test", &[&lab]));
    }
    Ok(images)
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, ClusterError> {
    signal(kind).map_err(|error| ClusterError::Command {
        command: "install a signal handler".to_owned(),
        problem: error.to_string(),
    })
}

fn print(text: &str) -> Result<(), ClusterError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| ClusterError::Command { command: "print".to_owned(), problem: error.to_string() })
}
