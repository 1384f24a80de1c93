//! The schema of HTTPRouteGroup.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use smc_model::regex::MAX_LENGTH;

use super::{MAX_HEADERS, MAX_MATCHES, MAX_NAME, METHODS};
use crate::schema::map_or_maps;

/// Named matches of HTTP requests.
#[derive(Debug, JsonSchema)]
pub struct HttpRouteGroupSpec {
    /// The matches. TrafficTargets and TrafficSplits refer to them by name.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Vec<HttpMatch>,
}

/// One match: all that it names must hold, and what it leaves out matches everything.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct HttpMatch {
    /// The name, once in the group.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub name: String,
    /// A regular expression (RE2) for the path, anchored at its start only. It does not see the query.
    #[schemars(length(max = MAX_LENGTH))]
    pub path_regex: Option<String>,
    /// HTTP methods; `*`, or the field left out, means all.
    #[schemars(length(max = METHODS.len() + 1))]
    pub methods: Option<Vec<Method>>,
    /// Header names, each with a regular expression for its value: a list of maps of one header each, or one
    /// map.
    #[schemars(default, schema_with = "headers")]
    pub headers: Option<Value>,
}

/// Both forms, of which a definition can type one alone. A list in its place would have the API server drop
/// the fields of a map that is stored, and a match without headers matches more than its author said.
fn headers(_: &mut SchemaGenerator) -> Schema {
    map_or_maps(MAX_HEADERS, &json!({"type": "string", "maxLength": MAX_LENGTH}))
}

/// An HTTP method.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
pub enum Method {
    /// All methods.
    #[schemars(rename = "*")]
    Any,
    /// `CONNECT`.
    Connect,
    /// `DELETE`.
    Delete,
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// `PATCH`.
    Patch,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `TRACE`.
    Trace,
}
