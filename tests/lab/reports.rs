//! What the lab and its tools report, as data.

use std::collections::BTreeMap;
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

/// One conversation of `smc-lab tcp`.
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
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
