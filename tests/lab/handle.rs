//! Owns the operations on a running lab: changes of its mesh, commands and requests in its Pods,
//! faults.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use smc_types::ids::NamespacedName;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::control::Request;
use super::log_file::read_log;
use super::reports::{ExecOutput, FetchResult, HttpReply, PodInfo, TcpResult};
use super::state_dir::StateDir;
use super::tools::{Exchange, LoadResult};
use super::{LabError, config, cut_off, netns};

/// Poll interval of every wait.
const POLL: Duration = Duration::from_millis(50);
/// Bytes of a log's end that an error quotes.
const LOG_TAIL: usize = 3000;

/// Access to a running lab. Cheap to clone, for concurrent tasks.
#[derive(Clone, Debug)]
pub struct LabHandle {
    pub(super) name: String,
    pub(super) state: StateDir,
    mesh: PathBuf,
}

impl LabHandle {
    pub(super) fn new(name: String, state: StateDir, mesh: PathBuf) -> Self {
        Self { name, state, mesh }
    }

    /// Connects to the running lab of this name.
    pub async fn find(name: &str) -> Result<Self, LabError> {
        let state = StateDir::of(name)?;
        let not_running = |_| LabError::NotRunning(name.to_owned());
        let config = config::Config::read(&state.config()).map_err(not_running)?;
        UnixStream::connect(state.control_socket())
            .await
            .map_err(|_| LabError::NotRunning(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), state, mesh: config.source })
    }

    /// Returns the lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state directory: logs, the controller's data, the published mesh.
    pub fn state_dir(&self) -> &StateDir {
        &self.state
    }

    /// Returns the mesh directory that the lab follows: a private copy unless the lab was started
    /// with `follow`.
    pub fn mesh_dir(&self) -> &Path {
        &self.mesh
    }

    /// Returns the directory that the controller reads: the mesh directory with addresses and Pod
    /// status.
    pub fn published_dir(&self) -> PathBuf {
        self.state.published()
    }

    /// Returns true if the lab follows a directory of its user, as `smc-lab up` does, and not a copy.
    pub fn follows_a_directory(&self) -> bool {
        self.mesh != self.state.mesh()
    }

    /// Writes a file of the mesh directory and returns when the controller's copy is written. The
    /// Pods it declares start afterwards.
    pub async fn apply(&self, file: &str, yaml: &str) -> Result<(), LabError> {
        let path = self.mesh_file(file)?;
        let beside = self.mesh.join(format!(".{file}.new"));
        fs::write(&beside, yaml).map_err(LabError::file("write", &beside))?;
        fs::rename(&beside, &path).map_err(LabError::file("create", &path))?;
        self.sync().await
    }

    /// Removes a file of the mesh directory and returns when the controller's copy is removed.
    pub async fn remove(&self, file: &str) -> Result<(), LabError> {
        let path = self.mesh_file(file)?;
        fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        self.sync().await
    }

    fn mesh_file(&self, file: &str) -> Result<PathBuf, LabError> {
        if file.is_empty() || file.starts_with('.') || file.contains('/') {
            return Err(LabError::Invalid { what: "file name", text: file.to_owned() });
        }
        Ok(self.mesh.join(file))
    }

    /// Makes the lab read its mesh directory now, and returns when it is published.
    pub async fn sync(&self) -> Result<(), LabError> {
        self.ask(&Request::Sync).await
    }

    /// Lists all Pods.
    pub async fn pods(&self) -> Result<Vec<PodInfo>, LabError> {
        self.ask(&Request::Pods).await
    }

    /// Returns one Pod, `namespace/name`.
    pub async fn pod(&self, pod: &str) -> Result<PodInfo, LabError> {
        let pods = self.pods().await?;
        let found = pods.into_iter().find(|info| info.pod == pod);
        found.ok_or_else(|| LabError::Refused(format!("there is no pod {pod}")))
    }

    /// Returns a Pod's first address.
    pub async fn pod_ip(&self, pod: &str) -> Result<IpAddr, LabError> {
        let info = self.pod(pod).await?;
        info.addresses.first().copied().ok_or_else(|| LabError::Refused(format!("{pod} has no address")))
    }

    /// Waits until a Pod is ready.
    pub async fn wait_ready(&self, pod: &str, timeout: Duration) -> Result<(), LabError> {
        let what = format!("{pod} to be ready");
        self.wait(&what, timeout, |pods| pods.iter().any(|info| info.pod == pod && info.ready)).await
    }

    /// Waits until every declared Pod is ready.
    pub async fn wait_all_ready(&self, timeout: Duration) -> Result<(), LabError> {
        self.wait("all pods to be ready", timeout, |pods| pods.iter().all(|info| info.ready)).await
    }

    /// Waits until a Pod and all its processes are gone.
    pub async fn wait_gone(&self, pod: &str, timeout: Duration) -> Result<(), LabError> {
        let what = format!("{pod} to be gone");
        self.wait(&what, timeout, |pods| pods.iter().all(|info| info.pod != pod)).await
    }

    /// Waits until `condition` holds for the list of Pods.
    pub async fn wait(
        &self,
        what: &str,
        timeout: Duration,
        condition: impl Fn(&[PodInfo]) -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + timeout;
        loop {
            // The lab does not answer before its socket exists and while its controller starts.
            let answer = tokio::time::timeout_at(deadline, self.pods()).await;
            let state = match answer {
                Ok(Ok(pods)) if condition(&pods) => return Ok(()),
                Ok(Ok(pods)) => describe(&pods),
                Ok(Err(error)) => error.chain(),
                Err(_) => "the lab does not answer".to_owned(),
            };
            if Instant::now() >= deadline {
                let state = format!("{state}\n{}", self.lab_log_tail());
                return Err(LabError::Timeout { what: what.to_owned(), seconds: timeout.as_secs(), state });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Runs a command in a Pod as the Pod's user, without input.
    pub async fn exec(&self, pod: &str, argv: &[&str]) -> Result<ExecOutput, LabError> {
        self.collect(Some(pod), None, argv, &[]).await
    }

    /// Runs a command in a Pod as the user `uid`; 0 is root, 1500 is Envoy's.
    pub async fn exec_as(&self, pod: &str, uid: u32, argv: &[&str]) -> Result<ExecOutput, LabError> {
        self.collect(Some(pod), Some(uid), argv, &[]).await
    }

    /// Runs a command as root in the node's namespace. `iptables` there can cut connections between
    /// Pods: all their traffic passes the FORWARD chain.
    pub async fn exec_on_node(&self, argv: &[&str]) -> Result<ExecOutput, LabError> {
        self.collect(None, None, argv, &[]).await
    }

    /// Listens on this address of the node's loopback interface, so that the controllers reach the caller
    /// there. Needs root: the socket belongs to the lab's network.
    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener, LabError> {
        let socket = self.state.control_socket();
        let failed = |error: io::Error| LabError::file("connect to", &socket)(error);
        let supervisor = UnixStream::connect(&socket).await.map_err(failed)?.peer_cred().map_err(failed)?;
        let pid = supervisor.pid().and_then(|pid| u32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| LabError::Refused("the lab's processes are not visible".to_owned()))?;
        let listened = netns::listen(pid, address).await;
        listened.map_err(|error| LabError::Refused(format!("listen on {address} in the lab: {error}")))
    }

    /// Runs `smc` against the first controller replica.
    pub async fn smc(&self, args: &[&str]) -> Result<ExecOutput, LabError> {
        self.smc_of(0, args).await
    }

    /// Runs `smc` against a controller replica.
    pub async fn smc_of(&self, replica: u16, args: &[&str]) -> Result<ExecOutput, LabError> {
        let argv: Vec<&str> = std::iter::once(config::SMC).chain(args.iter().copied()).collect();
        let socket = ("SMC_ADMIN_SOCKET".to_owned(), config::admin_socket(replica));
        self.collect(None, None, &argv, &[socket]).await
    }

    /// Runs `smc ARGS -o json` and parses the output. Exit code 79, a finding, also counts as
    /// success.
    pub async fn smc_json(&self, args: &[&str]) -> Result<serde_json::Value, LabError> {
        let argv: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        let output = self.smc(&argv).await?;
        let command = || format!("smc {}", argv.join(" "));
        if !matches!(output.status, 0 | 79) {
            let problem = format!("exit status {}: {}", output.status, output.stderr.trim());
            return Err(LabError::Command { command: command(), problem });
        }
        serde_json::from_str(&output.stdout)
            .map_err(|error| LabError::Command { command: command(), problem: error.to_string() })
    }

    /// Runs `smc-lab fetch ARGS` in a Pod; returns one result per request.
    pub async fn fetch(&self, pod: &str, args: &[&str]) -> Result<Vec<FetchResult>, LabError> {
        self.tool(pod, "fetch", args).await
    }

    /// Fetches one URL with GET.
    pub async fn get(&self, pod: &str, url: &str) -> Result<FetchResult, LabError> {
        let results = self.fetch(pod, &["--url", url]).await?;
        results.into_iter().next().ok_or_else(|| LabError::Refused(format!("{url}: no result")))
    }

    /// Runs `smc-lab tcp ARGS` in a Pod.
    pub async fn tcp(&self, pod: &str, args: &[&str]) -> Result<TcpResult, LabError> {
        self.tool(pod, "tcp", args).await
    }

    /// Runs `smc-lab load ARGS` in a Pod.
    pub async fn load(&self, pod: &str, args: &[&str]) -> Result<LoadResult, LabError> {
        self.tool(pod, "load", args).await
    }

    /// Runs `smc-lab dialogue ARGS` in a Pod; returns one exchange per dialogue.
    pub async fn dialogue(&self, pod: &str, args: &[&str]) -> Result<Vec<Exchange>, LabError> {
        self.tool(pod, "dialogue", args).await
    }

    async fn tool<T: DeserializeOwned>(&self, pod: &str, tool: &str, args: &[&str]) -> Result<T, LabError> {
        let argv: Vec<&str> = [config::LAB, tool].into_iter().chain(args.iter().copied()).collect();
        let output = self.exec(pod, &argv).await?;
        serde_json::from_str(&output.stdout).map_err(|error| LabError::Command {
            command: format!("smc-lab {tool} {}", args.join(" ")),
            problem: format!("{error}: {} {}", output.stdout.trim(), output.stderr.trim()),
        })
    }

    /// GETs a path of Envoy's admin interface, for example `/clusters` or `/stats?format=json`.
    pub async fn envoy_admin(&self, pod: &str, path: &str) -> Result<HttpReply, LabError> {
        let (pod, path) = (pod.to_owned(), path.to_owned());
        self.ask(&Request::Admin { pod, path }).await
    }

    /// Returns the log of a container, `envoy` or `init` of a Pod, its last 16 MiB at least.
    pub fn logs(&self, pod: &str, container: &str) -> Result<String, LabError> {
        let name: NamespacedName = pod.parse()?;
        if NamespacedName::new("x", container).is_err() {
            return Err(LabError::Invalid { what: "container", text: container.to_owned() });
        }
        read_log(&self.state.pod_log(&name, container))
    }

    /// Lists the logs of a Pod.
    pub fn log_names(&self, pod: &NamespacedName) -> Result<Vec<String>, LabError> {
        let directory = self.state.pod_log(pod, "envoy");
        let directory = directory.parent().unwrap_or(directory.as_path());
        let entries = fs::read_dir(directory).map_err(LabError::file("read", directory))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".log")?.to_owned())).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the log of the first controller replica, its last 16 MiB at least.
    pub fn controller_logs(&self) -> Result<String, LabError> {
        self.controller_logs_of(0)
    }

    /// Returns the log of a controller replica, its last 16 MiB at least.
    pub fn controller_logs_of(&self, replica: u16) -> Result<String, LabError> {
        read_log(&self.state.controller_log(replica))
    }

    /// Starts the first controller replica and waits until it is ready.
    pub async fn start_controller(&self) -> Result<(), LabError> {
        self.start_replica(0).await
    }

    /// Starts a controller replica and waits until it is ready.
    pub async fn start_replica(&self, replica: u16) -> Result<(), LabError> {
        self.ask(&Request::StartController { replica }).await
    }

    /// Sends a signal to the first controller replica, waits until it ends, and returns its exit
    /// status.
    pub async fn stop_controller(&self, signal: Signal) -> Result<String, LabError> {
        self.stop_replica(0, signal).await
    }

    /// Sends a signal to a controller replica, waits until it ends, and returns its exit status.
    pub async fn stop_replica(&self, replica: u16, signal: Signal) -> Result<String, LabError> {
        self.ask(&Request::StopController { replica, signal: signal as i32 }).await
    }

    /// Sends a signal to a controller replica, such as SIGSTOP, and does not wait.
    pub async fn signal_replica(&self, replica: u16, signal: Signal) -> Result<(), LabError> {
        self.ask(&Request::SignalController { replica, signal: signal as i32 }).await
    }

    /// Drops all packets from and to a controller replica, until [`Self::reconnect_replica`]. Its admin
    /// socket, which is no network, answers.
    pub async fn cut_off_replica(&self, replica: u16) -> Result<(), LabError> {
        self.change_rules(&cut_off::rules("--insert", replica)).await
    }

    /// Undoes [`Self::cut_off_replica`].
    pub async fn reconnect_replica(&self, replica: u16) -> Result<(), LabError> {
        self.change_rules(&cut_off::rules("--delete", replica)).await
    }

    async fn change_rules(&self, rules: &[String]) -> Result<(), LabError> {
        for rule in rules {
            let argv: Vec<&str> = rule.split_whitespace().collect();
            let output = self.exec_on_node(&argv).await?;
            if !output.success() {
                return Err(LabError::Command { command: rule.clone(), problem: output.stderr });
            }
        }
        Ok(())
    }

    /// Asks the lab to end. The lab has ended when its state directory is gone.
    pub async fn down(&self) -> Result<(), LabError> {
        self.ask(&Request::Down).await
    }

    /// The error for a lab that closed the connection.
    pub(super) fn ended_error(&self) -> LabError {
        LabError::Ended { name: self.name.clone(), log: self.lab_log_tail() }
    }

    fn lab_log_tail(&self) -> String {
        [self.state.lab_log(), self.state.controller_log(0)]
            .iter()
            .filter_map(|path| read_log(path).ok())
            .map(|log| tail(&log).to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Describes the Pods that are not ready.
fn describe(pods: &[PodInfo]) -> String {
    let unready = pods.iter().filter(|pod| !pod.ready).map(|pod| {
        let PodInfo { pod: name, running, restarts, problem, .. } = pod;
        let problem = problem.as_deref().unwrap_or("no problem known");
        format!("{name}: running {running}, {restarts} restarts, {problem}")
    });
    unready.collect::<Vec<_>>().join("\n")
}

fn tail(log: &str) -> &str {
    let mut start = log.len().saturating_sub(LOG_TAIL);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    &log[start..]
}
