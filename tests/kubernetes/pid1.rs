//! Owns the first process of a cluster's pid namespace: sets up what the node sees, starts and
//! signals components on request, reaps orphans, and ends when its lifeline closes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use smc_test_sandbox::lifeline;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::cgroups::Hierarchies;
use crate::config::{self, Config};
use crate::control::{Answer, MAX_LINE, Request};
use crate::state_dir::StateDir;
use crate::{ClusterError, view};

/// Runs as pid 1 until standard input closes. Fails in any other process: it would change the
/// machine's own mounts and network.
pub async fn run(config_path: &Path) -> Result<(), ClusterError> {
    if std::process::id() != 1 {
        return Err(ClusterError::Unprivileged {
            needs: "starts `pid1` itself",
            problem: "this is not the first process of a namespace".to_owned(),
        });
    }
    let config = Config::read(config_path)?;
    let state = config.state_dir();
    if config.node {
        view::set_up(&Hierarchies::of_this_process()?)?;
    }
    let path = state.control_socket();
    let listener = UnixListener::bind(&path).map_err(ClusterError::file("listen on", &path))?;
    serve(&listener, Components { state, running: BTreeMap::new() }).await
}

async fn serve(listener: &UnixListener, mut components: Components) -> Result<(), ClusterError> {
    let mut children = signal(SignalKind::child()).map_err(ClusterError::command("SIGCHLD"))?;
    let mut owner_gone = lifeline::closed();
    loop {
        tokio::select! {
            _ = children.recv() => components.reap(),
            _ = &mut owner_gone => return Ok(()),
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // One request at a time: the cluster's owner alone can open the socket's directory.
                let _ = answer(stream, &mut components).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, components: &mut Components) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    BufReader::new(read.take(limit)).read_line(&mut line).await?;
    if line.is_empty() {
        // A connection that only asks for the process id.
        return Ok(());
    }
    let answer: Answer = match serde_json::from_str(&line) {
        Ok(request) => components.handle(request),
        Err(error) => Err(error.to_string()),
    };
    let mut text = serde_json::to_string(&answer).map_err(std::io::Error::other)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

struct Components {
    state: StateDir,
    running: BTreeMap<String, Pid>,
}

impl Components {
    fn handle(&mut self, request: Request) -> Answer {
        match request {
            Request::List => Ok(self.running.keys().cloned().collect()),
            Request::Signal { name, signal } => {
                let pid = self.running.get(&name).ok_or_else(|| format!("{name} does not run"))?;
                let signal = Signal::try_from(signal).map_err(|errno| errno.to_string())?;
                kill(*pid, signal).map_err(|errno| errno.to_string())?;
                Ok(Vec::new())
            }
            Request::Start { name, .. } if self.running.contains_key(&name) => {
                Err(format!("{name} runs already"))
            }
            Request::Start { name, program, args } => {
                let pid = self.start(&name, &program, &args).map_err(|error| error.chain())?;
                self.running.insert(name, pid);
                Ok(Vec::new())
            }
        }
    }

    fn start(&self, name: &str, program: &Path, args: &[String]) -> Result<Pid, ClusterError> {
        let path = self.state.log(name);
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(ClusterError::file("open", &path))?;
        let errors: File = log.try_clone().map_err(ClusterError::file("open", &path))?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .env("PATH", config::PATH)
            .env("HOME", "/root")
            .env("LANG", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // A signal for one component reaches no other.
            .process_group(0)
            .spawn()
            .map_err(ClusterError::command(&program.display().to_string()))?;
        // Dropping a child neither ends nor awaits it; `reap` awaits all.
        Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)))
    }

    /// Reaps every process that ended, component or orphan of a container.
    fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => {
                    self.running.retain(|_, running| *running != pid);
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
