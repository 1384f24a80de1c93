//! A stream's state for people: `smc proxy config`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Scope, Variant};
use crate::resource::ResourceType;

/// What one stream carries. Holds names and versions, no content, so no key can leak through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The protocol's variant.
    pub variant: Variant,
    /// The types the stream may carry.
    pub scope: Scope,
    /// The types the client asked for.
    pub types: BTreeMap<ResourceType, TypeStatus>,
}

/// What one stream carries of one type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TypeStatus {
    /// Whether the client asked for all there is.
    pub wildcard: bool,
    /// What it asked for by name, sorted.
    pub subscribed: Vec<String>,
    /// What it was last sent, name to version, whether it has answered or not; including what it said to
    /// hold when the stream began. `unknown` where the client holds what we cannot name.
    pub sent: BTreeMap<String, String>,
    /// What it took, name to version.
    pub acked: BTreeMap<String, String>,
    /// What it refused and was not sent anew since, by name.
    pub rejected: BTreeMap<String, RejectedStatus>,
    /// The nonce of the last response, if there was one.
    pub nonce: Option<u64>,
    /// Whether that response is unanswered.
    pub in_flight: bool,
    /// Whether there is more to send once something else has been answered.
    pub pending: bool,
}

/// A refused version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedStatus {
    /// The version of the resource; in State of the World, of the whole set.
    pub version: String,
    /// What the client said, cut to 1 KiB.
    pub message: String,
}
