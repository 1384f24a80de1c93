//! Owns the start of a cluster, in the order that its components need, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client};

use crate::components::Layout;
use crate::config::{Config, DNS_SERVICE, NODE};
use crate::handle::ClusterHandle;
use crate::images::{Image, PAUSE};
use crate::node_files::{CONTAINERD, DNS_READY_PORT};
use crate::pki::Keys;
use crate::programs::{beside, installed};
use crate::state_dir::StateDir;
use crate::{ClusterError, ClusterOptions, audit, dns, kubeconfig, machine, storage};

/// Time limit for one component to be ready: each takes seconds, on a machine that may be busy
/// compiling, or slow.
const READY: Duration = Duration::from_mins(5);

/// The component that makes service accounts, endpoints and pods of workloads.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Poll interval for the end of a component.
const GONE_POLL: Duration = Duration::from_millis(300);

static CLUSTERS: AtomicU64 = AtomicU64::new(0);

/// A running cluster. Dropping it ends the cluster a moment later; [`Cluster::stop`] waits for the
/// end.
#[derive(Debug)]
pub struct Cluster {
    handle: ClusterHandle,
    layout: Layout,
    has_controller_manager: bool,
    api_server_flags: Vec<String>,
    keeper: Child,
    /// Its end ends the cluster.
    lifeline: Option<ChildStdin>,
}

impl std::ops::Deref for Cluster {
    type Target = ClusterHandle;

    fn deref(&self) -> &ClusterHandle {
        &self.handle
    }
}

impl Cluster {
    /// Starts a cluster and waits until it can run pods, or answers if it has no node. After an error,
    /// everything that it started is gone.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let ClusterOptions {
            name,
            programs,
            node,
            controller_manager,
            images,
            mut api_server_flags,
            audited,
            keep,
        } = options;
        // envtest has none.
        let has_controller_manager = node || controller_manager && programs.find(CONTROLLER_MANAGER).is_ok();
        let name = name.unwrap_or_else(|| {
            format!("t{}-{}", std::process::id(), CLUSTERS.fetch_add(1, Ordering::Relaxed))
        });
        let state = StateDir::of(&name)?;
        if node {
            machine::check_node().await?;
        }
        let unshare = machine::unshare_flags().await?;
        let program = beside("smc-cluster")?;
        let config = Config { name: name.clone(), state: state.path().to_owned(), program, node, unshare };
        let (mut keeper, mut lifeline, mut words) = spawn(&config)?;
        // Blocking reads, on a thread for these.
        let read = tokio::task::spawn_blocking(move || (next_word(&mut words), words)).await;
        let (word, mut words) = read.map_err(ClusterError::command("read from the keeper"))?;
        if word.as_deref() != Some("locked") {
            return Err(failure(&mut keeper));
        }
        if keep {
            state.keep();
        }
        let layout = lay_out(&state, &name, node)?;
        api_server_flags.extend(audit::flags(&state, &audited)?);
        lifeline.write_all(b"go\n").map_err(ClusterError::command("start the keeper"))?;
        let read = tokio::task::spawn_blocking(move || next_word(&mut words)).await;
        let word = read.map_err(ClusterError::command("read from the keeper"))?;
        let port = word.as_deref().and_then(|word| word.strip_prefix("up ")?.parse::<u16>().ok());
        let Some(port) = port else { return Err(failure(&mut keeper)) };
        let address = if node { SocketAddr::from((Ipv4Addr::LOCALHOST, port)) } else { layout.api_address() };
        kubeconfig::write(&state.kubeconfig(), &layout.keys, "admin", address)?;
        let handle = ClusterHandle::new(name, state, programs);
        let lifeline = Some(lifeline);
        let cluster = Self { handle, layout, has_controller_manager, api_server_flags, keeper, lifeline };
        match cluster.start_components(node, images).await {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.stop().await?;
                Err(error)
            }
        }
    }

    async fn start_components(&self, node: bool, images: Vec<Image>) -> Result<(), ClusterError> {
        let control_plane = self.start_control_plane(node);
        if node {
            tokio::try_join!(control_plane, self.start_containerd(images))?;
            self.start_node().await
        } else {
            control_plane.await
        }
    }

    async fn start_control_plane(&self, node: bool) -> Result<(), ClusterError> {
        self.start_program("etcd", self.layout.etcd()).await?;
        self.start_api_server().await?;
        if !self.has_controller_manager {
            return Ok(());
        }
        // Not before: without the roles that the API server makes first, it gives up for good.
        self.start_program(CONTROLLER_MANAGER, self.layout.controller_manager()).await?;
        if node {
            self.start_program("kube-scheduler", self.layout.scheduler()).await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        self.wait_for(CONTROLLER_MANAGER, "the service account `default`", || {
            let accounts = accounts.clone();
            async move { accounts.get("default").await.map(|_| ()).map_err(|error| error.to_string()) }
        })
        .await
    }

    /// Starts the API server, also again after it was killed, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), ClusterError> {
        let mut args = self.layout.api_server();
        if !self.has_controller_manager {
            // The accounts `default` that pods would need are made by the controller manager.
            args.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        args.extend(self.api_server_flags.iter().cloned());
        self.start_program("kube-apiserver", args).await?;
        self.wait_api_server().await
    }

    /// Waits until the API server is ready, etcd included.
    pub(crate) async fn wait_api_server(&self) -> Result<(), ClusterError> {
        let client = self.client().await?;
        self.wait_for("kube-apiserver", "the API server to be ready", || ready(client.clone())).await
    }

    /// Writes a kubeconfig of the administrator for the API server of a cluster without a node, by way of a
    /// relay at this port of 127.0.0.1.
    pub fn write_kubeconfig(&self, path: &Path, port: u16) -> Result<(), ClusterError> {
        kubeconfig::write(path, &self.layout.keys, "admin", SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// The address of the API server in the network of its cluster, which is the host's without a node.
    pub fn api_address(&self) -> SocketAddr {
        self.layout.api_address()
    }

    /// Starts a component again that [`ClusterHandle::signal`] has killed.
    pub async fn start_again(&self, component: &str) -> Result<(), ClusterError> {
        let args = match component {
            "kube-apiserver" => return self.start_api_server().await,
            "etcd" => self.layout.etcd(),
            CONTROLLER_MANAGER => self.layout.controller_manager(),
            "kube-scheduler" => self.layout.scheduler(),
            "kubelet" => self.layout.kubelet(),
            "kube-proxy" => self.layout.proxy(),
            "coredns" => self.layout.coredns(),
            other => {
                let text = other.to_owned();
                return Err(ClusterError::Invalid { what: "name of a component", text });
            }
        };
        self.start_program(component, args).await
    }

    /// Waits until a component has ended, for example after SIGKILL.
    pub async fn wait_ended(&self, component: &str) -> Result<(), ClusterError> {
        let problem = format!("still runs after {} s", READY.as_secs());
        tokio::time::timeout(READY, self.gone(component))
            .await
            .map_err(|_| ClusterError::Command { command: component.to_owned(), problem })
    }

    async fn start_containerd(&self, images: Vec<Image>) -> Result<(), ClusterError> {
        let containerd = installed("containerd", "containerd")?;
        self.handle.start("containerd", containerd, self.layout.containerd()).await?;
        self.wait_for("containerd", "containerd to answer", || async {
            let version = self.on_node(&["ctr", "--address", CONTAINERD, "version"]).await;
            let version = version.map_err(|error| error.chain())?;
            if version.success() { Ok(()) } else { Err(version.stderr) }
        })
        .await?;
        let pause = Image::of_programs(PAUSE, "65532:65532", &[&beside("smc-pause")?]);
        // One after the other: each is held in memory while it is made.
        for image in [pause].into_iter().chain(images) {
            self.import(image).await?;
        }
        Ok(())
    }

    async fn start_node(&self) -> Result<(), ClusterError> {
        self.start_program("kubelet", self.layout.kubelet()).await?;
        self.start_program("kube-proxy", self.layout.proxy()).await?;
        self.apply(&dns::objects().to_string()).await?;
        self.apply(&storage::objects(self.state_dir().path()).to_string()).await?;
        self.start_program("coredns", self.layout.coredns()).await?;
        let nodes: Api<Node> = Api::all(self.client().await?);
        self.wait_for("kubelet", "the node to be ready", || {
            let nodes = nodes.clone();
            async move {
                let node = nodes.get(NODE).await.map_err(|error| error.to_string())?;
                let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
                let ready = conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True");
                if ready { Ok(()) } else { Err(format!("{conditions:?}")) }
            }
        })
        .await?;
        // CoreDNS says so itself once it has read all objects, and kube-proxy's rules come a moment
        // later than the endpoint.
        let url = format!("/dev/tcp/127.0.0.1/{DNS_READY_PORT}");
        let probe = format!(
            "exec 3<>{url} && printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q ' 200 ' <&3 && \
             iptables-save -t nat | grep -q 'd {DNS_SERVICE}/32.*--dport 53 -j KUBE-SVC'"
        );
        self.wait_for("coredns", "names to resolve", || async {
            let probed = self.on_node(&["bash", "-c", &probe]).await.map_err(|error| error.chain())?;
            if probed.success() { Ok(()) } else { Err(probed.stderr) }
        })
        .await
    }

    async fn start_program(&self, name: &str, args: Vec<String>) -> Result<(), ClusterError> {
        let program = self.programs().find(name)?;
        self.handle.start(name, program, args).await
    }

    /// Waits for a component, as long as it runs; a failure quotes its log.
    async fn wait_for<F, Fut>(&self, component: &str, what: &str, done: F) -> Result<(), ClusterError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<(), String>>,
    {
        let waited = tokio::select! {
            waited = self.wait(what, READY, done) => waited,
            () = self.gone(component) => {
                let problem = "ended by itself".to_owned();
                Err(ClusterError::Command { command: component.to_owned(), problem })
            }
        };
        waited.map_err(|error| {
            let problem = format!("{}\n{}", error.chain(), self.log_tail(component));
            ClusterError::Command { command: component.to_owned(), problem }
        })
    }

    /// Returns when a component does not run.
    async fn gone(&self, component: &str) {
        while !matches!(self.components().await, Ok(names) if !names.iter().any(|name| name == component)) {
            tokio::time::sleep(GONE_POLL).await;
        }
    }

    /// Lets the cluster run on after this process, until `smc-cluster down`.
    pub fn detach(mut self) -> Result<ClusterHandle, ClusterError> {
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.write_all(b"detach\n").map_err(ClusterError::command("detach"))?;
        }
        Ok(self.handle.clone())
    }

    /// Keeps the cluster's directory, with all logs, after its end.
    pub fn keep(&self) {
        self.state_dir().keep();
    }

    /// Waits until the cluster has ended by itself, which is a failure.
    pub async fn ended(&mut self) {
        while matches!(self.keeper.try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Ends the cluster and waits until nothing of it is left.
    pub async fn stop(mut self) -> Result<(), ClusterError> {
        drop(self.lifeline.take());
        let failed = ClusterError::command::<std::io::Error>;
        let mut keeper = self.keeper;
        let waited = tokio::task::spawn_blocking(move || keeper.wait().map(|status| (status, keeper))).await;
        let (status, mut keeper) =
            waited.map_err(ClusterError::command("end the cluster"))?.map_err(failed("end the cluster"))?;
        if status.success() { Ok(()) } else { Err(failure(&mut keeper)) }
    }
}

/// Starts the keeper. Ctrl-C must not reach it: the owner ends it in order.
fn spawn(config: &Config) -> Result<(Child, ChildStdin, BufReader<ChildStdout>), ClusterError> {
    let failed = ClusterError::command::<std::io::Error>;
    let json = serde_json::to_string(config).map_err(ClusterError::command("write the configuration"))?;
    let mut keeper = Command::new(&config.program)
        .arg("keep")
        .arg(json)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed("smc-cluster keep"))?;
    let missing = || failed("smc-cluster keep")(std::io::ErrorKind::BrokenPipe.into());
    let lifeline = keeper.stdin.take().ok_or_else(missing)?;
    let words = keeper.stdout.take().ok_or_else(missing)?;
    Ok((keeper, lifeline, BufReader::new(words)))
}

fn next_word(words: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    let read = words.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}

/// The error of a keeper that has ended.
fn failure(keeper: &mut Child) -> ClusterError {
    // Ends it, if it waits for a word that will not come.
    drop(keeper.stdin.take());
    let mut problem = String::new();
    if let Some(mut stderr) = keeper.stderr.take() {
        let _ = stderr.read_to_string(&mut problem);
    }
    let _ = keeper.wait();
    ClusterError::Command { command: "smc-cluster keep".to_owned(), problem: problem.trim().to_owned() }
}

/// Makes keys, kubeconfigs and configuration files in the cluster's empty directory.
fn lay_out(state: &StateDir, name: &str, node: bool) -> Result<Layout, ClusterError> {
    // A node has a network of its own.
    let host = if node { Ipv4Addr::LOCALHOST } else { machine::free_host(name)? };
    let keys = Keys::make(state.keys(), host)?;
    let layout = Layout { state: state.path().to_owned(), keys, host, node };
    let clients: &[&str] = if node {
        &["controller-manager", "scheduler", "kubelet", "proxy", "coredns"]
    } else {
        &["controller-manager"]
    };
    for client in clients {
        kubeconfig::write(&layout.kubeconfig(client), &layout.keys, client, layout.api_address())?;
    }
    if node {
        storage::make_directories(state.path())?;
        for (name, text) in layout.node_files() {
            let path: PathBuf = state.path().join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(ClusterError::file("create", parent))?;
            }
            fs::write(&path, text).map_err(ClusterError::file("write", &path))?;
        }
    }
    Ok(layout)
}

async fn ready(client: Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
