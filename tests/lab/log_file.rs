//! Owns log files of bounded size.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdout};

use super::LabError;

/// Size at which a file is rotated. The file and its predecessor hold the last 16 to 32 MiB, which
/// is hours of Envoy at its default level.
const MAX_BYTES: u64 = 16 << 20;

/// The most bytes of a last line that are kept.
const MAX_LINE_BYTES: usize = 300;

/// Appends to a file, and rotates it when it is full.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    open: Option<(File, u64)>,
    /// The end of what the child printed last.
    printed: Vec<u8>,
}

impl LogFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, printed: Vec::new() }
    }

    /// Appends bytes. A write error loses the bytes: it must not stop the process that logs.
    pub(super) async fn append(&mut self, bytes: &[u8]) {
        if self.open.as_ref().is_some_and(|(_, length)| *length >= MAX_BYTES) {
            self.open = None;
            let _ = fs::rename(&self.path, previous(&self.path)).await;
        }
        if self.open.is_none() {
            if let Some(parent) = self.path.parent() {
                let _ = fs::create_dir_all(parent).await;
            }
            if let Ok(file) = OpenOptions::new().create(true).append(true).open(&self.path).await {
                let length = file.metadata().await.map_or(0, |metadata| metadata.len());
                self.open = Some((file, length));
            }
        }
        if let Some((file, length)) = &mut self.open
            && file.write_all(bytes).await.is_ok()
            && file.flush().await.is_ok()
        {
            *length += bytes.len() as u64;
        }
    }

    /// Appends a line of the lab itself.
    pub(super) async fn append_line(&mut self, line: &str) {
        self.append(format!("[lab] {line}\n").as_bytes()).await;
    }

    /// Copies a child's output until the child closes both streams.
    pub(super) async fn copy(&mut self, mut stdout: Option<ChildStdout>, mut stderr: Option<ChildStderr>) {
        let (mut out, mut err) = (vec![0; 8192], vec![0; 8192]);
        while stdout.is_some() || stderr.is_some() {
            tokio::select! {
                length = read(&mut stdout, &mut out) => match length {
                    0 => stdout = None,
                    length => self.append_output(&out[..length]).await,
                },
                length = read(&mut stderr, &mut err) => match length {
                    0 => stderr = None,
                    length => self.append_output(&err[..length]).await,
                },
            }
        }
    }

    async fn append_output(&mut self, bytes: &[u8]) {
        self.append(bytes).await;
        self.printed.extend_from_slice(bytes);
        let surplus = self.printed.len().saturating_sub(MAX_LINE_BYTES);
        self.printed.drain(..surplus);
    }

    /// The last line that the child printed, or its end if it is long.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.printed);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|c| !c.is_control()).collect())
    }
}

/// The file's predecessor.
fn previous(path: &Path) -> PathBuf {
    let mut previous = path.as_os_str().to_owned();
    previous.push(".1");
    previous.into()
}

/// What a log holds, with its predecessor. A rotation meanwhile repeats nothing.
pub(super) fn read_log(path: &Path) -> Result<String, LabError> {
    read_both(path).map_err(LabError::file("read", path))
}

fn read_both(path: &Path) -> std::io::Result<String> {
    let mut latest = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    match std::fs::File::open(previous(path)) {
        Ok(mut previous) => {
            if previous.metadata()?.ino() != latest.metadata()?.ino() {
                previous.read_to_end(&mut bytes)?;
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    latest.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the bytes read, 0 at the end. Never completes for a stream that has ended.
async fn read(source: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match source {
        Some(source) => source.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_is_read_with_its_predecessor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logs/envoy.log");
        assert!(read_log(&path).is_err());
        let mut file = LogFile::new(path.clone());
        let half = vec![b'-'; usize::try_from(MAX_BYTES).unwrap()];
        file.append(b"forgotten").await;
        file.append(&half).await;
        file.append(b"first").await;
        file.append(&half).await;
        file.append(b"last").await;
        let log = read_log(&path).unwrap();
        assert_eq!((log.find("forgotten"), log.find("first")), (None, Some(0)));
        assert!(log.ends_with("-last"));
    }
}
