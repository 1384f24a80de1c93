//! Owns the data types that the lab and its tools report.

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
    /// Its name for the controller: the same, or `machine/namespace/name` for a machine without a pod,
    /// which a MeshWorkload declares.
    pub workload: String,
    /// The Pod's addresses, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// Whether the Pod has a proxy.
    pub in_mesh: bool,
    /// Whether the containers were started.
    pub running: bool,
    /// Whether all containers and the proxy are ready.
    pub ready: bool,
    /// Restarts of its containers and its proxy.
    pub restarts: u64,
    /// The reason why the Pod does not start, or else how a container of it ended last, if there is one.
    pub problem: Option<String>,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// The exit status; 128 plus the signal number if a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl ExecOutput {
    /// Returns true if the exit status is 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

/// A response of Envoy's admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// The kind of a client's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// The name does not resolve.
    Unresolved,
    /// There is no route to the address.
    Unreachable,
    /// The connection was refused.
    Refused,
    /// The server closed or reset the connection before a response.
    Closed,
    /// No response within the time limit.
    Timeout,
    /// Another failure, for example an invalid response.
    Other,
}

impl Failure {
    /// Classifies an I/O error.
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

    /// Returns true if the connection was refused or closed. That is how a mesh denies access; a
    /// wrong name or a missing route looks different.
    pub fn is_denial(self) -> bool {
        matches!(self, Self::Refused | Self::Closed)
    }
}

/// One request of `smc-lab fetch`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FetchResult {
    /// The status code; absent without a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The response headers, names in lower case; of several with one name, the last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The response trailers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trailers: BTreeMap<String, String>,
    /// The response body: parsed if it is JSON, else a string. For gRPC, the first message.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The error, if there was no complete response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Duration of the request.
    #[serde(default)]
    pub millis: u64,
    /// Number of the client's connection that was used, counted from 1.
    #[serde(default)]
    pub connection: u64,
}

impl FetchResult {
    /// Returns the Pod that answered, as `smc-lab echo` names it.
    pub fn pod(&self) -> Option<&str> {
        self.body.get("pod").and_then(Value::as_str)
    }
}

/// The result of `smc-lab tcp` or `smc-lab tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpResult {
    /// Whether the connection was opened. Behind a proxy it always is: the proxy accepts before it
    /// decides.
    pub connected: bool,
    /// The server's first line, without its line end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub greeting: Option<String>,
    /// The server's reply, without its line end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The serial number of the server's certificate, in hexadecimal without leading zeros; TLS
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_serial: Option<String>,
    /// The error, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl TcpResult {
    /// Records an error.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.failure = Some(Failure::of(error));
        self.error = Some(error.to_string());
    }
}
