//! Owns the operations on a running cluster of this machine: commands on the node, images, faults.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::command::{self, Output, command};
use crate::control::{self, Request};
use crate::node_files::CONTAINERD;
use crate::state_dir::StateDir;
use crate::{Admin, ClusterError, Image, Programs, audit};

/// Time limit of one command; the import of a large image takes some ten seconds on a busy machine.
const COMMAND: Duration = Duration::from_mins(5);
/// Time limit of `down`.
const DOWN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// Bytes of a log's end that an error quotes.
const LOG_TAIL: usize = 2000;

/// Access to a running cluster. Cheap to clone, for concurrent tasks.
#[derive(Clone, Debug)]
pub struct ClusterHandle {
    name: String,
    state: StateDir,
    admin: Admin,
}

impl Deref for ClusterHandle {
    type Target = Admin;

    fn deref(&self) -> &Admin {
        &self.admin
    }
}

impl ClusterHandle {
    pub(crate) fn new(name: String, state: StateDir, programs: Programs) -> Self {
        let admin = Admin::new(state.kubeconfig(), programs);
        Self { name, state, admin }
    }

    /// Finds the running cluster of this name.
    pub async fn find(name: &str, programs: Programs) -> Result<Self, ClusterError> {
        let state = StateDir::of(name)?;
        control::first_process(&state).await.map_err(|_| ClusterError::NotRunning(name.to_owned()))?;
        Ok(Self::new(name.to_owned(), state, programs))
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster's directory.
    pub fn state_dir(&self) -> &StateDir {
        &self.state
    }

    /// Runs a command as root in the namespaces of the node: its network, mounts and processes.
    pub async fn on_node(&self, argv: &[&str]) -> Result<Output, ClusterError> {
        command::output(self.enter(argv).await?, "", COMMAND).await
    }

    /// The command that [`ClusterHandle::on_node`] runs.
    pub(crate) async fn enter(&self, argv: &[&str]) -> Result<tokio::process::Command, ClusterError> {
        let pid = control::first_process(&self.state).await?;
        let mut enter = command("nsenter");
        enter.args(["--target", &pid.to_string(), "--all", "--"]).args(argv);
        Ok(enter)
    }

    /// The command that runs what its further arguments name as root in the namespaces of the node.
    pub async fn enter_command(&self) -> Result<std::process::Command, ClusterError> {
        let pid = control::first_process(&self.state).await?;
        let mut enter = std::process::Command::new("nsenter");
        enter.args(["--target", &pid.to_string(), "--all", "--"]);
        Ok(enter)
    }

    /// Makes an image and gives it to the node, under its name. An image of that name is replaced for
    /// pods that start later.
    pub async fn import(&self, image: Image) -> Result<(), ClusterError> {
        let work = self.state.images();
        let made = tokio::task::spawn_blocking(move || image.make(&work)).await;
        let archive = made.map_err(ClusterError::command("make an image"))??;
        let path = archive.display().to_string();
        let import = ["ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "images", "import", &path];
        let imported = command::run(self.enter(&import).await?, "", COMMAND).await;
        let _ = fs::remove_file(&archive);
        imported.map(|_| ())
    }

    /// Gives an image of the node another name.
    pub async fn tag(&self, name: &str, other: &str) -> Result<(), ClusterError> {
        let [name, other] = [name, other].map(|name| format!("docker.io/library/{name}"));
        let tag = ["ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "images", "tag", &name, &other];
        command::run(self.enter(&tag).await?, "", COMMAND).await.map(|_| ())
    }

    /// Starts a component; the caller has seen it end.
    pub(crate) async fn start(
        &self,
        name: &str,
        program: PathBuf,
        args: Vec<String>,
    ) -> Result<(), ClusterError> {
        control::ask(&self.state, &Request::Start { name: name.to_owned(), program, args }).await.map(|_| ())
    }

    /// Sends a signal to a component, for example `kube-apiserver` or `kubelet`.
    pub async fn signal(&self, component: &str, signal: Signal) -> Result<(), ClusterError> {
        let request = Request::Signal { name: component.to_owned(), signal: signal as i32 };
        control::ask(&self.state, &request).await.map(|_| ())
    }

    /// Names the components that run.
    pub async fn components(&self) -> Result<Vec<String>, ClusterError> {
        control::ask(&self.state, &Request::List).await
    }

    /// Asks the keeper to end the cluster, and waits until all of it is gone.
    pub async fn down(&self) -> Result<(), ClusterError> {
        let path = self.state.keeper_pid();
        let text = fs::read_to_string(&path).map_err(ClusterError::file("read", &path))?;
        let pid = text.trim().parse().map_err(ClusterError::command("read the keeper's process id"))?;
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM)
            .map_err(ClusterError::command("end the keeper"))?;
        let deadline = tokio::time::Instant::now() + DOWN;
        while crate::running_clusters().contains(&self.name) {
            if tokio::time::Instant::now() >= deadline {
                return Err(self.timeout("the cluster to end", DOWN, String::new()));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The requests of the users that [`crate::ClusterOptions::audited`] names, as `audit.k8s.io/v1` Events
    /// without bodies, in the order in which they were answered. A watch is there once it has begun.
    pub fn audit(&self) -> Result<Vec<serde_json::Value>, ClusterError> {
        audit::read(&self.state)
    }

    /// The end of a component's log.
    pub fn log_tail(&self, component: &str) -> String {
        tail(&self.state.log(component))
    }

    /// Waits until `done` says so. `done` answers with an error text while it does not hold.
    pub async fn wait<F, Fut>(&self, what: &str, limit: Duration, mut done: F) -> Result<(), ClusterError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<(), String>>,
    {
        let deadline = tokio::time::Instant::now() + limit;
        let mut state = "no answer".to_owned();
        loop {
            match tokio::time::timeout_at(deadline, done()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(answer)) => state = answer,
                // The answer before says more than that the last one was cut off.
                Err(_) => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(self.timeout(what, limit, state));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn timeout(&self, what: &str, limit: Duration, state: String) -> ClusterError {
        ClusterError::Timeout { what: format!("{what} ({})", self.name), seconds: limit.as_secs(), state }
    }
}

fn tail(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let mut start = text.len().saturating_sub(LOG_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}
