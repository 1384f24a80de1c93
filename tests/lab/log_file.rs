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

/// The bytes of a line from which on it is written in pieces.
const MAX_REST: usize = 64 * 1024;

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
    pub(super) async fn copy(&mut self, stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) {
        self.copy_lines(stdout, stderr).await;
    }

    /// Copies two streams, each line in one piece unless it is very long.
    async fn copy_lines(
        &mut self,
        stdout: Option<impl AsyncRead + Unpin>,
        stderr: Option<impl AsyncRead + Unpin>,
    ) {
        let (mut out, mut err) = (Lines::new(stdout), Lines::new(stderr));
        while out.source.is_some() || err.source.is_some() {
            let lines = tokio::select! {
                lines = out.next() => lines,
                lines = err.next() => lines,
            };
            self.append_output(&lines).await;
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

/// A stream, of which whole lines are read.
struct Lines<R> {
    /// `None` at the end.
    source: Option<R>,
    /// What was read and is no whole line.
    rest: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(source: Option<R>) -> Self {
        Self { source, rest: Vec::new() }
    }

    /// The next lines, or all that is left at the end or has become long. Never completes for a stream that
    /// has ended. What was read is kept if this is dropped.
    async fn next(&mut self) -> Vec<u8> {
        loop {
            let Some(source) = &mut self.source else { return std::future::pending().await };
            let whole = match source.read_buf(&mut self.rest).await {
                Ok(1..) if self.rest.len() < MAX_REST => {
                    self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
                }
                Ok(1..) => self.rest.len(),
                Ok(0) | Err(_) => {
                    self.source = None;
                    let mut rest = std::mem::take(&mut self.rest);
                    if !rest.is_empty() {
                        // The other stream goes on, and its next line is one of its own.
                        rest.push(b'\n');
                    }
                    return rest;
                }
            };
            if whole > 0 {
                return self.rest.drain(..whole).collect();
            }
        }
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
    #[tokio::test]
    async fn lines_of_two_streams_are_not_mixed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.log");
        let mut file = LogFile::new(path.clone());
        let ((mut out, stdout), (mut err, stderr)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let write = async {
            for number in 0..100 {
                out.write_all(format!("begun {number} ").as_bytes()).await.unwrap();
                err.write_all(format!("{number}\nlast").as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
                out.write_all(b"ended\n").await.unwrap();
            }
            drop((out, err));
        };
        tokio::join!(file.copy_lines(Some(stdout), Some(stderr)), write);
        let log = read_log(&path).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        for number in 0..100 {
            let (first, second) = (format!("begun {number} ended"), format!("last{number}"));
            assert!(lines.contains(&first.as_str()), "{first}: {log}");
            assert!(number == 0 || lines.contains(&second.as_str()), "{second}: {log}");
        }
        assert_eq!(lines.len(), 201);
    }
}
