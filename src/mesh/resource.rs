//! One xDS resource as it goes on the wire: encoded once, hashed once, shared by every stream.
//!
//! Owns the encoding and the version. Refuses to know what a resource means. A version is the hash of the
//! encoded content and nothing else, so it is equal on every replica and after every restart (DESIGN §3).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The xDS types SMC serves, in make-before-break order: what is referred to comes before what refers to
/// it, except that secrets come first of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceType {
    /// `envoy.extensions.transport_sockets.tls.v3.Secret` (SDS).
    Secret,
    /// `envoy.config.cluster.v3.Cluster` (CDS).
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment` (EDS).
    Endpoint,
    /// `envoy.config.listener.v3.Listener` (LDS).
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration` (RDS).
    Route,
}

impl ResourceType {
    /// Every type, in make-before-break order.
    pub const ALL: [Self; 5] = [Self::Secret, Self::Cluster, Self::Endpoint, Self::Listener, Self::Route];

    /// The type URL that xDS requests and responses carry.
    pub const fn url(self) -> &'static str {
        match self {
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with this URL, if SMC serves it.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.url() == url)
    }

    /// Whether a subscription without names means "all of them" (xDS: only LDS and CDS).
    pub const fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// A short name for logs, metrics and tables.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Secret => "sds",
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
        }
    }
}

/// The version of a resource: the first 128 bits of the SHA-256 of its encoded content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The version of these bytes.
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Self(short)
    }

    /// The version of a whole set of resources: what State-of-the-World responses carry. Depends on the
    /// names and versions alone, so the order must be the table's (sorted by name).
    pub fn of_set<'a>(members: impl Iterator<Item = (&'a str, Version)>) -> Self {
        let mut hasher = Sha256::new();
        for (name, version) in members {
            hasher.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(name.as_bytes());
            hasher.update(version.0);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&hasher.finalize()[..16]);
        Self(short)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a version of ours. A client that claims one holds something we know nothing about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a resource version: expected 32 hexadecimal digits")]
pub struct InvalidVersion;

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        // Only the printed form: lower case, no sign, so that equal versions are equal texts.
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(InvalidVersion);
        }
        u128::from_str_radix(text, 16).map(|n| Self(n.to_be_bytes())).map_err(|_| InvalidVersion)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One encoded resource. Its `Debug` shows no content, since content may hold a private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    /// Which type it is.
    pub kind: ResourceType,
    /// Its name, unique within the type for one proxy.
    pub name: Arc<str>,
    /// The hash of its content.
    pub version: Version,
    /// The encoded `google.protobuf.Any`, as it stands in a State-of-the-World response.
    pub any: Bytes,
    /// The encoded `envoy.service.discovery.v3.Resource` (name, version, Any), as it stands in a Delta
    /// response.
    pub delta: Bytes,
    /// For a cluster that takes its endpoints from EDS: the name of the EDS resource. Envoy holds a new or
    /// changed cluster back until it has been sent that resource after the cluster, even one it holds
    /// already, so whoever sends the cluster must send this next. `None` for everything else.
    pub warms_on: Option<Arc<str>>,
}

/// The part of a `Cluster` that says where its endpoints come from; the rest is skipped over.
#[derive(Clone, PartialEq, Message)]
struct ClusterEndpoints {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "3")]
    eds: Option<EdsConfig>,
}

/// `Cluster.EdsClusterConfig`, likewise.
#[derive(Clone, PartialEq, Message)]
struct EdsConfig {
    #[prost(string, tag = "2")]
    service_name: String,
}

/// The EDS name that an encoded cluster waits for, by Envoy's rule: `service_name`, or the cluster's own.
fn eds_name(kind: ResourceType, content: &[u8]) -> Option<Arc<str>> {
    if kind != ResourceType::Cluster {
        return None;
    }
    let cluster = ClusterEndpoints::decode(content).ok()?;
    let service = cluster.eds?.service_name;
    Some(if service.is_empty() { cluster.name.into() } else { service.into() })
}

impl Resource {
    /// Encodes `message` under `name`. Prost writes fields in order and SMC's translation uses no
    /// protobuf map with more than one key whose order could vary, so equal input gives equal bytes.
    pub fn encode(kind: ResourceType, name: &str, message: &impl Message) -> Self {
        let value = message.encode_to_vec();
        let version = Version::of(&value);
        let warms_on = eds_name(kind, &value);
        let any = Any { type_url: kind.url().to_owned(), value };
        let encoded_any = Bytes::from(any.encode_to_vec());
        let delta = discovery::Resource {
            name: name.to_owned(),
            version: version.to_string(),
            resource: Some(any),
            ..discovery::Resource::default()
        };
        let delta = Bytes::from(delta.encode_to_vec());
        Self { kind, name: name.into(), version, any: encoded_any, delta, warms_on }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{} ({} bytes)", self.kind.short(), self.name, self.version, self.any.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_back_as_printed_and_nothing_else_does() {
        let version = Version::of(b"content");
        let text = version.to_string();
        assert_eq!(text.parse(), Ok(version));
        let upper = text.to_uppercase();
        for bad in ["", "v1", &text[1..], &upper, &format!("+{}", &text[1..]), &format!("{text}0")] {
            assert_eq!(bad.parse::<Version>(), Err(InvalidVersion), "{bad}");
        }
    }
}
