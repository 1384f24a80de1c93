//! A request, read in place: what the session uses of Envoy's `DiscoveryRequest` and `DeltaDiscoveryRequest`.
//!
//! Owns the decoding of requests and its bounds. Nothing is copied: a request is its bytes on the wire, and
//! where in them the fields lie. The generated messages would hold every field, used or not: an empty
//! `node.extensions` entry takes 2 bytes on the wire and 168 in memory.

mod fields;

use bytes::Bytes;
use smc_types::text::truncated;
use thiserror::Error;

use self::fields::{Fields, Malformed, Span, Value};
use super::Variant;
use super::limits::{MAX_NAMES, NAME_OVERHEAD, Total};

/// The most fields that a request may have, at every depth that is read: the names of three full lists, one
/// of which takes three fields for each name, and far more beside them than Envoy sends. Reading as
/// many takes about three milliseconds.
const MAX_FIELDS: usize = 5 * MAX_NAMES + (16 << 10);

/// How much of a user agent is shown, in characters.
const MAX_USER_AGENT: usize = 1024;

/// The bytes are not a request that this server reads. The stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// They are no protobuf.
    #[error("the bytes are no protobuf message")]
    Malformed,
    /// A field has another type than the message says.
    #[error("field {0} has the wrong type")]
    WrongType(u32),
    /// A string is not UTF-8.
    #[error("field {0} is not UTF-8")]
    NotText(u32),
    /// More fields than a request of full lists has.
    #[error("it has more than {MAX_FIELDS} fields")]
    TooManyFields,
}

impl From<Malformed> for RequestError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// A list of names in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameList {
    /// Delta: the names and versions that the client holds (`initial_resource_versions`).
    Held,
    /// The names that it subscribes to; in State of the World all of them.
    Subscribed,
    /// Delta: the names that it unsubscribes from.
    Unsubscribed,
}

/// A request of either variant. Cheap to clone; holds the bytes that it was read from and nothing more.
#[derive(Clone)]
pub struct Request {
    variant: Variant,
    encoded: Bytes,
    node: Option<NodeSpans>,
    type_url: Span,
    version: Span,
    nonce: Span,
    /// The message of `error_detail`.
    error: Option<Span>,
    held: Total,
    subscribed: Total,
    unsubscribed: Total,
}

#[derive(Debug, Clone, Copy, Default)]
struct NodeSpans {
    id: Span,
    agent: Span,
    version: AgentVersion,
}

#[derive(Debug, Clone, Copy)]
enum AgentVersion {
    Text(Span),
    Numbers([u64; 3]),
}

impl Default for AgentVersion {
    fn default() -> Self {
        Self::Text(Span::default())
    }
}

/// The sender, as it states itself.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    request: &'a Request,
    spans: NodeSpans,
}

/// A field of a request that the session uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Node,
    TypeUrl,
    Version,
    Nonce,
    Error,
    Names(NameList),
}

impl Field {
    /// The field with this number in envoy/service/discovery/v3/discovery.proto.
    const fn of(variant: Variant, number: u32) -> Option<Self> {
        Some(match (variant, number) {
            (Variant::Sotw, 1) => Self::Version,
            (Variant::Sotw, 2) | (Variant::Delta, 1) => Self::Node,
            (_, 3) => Self::Names(NameList::Subscribed),
            (Variant::Sotw, 4) | (Variant::Delta, 2) => Self::TypeUrl,
            (Variant::Sotw, 5) | (Variant::Delta, 6) => Self::Nonce,
            (Variant::Sotw, 6) | (Variant::Delta, 7) => Self::Error,
            (Variant::Delta, 4) => Self::Names(NameList::Unsubscribed),
            (Variant::Delta, 5) => Self::Names(NameList::Held),
            _ => return None,
        })
    }
}

impl Request {
    /// Reads a request. Time and memory are bounded by the number of bytes and [`MAX_FIELDS`]; what it
    /// names is checked against the bounds of a session when the session gets it.
    pub fn decode(variant: Variant, encoded: Bytes) -> Result<Self, RequestError> {
        let none = Span::default();
        let (type_url, version, nonce) = (none, none, none);
        let (held, subscribed, unsubscribed) = (Total::default(), Total::default(), Total::default());
        let mut request = Self {
            variant,
            encoded,
            node: None,
            type_url,
            version,
            nonce,
            error: None,
            held,
            subscribed,
            unsubscribed,
        };
        let mut left = MAX_FIELDS;
        let encoded = request.encoded.clone();
        let mut fields = Fields::all(&encoded);
        while let Some((number, value)) = next(&mut fields, &mut left)? {
            let Some(field) = Field::of(variant, number) else { continue };
            let value = length_delimited(number, value)?;
            match field {
                Field::Node => {
                    let node = request.node.unwrap_or_default();
                    request.node = Some(read_node(&encoded, value, node, &mut left)?);
                }
                Field::TypeUrl => request.type_url = text(&encoded, number, value)?,
                Field::Version => request.version = text(&encoded, number, value)?,
                Field::Nonce => request.nonce = text(&encoded, number, value)?,
                Field::Error => {
                    let before = request.error.unwrap_or_default();
                    request.error = Some(read_error(&encoded, value, before, &mut left)?);
                }
                Field::Names(list) => {
                    let name = match list {
                        NameList::Held => read_entry(&encoded, value, &mut left)?.0,
                        _ => text(&encoded, number, value)?,
                    };
                    request.count(list, name);
                }
            }
        }
        Ok(request)
    }

    fn count(&mut self, list: NameList, name: Span) {
        let name = &self.encoded[name.range()];
        let (length, wildcard) = (name.len(), name == b"*");
        let total = match list {
            NameList::Held => &mut self.held,
            NameList::Subscribed => &mut self.subscribed,
            NameList::Unsubscribed => &mut self.unsubscribed,
        };
        total.count += 1;
        total.bytes += length + NAME_OVERHEAD;
        total.longest = total.longest.max(length);
        total.wildcard |= wildcard;
    }

    /// The variant.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        self.encoded.len()
    }

    /// The sender; Envoy states it in the first request only.
    pub fn node(&self) -> Option<Node<'_>> {
        self.node.map(|spans| Node { request: self, spans })
    }

    pub(super) fn type_url(&self) -> &str {
        self.text(self.type_url)
    }

    /// State of the World: the version of the set that the client holds. Empty in Delta.
    pub(super) fn version_info(&self) -> &str {
        self.text(self.version)
    }

    pub(super) fn response_nonce(&self) -> &str {
        self.text(self.nonce)
    }

    /// The client's error message, if this is a NACK.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.map(|message| self.text(message))
    }

    pub(super) fn total(&self, list: NameList) -> Total {
        match list {
            NameList::Held => self.held,
            NameList::Subscribed => self.subscribed,
            NameList::Unsubscribed => self.unsubscribed,
        }
    }

    /// The names in a list, each with its version if the list has versions, beginning at a byte of the
    /// request: 0, or [`Names::position`].
    pub(super) fn names(&self, list: NameList, from: usize) -> Names<'_> {
        Names { request: self, fields: Fields::from(&self.encoded, from), list }
    }

    fn text(&self, span: Span) -> &str {
        // Checked when it was read.
        std::str::from_utf8(&self.encoded[span.range()]).unwrap_or_default()
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("variant", &self.variant)
            .field("bytes", &self.encoded.len())
            .field("type_url", &self.type_url())
            .finish_non_exhaustive()
    }
}

impl Node<'_> {
    /// `node.id`.
    pub fn id(&self) -> &str {
        self.request.text(self.spans.id)
    }

    /// Envoy's name and version, cut to 1,024 characters.
    pub fn user_agent(&self) -> String {
        let name = truncated(self.request.text(self.spans.agent), MAX_USER_AGENT);
        let version = match self.spans.version {
            AgentVersion::Text(text) => truncated(self.request.text(text), MAX_USER_AGENT),
            AgentVersion::Numbers([major, minor, patch]) => format!("{major}.{minor}.{patch}"),
        };
        truncated(&format!("{name} {version}"), MAX_USER_AGENT)
    }
}

/// The names of one list.
#[derive(Debug)]
pub(super) struct Names<'a> {
    request: &'a Request,
    fields: Fields<'a>,
    list: NameList,
}

impl Names<'_> {
    /// Where the next name begins.
    pub(super) fn position(&self) -> usize {
        self.fields.position()
    }
}

impl<'a> Iterator for Names<'a> {
    /// A name and its version.
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        // All of it was read before, so no error comes.
        while let Ok(Some((number, value))) = self.fields.next() {
            if Field::of(self.request.variant, number) != Some(Field::Names(self.list)) {
                continue;
            }
            let Value::Bytes(value) = value else { continue };
            if self.list != NameList::Held {
                return Some((self.request.text(value), ""));
            }
            let mut left = MAX_FIELDS;
            let (name, version) = read_entry(&self.request.encoded, value, &mut left).ok()?;
            return Some((self.request.text(name), self.request.text(version)));
        }
        None
    }
}

/// The next field, counted.
fn next(fields: &mut Fields<'_>, left: &mut usize) -> Result<Option<(u32, Value)>, RequestError> {
    let next = fields.next()?;
    if next.is_some() {
        *left = left.checked_sub(1).ok_or(RequestError::TooManyFields)?;
    }
    Ok(next)
}

fn length_delimited(number: u32, value: Value) -> Result<Span, RequestError> {
    match value {
        Value::Bytes(span) => Ok(span),
        Value::Number(_) => Err(RequestError::WrongType(number)),
    }
}

fn text(encoded: &[u8], number: u32, span: Span) -> Result<Span, RequestError> {
    std::str::from_utf8(&encoded[span.range()]).map_err(|_| RequestError::NotText(number))?;
    Ok(span)
}

/// The name and version of an entry of `initial_resource_versions`.
fn read_entry(encoded: &[u8], entry: Span, left: &mut usize) -> Result<(Span, Span), RequestError> {
    let (mut name, mut version) = (Span::default(), Span::default());
    let mut fields = Fields::within(encoded, entry);
    while let Some((number, value)) = next(&mut fields, left)? {
        match number {
            1 => name = text(encoded, number, length_delimited(number, value)?)?,
            2 => version = text(encoded, number, length_delimited(number, value)?)?,
            _ => {}
        }
    }
    Ok((name, version))
}

/// The message of a `google.rpc.Status`.
fn read_error(
    encoded: &[u8],
    status: Span,
    mut message: Span,
    left: &mut usize,
) -> Result<Span, RequestError> {
    let mut fields = Fields::within(encoded, status);
    while let Some((number, value)) = next(&mut fields, left)? {
        if number == 2 {
            message = text(encoded, number, length_delimited(number, value)?)?;
        }
    }
    Ok(message)
}

/// What is used of an envoy/config/core/v3 `Node`.
fn read_node(
    encoded: &[u8],
    node: Span,
    mut read: NodeSpans,
    left: &mut usize,
) -> Result<NodeSpans, RequestError> {
    let mut fields = Fields::within(encoded, node);
    while let Some((number, value)) = next(&mut fields, left)? {
        let value = || length_delimited(number, value);
        match number {
            1 => read.id = text(encoded, number, value()?)?,
            6 => read.agent = text(encoded, number, value()?)?,
            7 => read.version = AgentVersion::Text(text(encoded, number, value()?)?),
            8 => read.version = AgentVersion::Numbers(read_build(encoded, value()?, left)?),
            _ => {}
        }
    }
    Ok(read)
}

/// The numbers of a `BuildVersion`: its `SemanticVersion`.
fn read_build(encoded: &[u8], build: Span, left: &mut usize) -> Result<[u64; 3], RequestError> {
    let mut numbers = [0; 3];
    let mut fields = Fields::within(encoded, build);
    while let Some((number, value)) = next(&mut fields, left)? {
        if number != 1 {
            continue;
        }
        let mut inner = Fields::within(encoded, length_delimited(number, value)?);
        while let Some((number, value)) = next(&mut inner, left)? {
            if let (1..=3, Value::Number(value)) = (number, value) {
                numbers[number as usize - 1] = value;
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests;
