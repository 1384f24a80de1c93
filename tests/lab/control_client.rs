//! Owns the client side of the control socket: [`LabHandle`] opens one connection per request.

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use super::LabError;
use super::control::{self, Request, Tag};
use super::handle::LabHandle;
use super::reports::ExecOutput;

/// Limit of a command's output that is collected in memory.
const MAX_OUTPUT: usize = 256 << 20;

impl LabHandle {
    pub(super) async fn collect(
        &self,
        pod: Option<&str>,
        uid: Option<u32>,
        argv: &[&str],
        env: &[(String, String)],
    ) -> Result<ExecOutput, LabError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = self.run(pod, uid, argv, env, tokio::io::empty(), &mut stdout, &mut stderr).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(ExecOutput { status, stdout: text(stdout), stderr: text(stderr) })
    }

    /// Runs a command in a Pod, or on the node, with the caller's streams. Dropping the future ends
    /// the command.
    #[expect(clippy::too_many_arguments, reason = "a process has that many")]
    pub async fn run(
        &self,
        pod: Option<&str>,
        uid: Option<u32>,
        argv: &[&str],
        env: &[(String, String)],
        stdin: impl AsyncRead + Unpin,
        mut stdout: impl AsyncWrite + Unpin,
        mut stderr: impl AsyncWrite + Unpin,
    ) -> Result<i32, LabError> {
        let request = Request::Exec {
            pod: pod.map(str::to_owned),
            uid,
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env: env.to_vec(),
        };
        let stream = self.connect(&request).await?;
        let (mut reader, mut writer) = stream.into_split();
        let input = async {
            let mut stdin = stdin;
            let mut buffer = vec![0; 16384];
            loop {
                let length = stdin.read(&mut buffer).await.unwrap_or(0);
                // A write fails once the command has ended; the result frame has its status.
                if control::write(&mut writer, Tag::Stdin, &buffer[..length]).await.is_err() || length == 0 {
                    break;
                }
            }
            // Keeps the connection open: closing it would end the command.
            std::future::pending::<()>().await;
        };
        let mut written = 0;
        let output = async {
            loop {
                let (tag, bytes) = self.frame(&mut reader).await?;
                written += bytes.len();
                if written > MAX_OUTPUT {
                    return Err(LabError::Refused(format!(
                        "the command printed more than {MAX_OUTPUT} bytes"
                    )));
                }
                // As with a closed pipe, output that cannot be written is lost.
                let _ = match tag {
                    Tag::Stdout => stdout.write_all(&bytes).await,
                    Tag::Stderr => stderr.write_all(&bytes).await,
                    _ => return parse(&bytes),
                };
            }
        };
        let status = tokio::select! {
            status = output => status?,
            () = input => 1,
        };
        let _ = tokio::join!(stdout.flush(), stderr.flush());
        Ok(status)
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, LabError> {
        let mut stream = self.connect(request).await?;
        let (_, bytes) = self.frame(&mut stream).await?;
        parse(&bytes)
    }

    async fn connect(&self, request: &Request) -> Result<UnixStream, LabError> {
        let payload = serde_json::to_vec(request)
            .map_err(|error| LabError::Invalid { what: "request", text: error.to_string() })?;
        let path = self.state.control_socket();
        let failed = |source| LabError::Control { path: path.clone(), source };
        let mut stream = UnixStream::connect(&path).await.map_err(failed)?;
        control::write(&mut stream, Tag::Request, &payload).await.map_err(failed)?;
        Ok(stream)
    }

    /// Reads the next frame; an error frame is an `Err`.
    async fn frame(&self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(Tag, Vec<u8>), LabError> {
        let path = self.state.control_socket();
        match control::read(reader).await.map_err(|source| LabError::Control { path, source })? {
            Some((Tag::Error, text)) => Err(LabError::Refused(String::from_utf8_lossy(&text).into_owned())),
            Some(frame) => Ok(frame),
            None => Err(self.ended_error()),
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, LabError> {
    serde_json::from_slice(bytes)
        .map_err(|error| LabError::Invalid { what: "answer of the lab", text: error.to_string() })
}
