//! `specs.smi-spec.io/v1alpha4` HTTPRouteGroup: named matches on path, method and headers.
//!
//! Owns its fields. A match of which any part cannot be read is left out whole: without that part it would
//! match more than its author said.
//!
//! Reading computes no complements of header expressions, since many ask what an object says and few need
//! them. [`HttpRouteGroup::complete`] does, within a budget.

mod completed;
pub mod schema;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::regex::{HeaderPattern, InvalidPattern, Pattern};
use smc_types::header_name::is_header_name;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

pub use self::completed::{Completed, MAX_STEPS};
use crate::kind::{CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node, mismatch};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::HttpRouteGroupSpec>, schema_of::<schema::HttpRouteGroupSpec>],
    example: |_| json!({"matches": [{"name": "all"}]}),
    read: |object| effective(read_http_route_group(object.id, object.spec), Object::HttpRouteGroup),
    short_name: Some("htr"),
    category: "smi",
    ..CustomKind::new(Kind::HttpRouteGroup)
};

/// The most matches of a group and headers of a match. They bound what one object can make Envoy try for
/// each request.
const MAX_MATCHES: usize = 256;
const MAX_HEADERS: usize = 32;
/// The longest name of a match or a header, in bytes.
const MAX_NAME: usize = 253;
/// The methods of the published CRD, besides `*`.
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// A group of named HTTP matches, as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRouteGroup<Header = Pattern> {
    /// The name of the object.
    pub id: NamespacedName,
    /// The matches by name.
    pub matches: BTreeMap<String, HttpMatch<Header>>,
}

/// A group of which the matches can be used: it has the complements of their headers' expressions.
pub type RouteGroup = HttpRouteGroup<HeaderPattern>;

/// Reads the `spec` of an HTTPRouteGroup.
pub fn read_http_route_group(id: NamespacedName, spec: Value) -> Reading<HttpRouteGroup> {
    let mut findings = Findings::new(Kind::HttpRouteGroup, id.clone());
    let group = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(group)
}

fn read(id: NamespacedName, spec: Node, findings: &mut Findings) -> Option<HttpRouteGroup> {
    let mut spec = spec.object(findings)?;
    let nodes = spec.require("matches", findings).and_then(|node| node.list(MAX_MATCHES, findings));
    let path = spec.path("matches");
    spec.finish(findings);
    let nodes = nodes?;
    if nodes.is_empty() {
        findings.warning(&path, "is empty; the group matches nothing");
    }
    let mut matches = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for node in nodes {
        let path = node.path.clone();
        let Some((name, route)) = read_match(node, findings) else { continue };
        if !seen.insert(name.clone()) {
            // A reference to that name is ambiguous, so it means neither.
            findings.error(&format!("{path}.name"), format!("is {name:?} again; both matches are left out"));
            matches.remove(&name);
        } else if let Some(route) = route {
            matches.insert(name, route);
        }
    }
    Some(HttpRouteGroup { id, matches })
}

/// Reads one match: its name, and what it matches unless a part of that cannot be read.
fn read_match(node: Node, findings: &mut Findings) -> Option<(String, Option<HttpMatch<Pattern>>)> {
    let mut fields = node.object(findings)?;
    let name_path = fields.path("name");
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let path = read_path(&mut fields, findings);
    let methods = match fields.take("methods") {
        Some(node) => read_methods(node, findings),
        None => Some(MethodSet::Any),
    };
    let headers = match fields.take("headers") {
        Some(node) => read_headers(node, findings),
        None => Some(BTreeMap::new()),
    };
    fields.finish(findings);
    let name = name?;
    if name.is_empty() || name.len() > MAX_NAME {
        findings.error(&name_path, format!("must have 1 to {MAX_NAME} bytes; the match is left out"));
        return None;
    }
    let route = || Some(HttpMatch { path: path.ok()?, methods: methods?, headers: headers? });
    Some((name, route()))
}

/// The empty expression says as little as an absent one: both are `None`.
fn read_path(fields: &mut Fields, findings: &mut Findings) -> Result<Option<Pattern>, Unreadable> {
    let Some(node) = fields.take("pathRegex") else { return Ok(None) };
    let path = node.path.clone();
    let text = node.text(findings).ok_or(Unreadable)?;
    if text.is_empty() {
        return Ok(None);
    }
    usable(&path, Pattern::prefix(&text), findings).map(Some).ok_or(Unreadable)
}

/// A part that is there and cannot be read, which has been reported.
struct Unreadable;

fn usable<T>(path: &str, pattern: Result<T, InvalidPattern>, findings: &mut Findings) -> Option<T> {
    pattern.map_err(|error| findings.error(path, format!("{error}; the match is left out"))).ok()
}

fn read_methods(node: Node, findings: &mut Findings) -> Option<MethodSet> {
    let path = node.path.clone();
    let nodes = node.list(METHODS.len() + 1, findings)?;
    let mut methods = BTreeSet::new();
    let mut any = false;
    for node in nodes {
        let path = node.path.clone();
        match node.text(findings).as_deref() {
            Some("*") => any = true,
            Some(method) if METHODS.contains(&method) => {
                methods.insert(method.to_owned());
            }
            Some(method) => {
                let method = truncated(method, 40);
                findings.error(&path, format!("is {method:?}, which is none of * {}", METHODS.join(" ")));
            }
            None => {}
        }
    }
    if any {
        return Some(MethodSet::Any);
    }
    if methods.is_empty() {
        findings.error(&path, "names no method, so the match is left out; leave the field out to mean all");
        return None;
    }
    Some(MethodSet::Only(methods))
}

/// Headers come as a list of one-key maps (the published CRD) or as one map (the prose); both are read.
/// `None` if any of them cannot be.
fn read_headers(node: Node, findings: &mut Findings) -> Option<BTreeMap<String, Pattern>> {
    let nodes = match &node.value {
        // A definition that knows lists alone has the API server drop the fields of a map that is stored.
        Value::Object(fields) if fields.is_empty() => {
            let message = "names no header, so the match is left out; leave the field out to mean all";
            findings.error(&node.path, message);
            return None;
        }
        Value::Object(_) => vec![node],
        Value::Array(_) => node.list(MAX_HEADERS, findings)?,
        other => return mismatch(findings, &node.path, "a list of maps, or a map", other),
    };
    let mut headers = Some(BTreeMap::new());
    for node in nodes {
        let Some(fields) = node.object(findings) else {
            headers = None;
            continue;
        };
        for (name, node) in fields.rest() {
            let path = node.path.clone();
            let pattern = node.text(findings).and_then(|text| usable(&path, Pattern::whole(&text), findings));
            let name = read_header_name(&path, &name, findings);
            let (Some(all), Some(name), Some(pattern)) = (&mut headers, name, pattern) else {
                headers = None;
                continue;
            };
            if all.len() == MAX_HEADERS {
                findings.error(&path, format!("is one header too many; {MAX_HEADERS} is the most"));
                return None;
            }
            if all.insert(name, pattern).is_some() {
                findings.error(&path, "names a header a second time; the match is left out");
                headers = None;
            }
        }
    }
    headers
}

/// A field name of HTTP (RFC 9110 §5.1), made lower case since Envoy sees it so.
fn read_header_name(path: &str, name: &str, findings: &mut Findings) -> Option<String> {
    if name.len() > MAX_NAME || !is_header_name(name) {
        findings.error(path, "is no header name; the match is left out");
        return None;
    }
    Some(name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn read(matches: &Value) -> Reading<HttpRouteGroup> {
        read_http_route_group("shop/routes".parse().unwrap(), json!({"matches": matches}))
    }

    fn only(matches: &Value) -> HttpMatch<Pattern> {
        let reading = read(matches);
        assert_eq!(reading.problems, []);
        reading.object.unwrap().matches.into_values().next().unwrap()
    }

    #[test]
    fn what_a_match_leaves_out_matches_everything() {
        let route = only(&json!([{"name": "all"}]));
        assert_eq!(route, HttpMatch { path: None, methods: MethodSet::Any, headers: BTreeMap::new() });
        assert_eq!(only(&json!([{"name": "all", "pathRegex": ""}])).path, None);
    }

    #[test]
    fn the_path_expression_is_given_the_form_of_a_full_match() {
        let route = only(&json!([{"name": "api", "pathRegex": "/api|/v1"}]));
        assert_eq!(route.path.unwrap().as_str(), "(?:/api|/v1).*");
    }

    #[test]
    fn a_star_among_the_methods_means_all() {
        assert_eq!(only(&json!([{"name": "m", "methods": ["GET", "*"]}])).methods, MethodSet::Any);
        let get = MethodSet::Only(BTreeSet::from(["GET".to_owned()]));
        assert_eq!(only(&json!([{"name": "m", "methods": ["GET"]}])).methods, get);
    }

    #[test]
    fn headers_are_read_as_a_list_of_maps_and_as_a_map() {
        let list = only(&json!([{"name": "h", "headers": [{"Client-App": "buyer"}, {"user-agent": ".*"}]}]));
        let map = only(&json!([{"name": "h", "headers": {"client-app": "buyer", "User-Agent": ".*"}}]));
        assert_eq!(list, map);
        assert_eq!(list.headers.keys().collect::<Vec<_>>(), ["client-app", "user-agent"]);
    }

    #[test]
    fn a_match_of_which_a_part_cannot_be_read_is_left_out_whole() {
        for (bad, field) in [
            (json!({"name": "b", "pathRegex": "("}), "spec.matches[1].pathRegex"),
            (json!({"name": "b", "pathRegex": null}), "spec.matches[1].pathRegex"),
            (json!({"name": "b", "pathRegex": "a".repeat(2000)}), "spec.matches[1].pathRegex"),
            (json!({"name": "b", "methods": []}), "spec.matches[1].methods"),
            (json!({"name": "b", "methods": "GET"}), "spec.matches[1].methods"),
            (json!({"name": "b", "methods": ["FETCH"]}), "spec.matches[1].methods[0]"),
            (json!({"name": "b", "headers": [{"a": "["}]}), "spec.matches[1].headers[0].a"),
            (json!({"name": "b", "headers": {"a": 1}}), "spec.matches[1].headers.a"),
            (json!({"name": "b", "headers": {"a b": "x"}}), "spec.matches[1].headers.a b"),
            (json!({"name": "b", "headers": {":path": "x"}}), "spec.matches[1].headers.:path"),
            (json!({"name": "b", "headers": [{"a": "x"}, {"A": "y"}]}), "spec.matches[1].headers[1].A"),
            (json!({"name": "b", "headers": ["a"]}), "spec.matches[1].headers[0]"),
            (json!({"name": "b", "headers": "a"}), "spec.matches[1].headers"),
            (json!({"name": "b", "headers": {}}), "spec.matches[1].headers"),
            (json!({"pathRegex": "/b"}), "spec.matches[1].name"),
            (json!({"name": ""}), "spec.matches[1].name"),
            (json!(3), "spec.matches[1]"),
        ] {
            let reading = read(&json!([{"name": "a"}, bad]));
            let names: Vec<_> = reading.object.unwrap().matches.into_keys().collect();
            assert_eq!(names, ["a"], "{bad}");
            assert_eq!(reading.problems[0].field, field, "{bad}");
        }
    }

    #[test]
    fn an_unknown_method_beside_a_known_one_narrows_the_match() {
        let reading = read(&json!([{"name": "m", "methods": ["GET", "FETCH"]}]));
        let get = MethodSet::Only(BTreeSet::from(["GET".to_owned()]));
        assert_eq!(reading.object.unwrap().matches["m"].methods, get);
        assert_eq!(reading.problems[0].field, "spec.matches[0].methods[1]");
    }

    #[test]
    fn of_two_matches_with_one_name_neither_counts() {
        let reading =
            read(&json!([{"name": "a"}, {"name": "b"}, {"name": "a", "pathRegex": "/x"}, {"name": "a"}]));
        assert_eq!(reading.object.unwrap().matches.into_keys().collect::<Vec<_>>(), ["b"]);
        let fields: Vec<_> = reading.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["spec.matches[2].name", "spec.matches[3].name"]);
    }

    #[test]
    fn a_group_without_matches_is_reported_and_one_too_large_is_void() {
        assert!(read(&json!([])).object.unwrap().matches.is_empty());
        assert_eq!(read(&json!([])).problems[0].field, "spec.matches");
        assert_eq!(read(&json!(vec![json!({"name": "a"}); 257])).object, None);
        let missing = read_http_route_group("shop/routes".parse().unwrap(), json!({}));
        assert_eq!((missing.object, missing.problems[0].field.as_str()), (None, "spec.matches"));
    }
}
