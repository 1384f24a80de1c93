//! Owns the server side of the lab's control socket.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Serialize;
use smc_types::ids::NamespacedName;
use smc_types::ports::ADMIN_PORT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::control::{self, Request, Tag};
use super::controllers::Controllers;
use super::process::{self, Group};
use super::reports::PodInfo;
use super::state_dir::StateDir;
use super::{LabError, config, http, netns};

/// Concurrent connections: enough for a test that runs a client in each of some dozens of Pods.
const MAX_CONNECTIONS: usize = 256;
/// Envoy's admin interface answers from memory, but a large dump takes time on a busy core.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for reading outputs that a command's children hold open after it ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A command of the control server to the supervisor.
#[derive(Debug)]
pub(super) enum Command {
    /// Read the mesh directory now, and answer when it is published.
    Sync(oneshot::Sender<Result<(), LabError>>),
    /// List all Pods.
    Pods(oneshot::Sender<Vec<PodInfo>>),
    /// Find the process that holds a Pod's namespaces, and the Pod's user and group.
    Namespaces(NamespacedName, oneshot::Sender<Option<(u32, (u32, u32))>>),
    /// End the lab.
    Down,
}

/// Accepts connections until the lab ends.
pub(super) async fn serve(
    state: &StateDir,
    commands: mpsc::Sender<Command>,
    controllers: Arc<Controllers>,
) -> Result<(), LabError> {
    let path = state.control_socket();
    let listener = UnixListener::bind(&path).map_err(LabError::file("listen on", &path))?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))
        .map_err(LabError::file("set the mode of", &path))?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // For example without a free file descriptor; the next accept may succeed.
                let Ok((stream, _)) = accepted else { continue };
                let connection = ControlConnection { commands: commands.clone(), controllers: Arc::clone(&controllers) };
                connections.spawn(connection.run(stream));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

struct ControlConnection {
    commands: mpsc::Sender<Command>,
    controllers: Arc<Controllers>,
}

impl ControlConnection {
    async fn run(self, stream: UnixStream) {
        let (mut reader, mut writer) = stream.into_split();
        let Ok(Some((Tag::Request, payload))) = control::read(&mut reader).await else { return };
        let answer = match serde_json::from_slice(&payload) {
            Ok(request) => self.answer(request, reader, &mut writer).await,
            Err(error) => Err(LabError::Invalid { what: "request", text: error.to_string() }),
        };
        // A client that is gone needs no answer.
        let _ = match answer {
            Ok(value) => control::write(&mut writer, Tag::Result, &value).await,
            Err(error) => control::write(&mut writer, Tag::Error, error.chain().as_bytes()).await,
        };
    }

    async fn answer(
        &self,
        request: Request,
        reader: OwnedReadHalf,
        writer: &mut OwnedWriteHalf,
    ) -> Result<Vec<u8>, LabError> {
        match request {
            Request::Sync => json(&self.ask(Command::Sync).await??),
            Request::Pods => json(&self.ask(Command::Pods).await?),
            Request::StartController { replica } => json(&self.controllers.start(replica).await?),
            Request::StopController { replica, signal } => {
                json(&self.controllers.stop(replica, to_signal(signal)?).await?)
            }
            Request::SignalController { replica, signal } => {
                json(&self.controllers.signal(replica, to_signal(signal)?).await?)
            }
            Request::Admin { pod, path } => {
                let (pid, _) = self.namespaces(&pod).await?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT));
                let failed = |error: std::io::Error| {
                    LabError::Refused(format!("{pod}: Envoy's admin interface: {error}"))
                };
                let stream = netns::connect(pid, address, ADMIN_TIMEOUT).await.map_err(failed)?;
                json(&http::get(stream, &path, ADMIN_TIMEOUT).await.map_err(failed)?)
            }
            Request::Exec { pod, uid, argv, env } => {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                let Some((program, args)) = argv.split_first() else {
                    return Err(LabError::Refused("no command".to_owned()));
                };
                let mut command = match &pod {
                    None => process::command(program, args),
                    Some(pod) => {
                        let (pid, user) = self.namespaces(pod).await?;
                        let (uid, gid) = uid.map_or(user, |uid| (uid, uid));
                        let mut command = process::command_as(pid, uid, gid, &argv);
                        command.env("HOSTNAME", pod.rsplit('/').next().unwrap_or_default());
                        command
                    }
                };
                command.env("SMC_ADMIN_SOCKET", config::admin_socket(0)).envs(env);
                json(&exec(command, reader, writer).await?)
            }
            Request::Down => {
                let _ = self.commands.send(Command::Down).await;
                json(&())
            }
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, LabError> {
        let ending = || LabError::Refused("the lab is ending".to_owned());
        let (sender, answer) = oneshot::channel();
        self.commands.send(command(sender)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())
    }

    async fn namespaces(&self, pod: &str) -> Result<(u32, (u32, u32)), LabError> {
        let name: NamespacedName = pod.parse()?;
        self.ask(|sender| Command::Namespaces(name, sender))
            .await?
            .ok_or_else(|| LabError::Refused(format!("there is no running pod {pod}")))
    }
}

fn to_signal(number: i32) -> Result<Signal, LabError> {
    Signal::try_from(number).map_err(|_| LabError::Invalid { what: "signal", text: number.to_string() })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, LabError> {
    serde_json::to_vec(value).map_err(|error| LabError::Refused(error.to_string()))
}

/// Runs a command with the client's streams. The command is killed when the client disconnects.
async fn exec(
    mut command: tokio::process::Command,
    reader: OwnedReadHalf,
    writer: &mut OwnedWriteHalf,
) -> Result<i32, LabError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed =
        |error: std::io::Error| LabError::Command { command: "exec".to_owned(), problem: error.to_string() };
    let mut child = command.spawn().map_err(failed)?;
    let group = Group::of(&child);
    let stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let outputs = forward(stdout, stderr, writer);
    let client = feed(reader, stdin);
    tokio::pin!(outputs, client);
    let (mut copied, mut gone) = (false, false);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(failed)?,
            sent = &mut outputs, if !copied => {
                copied = true;
                if sent.is_err() {
                    group.signal(Signal::SIGKILL);
                }
            }
            () = &mut client, if !gone => {
                gone = true;
                group.signal(Signal::SIGKILL);
            }
        }
    };
    if !copied {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, outputs).await;
    }
    Ok(exit_code(status))
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Sends both outputs to the client.
async fn forward(
    mut stdout: Option<ChildStdout>,
    mut stderr: Option<ChildStderr>,
    writer: &mut OwnedWriteHalf,
) -> std::io::Result<()> {
    let (mut out, mut err) = (vec![0; 16384], vec![0; 16384]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            length = read(&mut stdout, &mut out) => match length {
                0 => stdout = None,
                length => control::write(writer, Tag::Stdout, &out[..length]).await?,
            },
            length = read(&mut stderr, &mut err) => match length {
                0 => stderr = None,
                length => control::write(writer, Tag::Stderr, &err[..length]).await?,
            },
        }
    }
    Ok(())
}

async fn read(source: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match source {
        Some(source) => source.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Copies the client's input to the command. Returns when the client has disconnected.
async fn feed(mut reader: OwnedReadHalf, mut stdin: Option<ChildStdin>) {
    while let Ok(Some((tag, bytes))) = control::read(&mut reader).await {
        if tag != Tag::Stdin {
            break;
        }
        if bytes.is_empty() {
            stdin = None;
        } else if let Some(pipe) = &mut stdin
            && pipe.write_all(&bytes).await.is_err()
        {
            stdin = None;
        }
    }
}
