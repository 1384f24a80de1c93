//! What the programs say about their traffic: one JSON object per line, a [`Call`] by who made it, a [`Received`] by
//! who got it. This module owns the format and the way to standard output. It does not judge: what should have
//! happened is the reader's business.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Lines that may wait for standard output. At some tens of lines a second this is several seconds of a stuck
/// reader; then the program waits rather than losing a line.
const JOURNAL_QUEUE: usize = 256;

/// The method written for a call that is no HTTP request.
pub const METHOD_TCP: &str = "TCP";

/// One line of a program's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// A request was made; said by the client.
    Call(Call),
    /// A request arrived; said by the server.
    Received(Received),
}

/// A request and what came of it, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Milliseconds since the program started.
    pub t_ms: u64,
    /// Who called.
    pub from: String,
    /// Who was meant to answer.
    pub to: String,
    /// The HTTP method, or [`METHOD_TCP`].
    pub method: String,
    /// The HTTP path, or the verb of the TCP protocol.
    pub path: String,
    /// The HTTP status. Without one, and without an error, the call was a TCP call that was answered.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<CallError>,
    /// Which version of the bookstore answered. Only the application writes it, never a proxy.
    pub version: Option<String>,
    /// Whom the server saw calling: the SPIFFE ID, or `none` if it saw no certificate. Absent if no application
    /// answered.
    pub identity_seen: Option<String>,
}

/// A request as its server saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Milliseconds since the program started.
    pub t_ms: u64,
    /// Who received it.
    pub at: String,
    /// The SPIFFE ID of the caller. Absent if none was seen, as always with the TCP protocol.
    pub from: Option<String>,
    /// The HTTP method, or [`METHOD_TCP`].
    pub method: String,
    /// The HTTP path, or the verb of the TCP protocol.
    pub path: String,
    /// The HTTP status answered. Absent with the TCP protocol.
    pub status: Option<u16>,
}

/// Why a call got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
pub enum CallError {
    /// The name of the server has no address.
    #[error("name not resolved")]
    #[serde(rename = "name not resolved")]
    NameNotResolved,
    /// Nobody listens there; behind a sidecar, that the sidecar has nothing to offer to anyone.
    #[error("connection refused")]
    #[serde(rename = "connection refused")]
    ConnectionRefused,
    /// The connection was accepted and ended before an answer: how a proxy refuses what has no route or no permission
    /// below HTTP.
    #[error("connection closed")]
    #[serde(rename = "connection closed")]
    ConnectionClosed,
    /// No way to the host.
    #[error("host unreachable")]
    #[serde(rename = "host unreachable")]
    Unreachable,
    /// No answer in time.
    #[error("timed out")]
    #[serde(rename = "timed out")]
    TimedOut,
    /// The answer was not in the protocol spoken, or longer than anything we expect.
    #[error("protocol error")]
    #[serde(rename = "protocol error")]
    Protocol,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// An HTTP answer, from an application or a proxy.
    Status(u16),
    /// A TCP call was answered.
    Answered,
    /// No answer.
    Failed(CallError),
}

impl Call {
    /// What came of it. An error outweighs a status, so that a line which claims both is not taken for success.
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

/// Where a program writes its records.
#[derive(Debug, Clone)]
pub struct Journal {
    started: Instant,
    records: mpsc::Sender<Record>,
}

impl Journal {
    /// A journal, and the end at which its records come out.
    pub fn new() -> (Self, mpsc::Receiver<Record>) {
        let (sender, receiver) = mpsc::channel(JOURNAL_QUEUE);
        (Self { started: Instant::now(), records: sender }, receiver)
    }

    /// Milliseconds since the program started.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Hands a record over, waiting if the reader is slow.
    pub async fn write(&self, record: Record) {
        // The receiver ends only when the program does, and then nobody reads any more.
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
        // A line is worth most while it is fresh, and tens of lines a second need no buffering.
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
    fn a_call_is_one_flat_json_object_with_nulls_for_what_is_absent() {
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
