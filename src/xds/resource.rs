//! One xDS resource in its wire form: encoded once, hashed once, shared by every stream.
//!
//! Owns the encoding and the version. The version is the hash of the encoded content and of nothing
//! else, so it is equal on every replica and after every restart (docs/design/xds.md).

mod content;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use prost::{Message, length_delimiter_len};
use prost_types::Any;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smc_types::object_ref::ObjectRef;
use thiserror::Error;

use content::Content;

use crate::names::EXTERNAL_AUTHORIZATION;

/// The xDS types that SMC serves, in make-before-break order: a resource comes before those that
/// refer to it, and secrets come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceType {
    /// `envoy.extensions.transport_sockets.tls.v3.Secret` (SDS).
    Secret,
    /// `envoy.config.cluster.v3.Cluster` (CDS).
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment` (EDS).
    Endpoint,
    /// `envoy.config.core.v3.TypedExtensionConfig` (ECDS): a filter's configuration.
    ExtensionConfig,
    /// `envoy.config.listener.v3.Listener` (LDS).
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration` (RDS).
    Route,
}

impl ResourceType {
    /// Every type, in make-before-break order.
    pub const ALL: [Self; 6] =
        [Self::Secret, Self::Cluster, Self::Endpoint, Self::ExtensionConfig, Self::Listener, Self::Route];

    /// The type URL in xDS requests and responses.
    pub const fn url(self) -> &'static str {
        match self {
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::ExtensionConfig => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with this URL, if SMC serves it.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.url() == url)
    }

    /// Whether a subscription without names means all resources of the type (xDS: only LDS and CDS).
    pub const fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Whether a client goes on with a resource that is gone for as long as it refers to it, and gets no
    /// removal. Envoy's listeners refer to the configuration of a filter until the last of their connections
    /// from before a change is drained; without it, they answer 500. One such filter asks the server of a
    /// cluster, without which it denies; that one stays until the client ends. A client of State of the World
    /// drops what a set omits, so that it has no such cluster then.
    pub fn outlasts_its_removal(self, name: &str) -> bool {
        match self {
            Self::ExtensionConfig => true,
            Self::Cluster => name == EXTERNAL_AUTHORIZATION,
            Self::Secret | Self::Endpoint | Self::Listener | Self::Route => false,
        }
    }

    /// A short name for logs, metrics and tables.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Secret => "sds",
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::ExtensionConfig => "ecds",
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

    /// The version of a set of resources, for State-of-the-World responses. The members must be
    /// sorted by name.
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
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// A text that is not a version of SMC's. A client that sends one holds content that SMC does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a resource version: expected 32 hexadecimal digits")]
pub struct InvalidVersion;

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        // Lower case only, so that equal versions are equal texts.
        let mut bytes = [0; 16];
        if HEXLOWER.decode_len(text.len()) != Ok(bytes.len()) {
            return Err(InvalidVersion);
        }
        HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).map_err(|_| InvalidVersion)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The length of a version as text.
pub(crate) const VERSION_LEN: usize = 32;

/// The length of the first field of a Delta resource, which is the version: a key and a length of one byte
/// each, and the text.
const VERSION_FIELD_LEN: usize = 2 + VERSION_LEN;

/// `envoy.service.discovery.v3.Resource`, by the fields that SMC sends.
#[derive(Clone, PartialEq, Message)]
struct DeltaResource {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, optional, tag = "2")]
    resource: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

/// One encoded resource. Its `Debug` shows no content, because content can hold a private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its type.
    pub kind: ResourceType,
    /// Its name, unique within the type for one proxy.
    pub name: Arc<str>,
    /// The hash of its content.
    pub version: Version,
    /// The encoded `envoy.service.discovery.v3.Resource` (name, version, Any).
    content: Content,
    /// For a cluster that takes its endpoints from EDS: the name of the EDS resource. Envoy does
    /// not use a new or changed cluster until it receives that resource after the cluster, even one
    /// that it holds already, so the session must send it next. `None` for all other resources.
    pub warms_on: Option<Arc<str>>,
    /// The mesh objects that it is made of, sorted, without duplicates. Not part of the content or
    /// the version.
    pub made_of: Arc<[ObjectRef]>,
}

impl Resource {
    /// Encodes `message` under `name`. Equal messages give equal bytes: prost writes fields in order, and the
    /// translation makes no hash map with more than one key.
    pub fn encode(kind: ResourceType, name: &str, message: &impl Message) -> Self {
        let value = message.encode_to_vec();
        let version = Version::of(&value);
        let any = Any { type_url: kind.url().to_owned(), value };
        let delta =
            DeltaResource { version: version.to_string(), resource: Some(any), name: name.to_owned() };
        let content = Content::Plain(delta.encode_to_vec().into());
        Self { kind, name: name.into(), version, content, warms_on: None, made_of: Arc::default() }
    }

    /// The same resource, compressed in memory if that saves much and the resource holds no key.
    #[must_use]
    pub fn packed(self) -> Self {
        let content = match self.kind {
            // A private key is not copied more often than it must be.
            ResourceType::Secret => self.content,
            _ => self.content.packed(),
        };
        Self { content, ..self }
    }

    /// The encoded `envoy.service.discovery.v3.Resource` (name, version, Any), as in a Delta response.
    pub fn delta(&self) -> Bytes {
        self.content.bytes()
    }

    /// The length of [`Resource::delta`].
    pub fn delta_len(&self) -> usize {
        self.content.len()
    }

    /// The encoded `google.protobuf.Any`, as in a State-of-the-World response.
    pub fn any(&self) -> Bytes {
        let (delta, length) = (self.delta(), self.any_len());
        let end = delta.len() - self.name_field_len();
        // The key and the length are in front of it.
        delta.slice(end - length..end)
    }

    /// The length of [`Resource::any`].
    pub fn any_len(&self) -> usize {
        let field = self.content.len() - VERSION_FIELD_LEN - self.name_field_len();
        // The field is a key of one byte, the length of the Any in up to five bytes, and the Any.
        (1..=5)
            .map(|digits| field.saturating_sub(1 + digits))
            .find(|&length| 1 + length_delimiter_len(length) + length == field)
            .unwrap_or_default()
    }

    /// The name is the last field (3) of a Delta resource: its key of one byte, its length, its bytes. prost
    /// leaves out an empty name.
    fn name_field_len(&self) -> usize {
        let length = self.name.len();
        if length == 0 { 0 } else { 1 + length_delimiter_len(length) + length }
    }

    /// The text of the version in [`Resource::delta`], and what follows it there.
    pub(crate) fn delta_parts(&self) -> (Bytes, Bytes) {
        let delta = self.delta();
        // In front of the text are a key and a length of one byte each.
        (delta.slice(VERSION_FIELD_LEN - VERSION_LEN..VERSION_FIELD_LEN), delta.slice(VERSION_FIELD_LEN..))
    }

    /// The same cluster, which takes its endpoints from the EDS resource `endpoints`. That is its
    /// `eds_cluster_config.service_name`, or the cluster's own name where that is empty.
    #[must_use]
    pub fn warming_on(self, endpoints: &str) -> Self {
        Self { warms_on: Some(endpoints.into()), ..self }
    }

    /// The same resource, made of these objects.
    #[must_use]
    pub fn made_of(self, objects: Arc<[ObjectRef]>) -> Self {
        Self { made_of: objects, ..self }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{} ({} bytes)", self.kind.short(), self.name, self.version, self.any_len())
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3 as discovery;
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    #[test]
    fn both_encodings_hold_the_same_any() {
        for name in ["", "web", &"n".repeat(127), &"n".repeat(128), &"n".repeat(20_000)] {
            for text in ["", "content", &"c".repeat(20_000)] {
                let plain = Resource::encode(ResourceType::Cluster, name, &text.to_owned());
                for resource in [plain.clone().packed(), plain] {
                    let any = Any::decode(&*resource.any()).unwrap();
                    assert_eq!(any.type_url, ResourceType::Cluster.url());
                    assert_eq!(String::decode(&*any.value).unwrap(), text);
                    assert_eq!(
                        (resource.any().len(), resource.delta().len()),
                        (resource.any_len(), resource.delta_len())
                    );
                    let delta = discovery::Resource::decode(&*resource.delta()).unwrap();
                    assert_eq!((delta.name.as_str(), delta.resource), (name, Some(any)));
                    assert_eq!(resource.delta_parts().0, resource.version.to_string());
                }
            }
        }
    }

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
