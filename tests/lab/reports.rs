//! What the lab and its tools report, as data.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A Pod as the lab runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodInfo {
    /// `namespace/name`.
    pub pod: String,
    /// Its addresses, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// Whether it has a proxy.
    pub in_mesh: bool,
    /// Whether its containers were started.
    pub running: bool,
    /// Whether all its containers, and its proxy, are ready.
    pub ready: bool,
    /// How often its containers and its proxy ended and were started again.
    pub restarts: u64,
    /// Why it does not come up, if it doesn't.
    pub problem: Option<String>,
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// The exit status; 128 plus the signal's number if a signal ended it.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl ExecOutput {
    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

/// An answer of Envoy's admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// How a client failed, as far as it can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// The name has no address.
    Unresolved,
    /// No way leads to the address.
    Unreachable,
    /// Nobody listens there.
    Refused,
    /// The other side closed or reset the connection where an answer was expected.
    Closed,
    /// Nothing came in time.
    Timeout,
    /// Something else: an answer that makes no sense, say.
    Other,
}

impl Failure {
    /// What this error says of the other side.
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Unresolved,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Self::Unreachable,
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof => Self::Closed,
            ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Other,
        }
    }

    /// Whether somebody there turned the client away: what a mesh does with whom it does not let in, and what a
    /// mistake on the way there does not look like.
    pub fn is_denial(self) -> bool {
        matches!(self, Self::Refused | Self::Closed)
    }
}

/// One request of `smc-lab fetch`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FetchResult {
    /// The status code; absent if there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The answer's headers, names in lower case; of several with one name, the last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The answer's trailers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trailers: BTreeMap<String, String>,
    /// The answer's body: JSON if it is JSON, else a text. Of a gRPC answer, the first message.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// Why there was no answer, or not a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What kind of failure `error` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// From the start of the request to its end.
    #[serde(default)]
    pub millis: u64,
    /// Which of the client's connections was used, counted from 1.
    #[serde(default)]
    pub connection: u64,
}

impl FetchResult {
    /// The Pod that `smc-lab echo` says answered.
    pub fn pod(&self) -> Option<&str> {
        self.body.get("pod").and_then(Value::as_str)
    }
}

/// One conversation of `smc-lab tcp` or `smc-lab tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpResult {
    /// Whether the connection was opened. Behind a proxy it always is: the proxy accepts, then perhaps closes.
    pub connected: bool,
    /// What the server said first, without its line end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub greeting: Option<String>,
    /// What the server answered, without its line end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The serial number of the certificate the server showed, in hexadecimal without leading zeros; TLS only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_serial: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What kind of failure `error` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl TcpResult {
    /// Adds what went wrong.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.failure = Some(Failure::of(error));
        self.error = Some(error.to_string());
    }
}
