//! A response and its wire form.
//!
//! Owns the framing of `DiscoveryResponse` and `DeltaDiscoveryResponse`. Does not encode resources: each is
//! encoded once when it is made, and a thousand streams send the same bytes.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::Variant;
use crate::resource::{Resource, ResourceType, VERSION_LEN};

// Field numbers of envoy/service/discovery/v3/discovery.proto. The first two are the same in both messages.
const VERSION: u32 = 1;
const RESOURCES: u32 = 2;
const TYPE_URL: u32 = 4;
const NONCE: u32 = 5;
const REMOVED: u32 = 6;
/// In `envoy.service.discovery.v3.Resource`.
const RESOURCE_VERSION: u32 = 1;

/// From this length on a resource is a part of its own, which all streams share. A shorter one is cheaper to
/// copy than to send on its own.
const SHARED: usize = 1024;

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
    /// The message in the form that prost writes, behind `head`, in parts. Large resources are not copied.
    pub fn parts(&self, head: &[u8]) -> Vec<Bytes> {
        let mut parts = Parts { done: Vec::new(), open: head.to_vec() };
        put_string(VERSION, &self.version, &mut parts.open);
        for resource in &self.resources {
            encode_key(RESOURCES, WireType::LengthDelimited, &mut parts.open);
            encode_varint(self.body_len(resource) as u64, &mut parts.open);
            self.put_body(resource, &mut parts);
        }
        put_string(TYPE_URL, self.kind.url(), &mut parts.open);
        put_string(NONCE, &self.nonce, &mut parts.open);
        for name in &self.removed {
            put_bytes(REMOVED, name, &mut parts.open);
        }
        parts.end()
    }

    /// Writes the message in the form that prost writes.
    pub fn encode(&self, buffer: &mut impl BufMut) {
        self.parts(&[]).into_iter().for_each(|part| buffer.put(part));
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

    fn put_body(&self, resource: &Resource, parts: &mut Parts) {
        match self.variant {
            Variant::Sotw => parts.put(resource.any()),
            Variant::Delta if self.suffix.is_empty() => parts.put(resource.delta()),
            Variant::Delta => {
                let (version, rest) = resource.delta_parts();
                encode_key(RESOURCE_VERSION, WireType::LengthDelimited, &mut parts.open);
                encode_varint((version.len() + self.suffix.len()) as u64, &mut parts.open);
                parts.open.put_slice(&version);
                parts.open.put_slice(self.suffix.as_bytes());
                parts.put(rest);
            }
        }
    }

    fn body_len(&self, resource: &Resource) -> usize {
        match self.variant {
            Variant::Sotw => resource.any_len(),
            Variant::Delta if self.suffix.is_empty() => resource.delta_len(),
            Variant::Delta => {
                // The version is a field that grows by the suffix.
                let grown = field_len(RESOURCE_VERSION, VERSION_LEN + self.suffix.len());
                resource.delta_len() - field_len(RESOURCE_VERSION, VERSION_LEN) + grown
            }
        }
    }
}

/// A message, as far as it is written.
struct Parts {
    done: Vec<Bytes>,
    /// What follows.
    open: Vec<u8>,
}

impl Parts {
    /// Adds bytes, which are shared if they are many.
    fn put(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED {
            self.open.put(bytes);
        } else {
            self.close();
            self.done.push(bytes);
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open).into());
        }
    }

    fn end(mut self) -> Vec<Bytes> {
        self.close();
        self.done
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
