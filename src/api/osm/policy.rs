//! What OSM's kinds have in common.
//!
//! Owns the parts of their schemas and of their reading that several have.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use smc_model::cidr::{IpNet, parse_cidr};
use smc_types::duration;
use smc_types::ids::{NamespacedName, ServiceAccountId, check_subdomain};
use smc_types::object_ref::Kind;
use smc_types::text::truncated;

use crate::reading::{Fields, Findings, Node};

/// The most entries of a list in one object: of references and addresses, of ports and other settings, of
/// `matches`, and of headers. They bound what reading it may cost.
pub(super) const MAX_ENTRIES: usize = 1024;
pub(super) const MAX_SETTINGS: usize = 256;
pub(super) const MAX_MATCHES: usize = 32;
pub(super) const MAX_HEADERS: usize = 32;

pub(super) const HTTP_ROUTE_GROUP: &str = Kind::HttpRouteGroup.as_str();

/// A reference to an object of another namespace, or to what is no object (`IPRange`).
#[derive(Debug, JsonSchema)]
pub struct Reference {
    /// What is referred to.
    #[schemars(length(min = 1, max = 64))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// A reference to an object of the same namespace.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TypedReference {
    /// The API group, or the group and version.
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// The kind.
    #[schemars(length(min = 1, max = 64))]
    pub kind: String,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A port and what is spoken there.
#[derive(Debug, JsonSchema)]
pub struct Port {
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub number: u16,
    /// Its protocol.
    #[schemars(length(min = 1, max = 32))]
    pub protocol: String,
}

/// The entries of a list, which must be there and not empty if it is `needed`.
pub(super) fn entries(
    spec: &mut Fields,
    name: &str,
    most: usize,
    needed: bool,
    findings: &mut Findings,
) -> Vec<Node> {
    let path = spec.path(name);
    let node = if needed { spec.require(name, findings) } else { spec.take(name) };
    let Some(nodes) = node.and_then(|node| node.list(most, findings)) else { return Vec::new() };
    if needed && nodes.is_empty() {
        findings.error(&path, "is empty, so the object can have no effect");
    }
    nodes
}

/// What can be read of a list that restricts where it is there, and so may mean nothing; `None` means that it
/// is not there.
pub(super) fn restriction<T: Ord>(
    spec: &mut Fields,
    name: &str,
    most: usize,
    read: impl Fn(Node, &mut Findings) -> Option<T>,
    findings: &mut Findings,
) -> Option<BTreeSet<T>> {
    let is_there = spec.has(name);
    let nodes = entries(spec, name, most, false, findings).into_iter();
    let read: BTreeSet<T> = nodes.filter_map(|node| read(node, findings)).collect();
    is_there.then_some(read)
}

pub(super) fn section(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<Fields> {
    fields.take(name).and_then(|node| node.object(findings))
}

/// The kind, name and namespace of a reference of one of these kinds.
pub(super) fn reference(
    node: Node,
    kinds: &[&str],
    findings: &mut Findings,
) -> Option<(String, String, Option<String>)> {
    let mut fields = node.object(findings)?;
    let kind = one_of(&mut fields, "kind", kinds, findings);
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let namespace = match fields.take("namespace") {
        Some(node) => Some(node.text(findings)?),
        None => None,
    };
    fields.finish(findings);
    Some((kind?, name?, namespace))
}

pub(super) fn one_of(
    fields: &mut Fields,
    name: &str,
    wanted: &[&str],
    findings: &mut Findings,
) -> Option<String> {
    let path = fields.path(name);
    let text = fields.require(name, findings).and_then(|node| node.text(findings))?;
    if wanted.contains(&text.as_str()) {
        return Some(text);
    }
    findings.error(&path, format!("must be {}, not {:?}", wanted.join(" or "), truncated(&text, 40)));
    None
}

/// A reference of this kind, of which `new` makes an id, and which has to say its namespace.
pub(super) fn of_namespace<T, E: Display>(
    node: Node,
    kind: &str,
    new: impl FnOnce(&str, &str) -> Result<T, E>,
    findings: &mut Findings,
) -> Option<T> {
    let path = node.path.clone();
    let (_, name, namespace) = reference(node, &[kind], findings)?;
    let Some(namespace) = namespace else {
        findings.error(&format!("{path}.namespace"), "is missing");
        return None;
    };
    new(&namespace, &name).map_err(|error| findings.error(&path, error.to_string())).ok()
}

/// A service account, whose namespace must be `own`.
pub(super) fn account(node: Node, own: &str, findings: &mut Findings) -> Option<ServiceAccountId> {
    let path = node.path.clone();
    let account = of_namespace(node, "ServiceAccount", ServiceAccountId::new, findings)?;
    if account.namespace() != own {
        findings.error(&format!("{path}.namespace"), "must be the namespace of the object itself");
        return None;
    }
    Some(account)
}

/// A range of addresses, found at this path. A connection over IPv4 has an address of IPv4, so that a range
/// of IPv4 mapped into IPv6 would mean none.
pub(super) fn range(text: &str, path: &str, findings: &mut Findings) -> Option<IpNet> {
    match parse_cidr(text) {
        Ok(IpNet::V6(range)) if range.addr().to_ipv4_mapped().is_some() && range.prefix_len() >= 96 => {
            findings.error(path, "is a range of IPv4 mapped into IPv6; left out");
            None
        }
        Ok(range) => Some(range),
        Err(error) => {
            findings.error(path, format!("{error}; left out"));
            None
        }
    }
}

/// A port and its protocol.
pub(super) fn port(node: Node, protocols: &[&str], findings: &mut Findings) -> Option<(u16, String)> {
    let mut fields = node.object(findings)?;
    let number = fields.require("number", findings).and_then(|node| node.port(findings));
    let protocol = one_of(&mut fields, "protocol", protocols, findings);
    fields.finish(findings);
    Some((number?, protocol?))
}

/// Whether a text is a DNS name in lower case.
pub(super) fn is_host_name(text: &str) -> bool {
    check_subdomain("host", text).is_ok()
}

/// Whether resolvers take a name for an IPv4 address, of which they know more forms than four numbers.
pub(super) fn is_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hexadecimal)
}

/// The kind and name of a [`TypedReference`] to one of these kinds.
pub(super) fn typed_reference(
    node: Node,
    kinds: &[&str],
    findings: &mut Findings,
) -> Option<(String, String)> {
    let mut fields = node.object(findings)?;
    if let Some(node) = fields.take("apiGroup") {
        node.text(findings);
    }
    let kind = one_of(&mut fields, "kind", kinds, findings);
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    fields.finish(findings);
    Some((kind?, name?))
}

/// The full name of an object of the namespace of `id`, named at this path.
pub(super) fn beside(
    id: &NamespacedName,
    name: &str,
    path: &str,
    findings: &mut Findings,
) -> Option<NamespacedName> {
    NamespacedName::new(id.namespace(), name).map_err(|error| findings.error(path, error.to_string())).ok()
}

/// A duration within these bounds. Another one is left out.
pub(super) fn duration_within(
    fields: &mut Fields,
    name: &str,
    bounds: RangeInclusive<Duration>,
    findings: &mut Findings,
) -> Option<Duration> {
    let node = fields.take(name)?;
    let path = node.path.clone();
    let text = node.text(findings)?;
    match duration::parse(&text) {
        Ok(duration) if bounds.contains(&duration) => return Some(duration),
        Ok(_) => {
            let text = truncated(&text, 40);
            let (least, most) = (bounds.start(), bounds.end());
            findings.error(&path, format!("is {text}, which is not within {least:?} and {most:?}; left out"));
        }
        Err(error) => findings.error(&path, format!("{error}; left out")),
    }
    None
}

/// A whole number within these bounds. Another one is left out.
pub(super) fn number(
    fields: &mut Fields,
    name: &str,
    bounds: RangeInclusive<u32>,
    findings: &mut Findings,
) -> Option<u32> {
    let node = fields.take(name)?;
    let number = node.value.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| bounds.contains(number));
    if number.is_none() {
        let (least, most) = (bounds.start(), bounds.end());
        findings.error(&node.path, format!("must be a whole number from {least} to {most}; left out"));
    }
    number
}
