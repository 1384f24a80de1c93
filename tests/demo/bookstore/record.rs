//! Owns the programs' journal: one JSON object per line, a [`Call`] written by the client, a
//! [`Received`] by the server. Does not judge them; the reader does.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Capacity of the journal. At some tens of lines a second it covers several seconds of a stuck
/// reader; then the program waits rather than losing a line.
const JOURNAL_QUEUE: usize = 256;

/// The method of a call that is not an HTTP request.
pub const METHOD_TCP: &str = "TCP";

/// One line of a program's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// A request was made; written by the client.
    Call(Call),
    /// A request arrived; written by the server.
    Received(Received),
}

/// A request and its result, as its client saw them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Milliseconds since the program started.
    pub t_ms: u64,
    /// Name of the client.
    pub from: String,
    /// Name of the server.
    pub to: String,
    /// The HTTP method, or [`METHOD_TCP`].
    pub method: String,
    /// The HTTP path, or the verb of the TCP protocol.
    pub path: String,
    /// The HTTP status. Without status and error, the call was a TCP call that was answered.
    pub status: Option<u16>,
    /// The error, if there was no response.
    pub error: Option<CallError>,
    /// The version of the bookstore that answered. Only the application writes it, never a proxy.
    pub version: Option<String>,
    /// The client's identity as the server saw it: the SPIFFE ID, or `none` without a certificate.
    /// Absent if no application answered.
    pub identity_seen: Option<String>,
}

/// A request as its server saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Milliseconds since the program started.
    pub t_ms: u64,
    /// Name of the server.
    pub at: String,
    /// SPIFFE ID of the client. Absent without one, as always with the TCP protocol.
    pub from: Option<String>,
    /// The HTTP method, or [`METHOD_TCP`].
    pub method: String,
    /// The HTTP path, or the verb of the TCP protocol.
    pub path: String,
    /// The HTTP status of the response. Absent with the TCP protocol.
    pub status: Option<u16>,
}

/// The reason why a call got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
pub enum CallError {
    /// The server's name does not resolve.
    #[error("name not resolved")]
    #[serde(rename = "name not resolved")]
    NameNotResolved,
    /// No program listens on the port; or the client's sidecar has no listener yet.
    #[error("connection refused")]
    #[serde(rename = "connection refused")]
    ConnectionRefused,
    /// The connection was accepted and closed before a response: how a proxy denies a connection
    /// without a route or permission below HTTP.
    #[error("connection closed")]
    #[serde(rename = "connection closed")]
    ConnectionClosed,
    /// There is no route to the host.
    #[error("host unreachable")]
    #[serde(rename = "host unreachable")]
    Unreachable,
    /// No response within the time limit.
    #[error("timed out")]
    #[serde(rename = "timed out")]
    TimedOut,
    /// The response violates the protocol, or is too long.
    #[error("protocol error")]
    #[serde(rename = "protocol error")]
    Protocol,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// An HTTP response, from an application or a proxy.
    Status(u16),
    /// A TCP call was answered.
    Answered,
    /// No response.
    Failed(CallError),
}

impl Call {
    /// Returns the result. An error outweighs a status, so that a line with both does not count as
    /// success.
    pub fn outcome(&self) -> Outcome {
        match (self.error, self.status) {
            (Some(error), _) => Outcome::Failed(error),
            (None, Some(status)) => Outcome::Status(status),
            (None, None) if self.method == METHOD_TCP => Outcome::Answered,
            (None, None) => Outcome::Failed(CallError::Protocol),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Answered => f.write_str("OK"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// The writing end of a program's records.
#[derive(Debug, Clone)]
pub struct Journal {
    started: Instant,
    records: mpsc::Sender<Record>,
}

impl Journal {
    /// Creates a journal and the receiver of its records.
    pub fn new() -> (Self, mpsc::Receiver<Record>) {
        let (sender, receiver) = mpsc::channel(JOURNAL_QUEUE);
        (Self { started: Instant::now(), records: sender }, receiver)
    }

    /// Milliseconds since the program started.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Queues a record; waits if the reader is slow.
    pub async fn write(&self, record: Record) {
        // The receiver is dropped only when the program ends.
        let _ = self.records.send(record).await;
    }
}

/// Writes records as JSON lines until the last journal is dropped.
pub async fn write_lines(
    mut records: mpsc::Receiver<Record>,
    mut out: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    while let Some(record) = records.recv().await {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        out.write_all(&line).await?;
        // Flushed for a live view; tens of lines a second need no buffering.
        out.flush().await?;
    }
    out.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            t_ms: 7,
            from: "bookbuyer".into(),
            to: "bookstore".into(),
            method: "GET".into(),
            path: "/books-bought".into(),
            status: Some(200),
            error: None,
            version: Some("v1".into()),
            identity_seen: Some("spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer".into()),
        }
    }

    #[test]
    fn a_call_is_one_flat_json_object_with_nulls_for_absent_fields() {
        let line = serde_json::to_value(Record::Call(call())).unwrap();
        assert_eq!(
            line,
            serde_json::json!({
                "kind": "call", "t_ms": 7, "from": "bookbuyer", "to": "bookstore", "method": "GET",
                "path": "/books-bought", "status": 200, "error": null, "version": "v1",
                "identity_seen": "spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer",
            })
        );
    }

    #[test]
    fn every_error_is_written_as_it_reads_and_read_back() {
        for error in [
            CallError::NameNotResolved,
            CallError::ConnectionRefused,
            CallError::ConnectionClosed,
            CallError::Unreachable,
            CallError::TimedOut,
            CallError::Protocol,
        ] {
            let record = Record::Call(Call { status: None, error: Some(error), ..call() });
            let line = serde_json::to_string(&record).unwrap();
            assert!(line.contains(&format!("\"error\":\"{error}\"")), "{line}");
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
        }
    }

    #[test]
    fn an_outcome_is_never_better_than_the_line_says() {
        let closed = Some(CallError::ConnectionClosed);
        for (call, expected) in [
            (call(), Outcome::Status(200)),
            (Call { error: closed, ..call() }, Outcome::Failed(CallError::ConnectionClosed)),
            (Call { status: None, ..call() }, Outcome::Failed(CallError::Protocol)),
            (Call { status: None, method: METHOD_TCP.into(), ..call() }, Outcome::Answered),
        ] {
            assert_eq!(call.outcome(), expected, "{call:?}");
        }
    }

    #[tokio::test]
    async fn the_journal_writes_one_line_per_record_and_ends_with_the_last_writer() {
        let (journal, records) = Journal::new();
        let (out, mut read) = tokio::io::duplex(4096);
        let writer = tokio::spawn(write_lines(records, out));
        journal.write(Record::Call(call())).await;
        journal.write(Record::Call(call())).await;
        drop(journal);
        writer.await.unwrap().unwrap();
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut read, &mut text).await.unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            assert_eq!(serde_json::from_str::<Record>(line).unwrap(), Record::Call(call()));
        }
    }
}
