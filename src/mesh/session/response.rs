//! A response and its wire form.
//!
//! Owns the framing of `DiscoveryResponse` and `DeltaDiscoveryResponse`. Does not encode resources: each is
//! encoded once when it is made, and a thousand streams copy the same bytes.

use std::sync::Arc;

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::Variant;
use crate::resource::{Resource, ResourceType};

// Field numbers of envoy/service/discovery/v3/discovery.proto. The first two are the same in both messages.
const VERSION: u32 = 1;
const RESOURCES: u32 = 2;
const TYPE_URL: u32 = 4;
const NONCE: u32 = 5;
const REMOVED: u32 = 6;
/// In `envoy.service.discovery.v3.Resource`.
const RESOURCE_VERSION: u32 = 1;

/// A message to the client. `Debug` shows names and sizes, no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The variant, which decides the message type.
    pub variant: Variant,
    /// The type of all its resources.
    pub kind: ResourceType,
    /// State of the World: the version of the set. Delta: empty, since each resource has its own version.
    pub version: String,
    /// Delta: what follows the hash in the version of every resource ([`crate::revision`]). Often empty.
    pub suffix: String,
    /// The nonce that the client's answer carries: a number that grows by one with every response of
    /// the stream.
    pub nonce: String,
    /// The resources for the client to apply.
    pub resources: Vec<Arc<Resource>>,
    /// The names for the client to drop, or to stop waiting for. Delta only.
    pub removed: Vec<Arc<str>>,
}

impl Response {
    /// Writes the message in the form that prost writes.
    pub fn encode(&self, buffer: &mut impl BufMut) {
        put_string(VERSION, &self.version, buffer);
        for resource in &self.resources {
            encode_key(RESOURCES, WireType::LengthDelimited, buffer);
            encode_varint(self.body_len(resource) as u64, buffer);
            self.put_body(resource, buffer);
        }
        put_string(TYPE_URL, self.kind.url(), buffer);
        put_string(NONCE, &self.nonce, buffer);
        for name in &self.removed {
            put_bytes(REMOVED, name, buffer);
        }
    }

    /// The number of bytes that [`Response::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        let resources: usize = self.resources.iter().map(|r| field_len(RESOURCES, self.body_len(r))).sum();
        let removed: usize = self.removed.iter().map(|name| field_len(REMOVED, name.len())).sum();
        string_len(VERSION, &self.version)
            + resources
            + string_len(TYPE_URL, self.kind.url())
            + string_len(NONCE, &self.nonce)
            + removed
    }

    fn put_body(&self, resource: &Resource, buffer: &mut impl BufMut) {
        match self.variant {
            Variant::Sotw => buffer.put_slice(&resource.any),
            Variant::Delta if self.suffix.is_empty() => buffer.put_slice(&resource.delta),
            Variant::Delta => {
                let (version, rest) = resource.delta_parts();
                encode_key(RESOURCE_VERSION, WireType::LengthDelimited, buffer);
                encode_varint((version.len() + self.suffix.len()) as u64, buffer);
                buffer.put_slice(version);
                buffer.put_slice(self.suffix.as_bytes());
                buffer.put_slice(rest);
            }
        }
    }

    fn body_len(&self, resource: &Resource) -> usize {
        match self.variant {
            Variant::Sotw => resource.any.len(),
            Variant::Delta if self.suffix.is_empty() => resource.delta.len(),
            Variant::Delta => {
                let (version, rest) = resource.delta_parts();
                field_len(RESOURCE_VERSION, version.len() + self.suffix.len()) + rest.len()
            }
        }
    }
}

/// Writes a string field; an empty one is omitted (proto3).
fn put_string(tag: u32, text: &str, buffer: &mut impl BufMut) {
    if !text.is_empty() {
        put_bytes(tag, text, buffer);
    }
}

/// Writes one element of a repeated string field, even if it is empty.
fn put_bytes(tag: u32, text: &str, buffer: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(text.len() as u64, buffer);
    buffer.put_slice(text.as_bytes());
}

fn string_len(tag: u32, text: &str) -> usize {
    if text.is_empty() { 0 } else { field_len(tag, text.len()) }
}

fn field_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}
