//! The schema of limits of rates that a rate limit service counts, of OSM after 1.2.
//!
//! Owns the types that keep what they hold bounded. Nothing reads these fields.

use schemars::JsonSchema;

use super::{MAX_HEADERS, MAX_SETTINGS};

/// The longest text: a value of a header.
const MAX_TEXT: usize = 4096;

/// Limits of connections and requests.
#[derive(Debug, JsonSchema)]
pub struct RateLimit {
    /// Of connections.
    pub tcp: Option<TcpRate>,
    /// Of requests.
    pub http: Option<HttpRate>,
}

/// A limit for some requests.
#[derive(Debug, JsonSchema)]
pub struct RouteRateLimit {
    /// What is counted.
    #[schemars(length(max = MAX_SETTINGS))]
    pub descriptors: Option<Vec<HttpDescriptor>>,
}

/// A rate limit service.
#[derive(Debug, JsonSchema)]
pub struct Service {
    /// Its host name.
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// Its port.
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<u16>,
}

/// A limit of connections.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TcpRate {
    /// Who counts.
    pub rate_limit_service: Option<Service>,
    /// The domain of the limits.
    #[schemars(length(max = MAX_TEXT))]
    pub domain: Option<String>,
    /// What is counted.
    #[schemars(length(max = MAX_SETTINGS))]
    pub descriptors: Option<Vec<TcpDescriptor>>,
    /// How long the service may take, as a duration.
    #[schemars(length(max = 253))]
    pub timeout: Option<String>,
    /// Whether nothing passes without an answer.
    pub failure_mode_deny: Option<bool>,
    /// Whether all passes without an answer.
    pub fail_open: Option<bool>,
}

/// What is counted of connections.
#[derive(Debug, JsonSchema)]
pub struct TcpDescriptor {
    /// The parts of which a counter is made.
    #[schemars(length(max = MAX_HEADERS))]
    pub entries: Option<Vec<TcpEntry>>,
}

/// A part.
#[derive(Debug, JsonSchema)]
pub struct TcpEntry {
    /// Its key.
    #[schemars(length(max = MAX_TEXT))]
    pub key: Option<String>,
    /// Its value.
    #[schemars(length(max = MAX_TEXT))]
    pub value: Option<String>,
}

/// A limit of requests.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct HttpRate {
    /// Who counts.
    pub rate_limit_service: Option<Service>,
    /// The domain of the limits.
    #[schemars(length(max = MAX_TEXT))]
    pub domain: Option<String>,
    /// What is counted.
    #[schemars(length(max = MAX_SETTINGS))]
    pub descriptors: Option<Vec<HttpDescriptor>>,
    /// How long the service may take, as a duration.
    #[schemars(length(max = 253))]
    pub timeout: Option<String>,
    /// Whether nothing passes without an answer.
    pub failure_mode_deny: Option<bool>,
    /// Whether all passes without an answer.
    pub fail_open: Option<bool>,
    /// Whether answers say how much is left.
    #[schemars(rename = "enableXRateLimitHeaders")]
    pub enable_x_rate_limit_headers: Option<bool>,
    /// The status of a request above the limit.
    #[schemars(range(min = 0, max = 599))]
    pub response_status_code: Option<u32>,
}

/// What is counted of requests.
#[derive(Debug, JsonSchema)]
pub struct HttpDescriptor {
    /// The parts of which a counter is made.
    #[schemars(length(max = MAX_HEADERS))]
    pub entries: Option<Vec<HttpEntry>>,
}

/// A part: one of these.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct HttpEntry {
    /// The same for all.
    pub generic_key: Option<GenericKey>,
    /// The caller's address.
    pub remote_address: Option<RemoteAddress>,
    /// The value of a header.
    pub request_header: Option<RequestHeader>,
    /// Whether headers have some values.
    pub header_value_match: Option<HeaderValueMatch>,
}

/// The same for all.
#[derive(Debug, JsonSchema)]
pub struct GenericKey {
    /// Its value.
    #[schemars(length(max = MAX_TEXT))]
    pub value: Option<String>,
    /// Its key.
    #[schemars(length(max = MAX_TEXT))]
    pub key: Option<String>,
}

/// The caller's address.
#[derive(Debug, JsonSchema)]
pub struct RemoteAddress {}

/// The value of a header.
#[derive(Debug, JsonSchema)]
pub struct RequestHeader {
    /// The header.
    #[schemars(length(max = MAX_TEXT))]
    pub name: Option<String>,
    /// The key of the part.
    #[schemars(length(max = MAX_TEXT))]
    pub key: Option<String>,
}

/// Whether headers have some values.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct HeaderValueMatch {
    /// The value of the part.
    #[schemars(length(max = MAX_TEXT))]
    pub value: Option<String>,
    /// The headers.
    #[schemars(length(max = MAX_HEADERS))]
    pub headers: Option<Vec<HeaderMatcher>>,
    /// The key of the part.
    #[schemars(length(max = MAX_TEXT))]
    pub key: Option<String>,
    /// Whether they must, or must not.
    pub expect_match: Option<bool>,
}

/// What a header must be: one of these.
#[derive(Debug, JsonSchema)]
pub struct HeaderMatcher {
    /// The header.
    #[schemars(length(max = MAX_TEXT))]
    pub name: Option<String>,
    /// Its value.
    #[schemars(length(max = MAX_TEXT))]
    pub exact: Option<String>,
    /// How its value begins.
    #[schemars(length(max = MAX_TEXT))]
    pub prefix: Option<String>,
    /// How its value ends.
    #[schemars(length(max = MAX_TEXT))]
    pub suffix: Option<String>,
    /// A regular expression for its value.
    #[schemars(length(max = MAX_TEXT))]
    pub regex: Option<String>,
    /// A part of its value.
    #[schemars(length(max = MAX_TEXT))]
    pub contains: Option<String>,
    /// Whether it is there.
    pub present: Option<bool>,
}
