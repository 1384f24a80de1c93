//! Owns following of log files line by line, from their beginning and across rotation, as `tail -F`
//! does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use super::stage::Line;

/// Poll interval of the files. Well below the second in which the table is redrawn.
const POLL: Duration = Duration::from_millis(50);

/// Bytes read from one file at a time, so that one busy file does not starve the others.
const READ_BYTES_MAX: u64 = 256 * 1024;

/// A longer line is passed on in pieces. Records have a few hundred bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The lines of several files, in order within each file.
#[derive(Debug)]
pub struct Follower {
    files: Vec<Followed>,
    ready: VecDeque<Line>,
}

#[derive(Debug)]
struct Followed {
    pod: String,
    path: PathBuf,
    open: Option<File>,
    /// An incomplete last line.
    partial: Vec<u8>,
}

impl Follower {
    /// Follows the given logs, with the Pod of each. The files need not exist yet.
    pub fn new(logs: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let files = logs
            .into_iter()
            .map(|(pod, path)| Followed { pod, path, open: None, partial: Vec::new() })
            .collect();
        Self { files, ready: VecDeque::new() }
    }

    /// Returns the next line of any file. Waits without limit; cancel-safe.
    pub async fn next_line(&mut self) -> std::io::Result<Line> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(line);
            }
            // Reading is synchronous, so that cancellation cannot lose bytes that were read. The
            // files are small, local, and in the page cache.
            for file in &mut self.files {
                file.read_lines(&mut self.ready)?;
            }
            if self.ready.is_empty() {
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

impl Followed {
    fn read_lines(&mut self, ready: &mut VecDeque<Line>) -> std::io::Result<()> {
        if self.open.is_none() {
            self.open = match File::open(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        let Some(file) = &mut self.open else { return Ok(()) };
        // Checked before reading, so that everything written before the rotation is read.
        let replaced = match std::fs::metadata(&self.path) {
            Ok(now) => now.ino() != file.metadata()?.ino(),
            // Between the rename of the old file and the creation of the new one.
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        let read = file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        for byte in bytes {
            if byte == b'\n' || self.partial.len() >= LINE_BYTES_MAX {
                let text = String::from_utf8_lossy(&self.partial).into_owned();
                ready.push_back(Line { pod: self.pod.clone(), text });
                self.partial.clear();
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
        if replaced && read == 0 {
            self.open = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    async fn text(follower: &mut Follower) -> Option<String> {
        let wait = Duration::from_millis(500);
        tokio::time::timeout(wait, follower.next_line()).await.ok().map(|line| line.unwrap().text)
    }

    #[tokio::test]
    async fn lines_are_followed_from_the_first_through_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.log");
        let mut follower = Follower::new([("a/pod".to_owned(), path.clone())]);
        assert_eq!(text(&mut follower).await, None, "no file yet");

        let mut file = File::create(&path).unwrap();
        write!(file, "one\ntw").unwrap();
        assert_eq!(text(&mut follower).await.as_deref(), Some("one"));
        assert_eq!(text(&mut follower).await, None, "a line without its end is not one yet");
        write!(file, "o\nthree\n").unwrap();
        assert_eq!(text(&mut follower).await.as_deref(), Some("two"));

        std::fs::rename(&path, directory.path().join("app.log.1")).unwrap();
        writeln!(file, "four").unwrap();
        let mut next = File::create(&path).unwrap();
        writeln!(next, "five").unwrap();
        for expected in ["three", "four", "five"] {
            assert_eq!(text(&mut follower).await.as_deref(), Some(expected));
        }
        assert_eq!(text(&mut follower).await, None);
    }

    #[tokio::test]
    async fn an_endless_line_comes_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.log");
        std::fs::write(&path, "x".repeat(2 * LINE_BYTES_MAX + 1)).unwrap();
        let mut follower = Follower::new([("a/pod".to_owned(), path)]);
        for _ in 0..2 {
            assert_eq!(text(&mut follower).await.unwrap().len(), LINE_BYTES_MAX);
        }
        assert_eq!(text(&mut follower).await, None);
    }
}
