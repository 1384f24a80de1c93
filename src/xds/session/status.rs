//! A stream's state for display: `smc proxy config`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Scope, Variant};
use crate::resource::ResourceType;

/// The state of one stream. Holds names and versions but no content, so it cannot leak a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The variant of the protocol.
    pub variant: Variant,
    /// The types the stream may carry.
    pub scope: Scope,
    /// The types that the client subscribed to.
    pub types: BTreeMap<ResourceType, TypeStatus>,
}

/// The state of one type on a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TypeStatus {
    /// The client has a wildcard subscription.
    pub wildcard: bool,
    /// The names that the client subscribed to, sorted.
    pub subscribed: Vec<String>,
    /// The versions last sent, by name, answered or not, including what the client stated to hold at the
    /// beginning of the stream. `unknown` if the client holds a version that SMC cannot name.
    pub sent: BTreeMap<String, String>,
    /// The ACKed versions, by name.
    pub acked: BTreeMap<String, String>,
    /// The rejected versions, by name, for which no newer version has been ACKed.
    pub rejected: BTreeMap<String, RejectedStatus>,
    /// The nonce of the last response, if there was one.
    pub nonce: Option<u64>,
    /// That response is unanswered.
    pub in_flight: bool,
    /// More is to be sent, once something else has been answered.
    pub pending: bool,
}

/// A resource that the client rejected and still lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedResource {
    /// Its type.
    pub kind: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The client's error message, cut to 1 KiB.
    pub message: Arc<str>,
}

/// A rejected version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedStatus {
    /// The version of the resource; in State of the World that of the whole set.
    pub version: String,
    /// The client's error message, cut to 1 KiB.
    pub message: String,
}
