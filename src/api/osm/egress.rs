//! `policy.openservicemesh.io` Egress: what of outside the mesh service accounts may reach.
//!
//! Owns its fields, and the bounds on them. What cannot be read narrows: a list that is there restricts,
//! whatever of it can be read, and an empty one means nothing. Names and addresses that would lead to the
//! sidecar itself are refused, because its connections are not intercepted.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::cidr::IpNet;
use smc_model::egress::EgressHost;
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::object_ref::Kind;
use smc_types::ports::is_of_sidecars;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::policy::{
    HTTP_ROUTE_GROUP, MAX_ENTRIES, MAX_MATCHES, MAX_SETTINGS, Port, Reference, TypedReference, account,
    beside, entries, is_address, is_host_name, port, range, restriction, typed_reference,
};
use crate::kind::{CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Findings, Node};
use crate::service_name::FullName;

const UPSTREAM_TRAFFIC_SETTING: &str = Kind::UpstreamTrafficSetting.as_str();

/// The longest label of a name in DNS (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;

/// Names that Kubernetes writes into every pod for the pod itself.
const OF_THE_POD: [&str; 3] = ["localhost", "ip6-localhost", "ip6-loopback"];

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<EgressSpec>],
    example: |namespace| {
        json!({
            "sources": [{"kind": "ServiceAccount", "name": "web", "namespace": namespace}],
            "hosts": ["example.org"],
            "ports": [{"number": 80, "protocol": "http"}],
        })
    },
    read: |object| effective(read_egress(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::Egress)
};

/// External hosts and addresses that service accounts may reach.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct EgressSpec {
    /// The service accounts that may, of the object's namespace.
    #[schemars(length(max = MAX_ENTRIES))]
    pub sources: Vec<Reference>,
    /// Host names. Without `ipAddresses`, the sidecar resolves them; `*` and `*.example.com` need these.
    #[schemars(length(max = MAX_ENTRIES))]
    pub hosts: Option<Vec<String>>,
    /// Address ranges in CIDR notation, within which connections go where they were dialled to.
    #[schemars(length(max = MAX_ENTRIES))]
    pub ip_addresses: Option<Vec<String>>,
    /// The ports, each with its protocol: `http`, `https`, `tcp` or `tcp-server-first`.
    #[schemars(length(max = MAX_SETTINGS))]
    pub ports: Vec<Port>,
    /// HTTPRouteGroups that restrict the requests, and at most one UpstreamTrafficSetting.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<TypedReference>>,
}

/// An object as the mesh reads it. It grants something on each of its ports, unless the groups do not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Egress {
    /// Its own name. Its sources and HTTPRouteGroups are of its namespace.
    pub id: NamespacedName,
    /// The identities that may; never empty.
    pub sources: BTreeSet<ServiceAccountId>,
    /// The names that HTTP and TLS may ask for; `None` (the field is absent) means any, and none.
    pub hosts: Option<BTreeSet<EgressHost>>,
    /// The networks that may be dialled; `None` (the field is absent) means that the sidecar resolves the
    /// names.
    pub networks: Option<BTreeSet<IpNet>>,
    /// The ports, each with what is spoken there; never empty.
    pub ports: BTreeSet<(u16, EgressProtocol)>,
    /// The HTTPRouteGroups that requests in clear text have to match, never empty; `None` means all requests.
    pub matches: Option<BTreeSet<NamespacedName>>,
}

/// What is spoken to a host outside of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressProtocol {
    /// HTTP in clear text.
    Http,
    /// TLS of the application, with a server name.
    Https,
    /// Anything in which the client speaks first.
    Tcp,
    /// Anything.
    TcpServerFirst,
}

impl EgressProtocol {
    const ALL: [(&'static str, Self); 4] = [
        ("http", Self::Http),
        ("https", Self::Https),
        ("tcp", Self::Tcp),
        ("tcp-server-first", Self::TcpServerFirst),
    ];

    /// Whether names decide where a connection goes.
    pub const fn is_by_name(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// Reads the `spec` of an Egress.
pub fn read_egress(id: &NamespacedName, spec: Value) -> Reading<Egress> {
    let mut findings = Findings::new(Kind::Egress, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<Egress> {
    let mut spec = spec.object(findings)?;
    let nodes = entries(&mut spec, "sources", MAX_ENTRIES, true, findings).into_iter();
    let sources: BTreeSet<_> = nodes.filter_map(|node| account(node, id.namespace(), findings)).collect();
    let hosts = restriction(&mut spec, "hosts", MAX_ENTRIES, host, findings);
    let networks = restriction(&mut spec, "ipAddresses", MAX_ENTRIES, network, findings);
    for (field, is_empty) in [
        ("spec.hosts", hosts.as_ref().is_some_and(BTreeSet::is_empty)),
        ("spec.ipAddresses", networks.as_ref().is_some_and(BTreeSet::is_empty)),
    ] {
        if is_empty {
            findings
                .error(field, "names nothing that can be reached. Leave the field out for no restriction");
        }
    }
    if hosts.is_none() && networks.is_none() {
        findings.error("spec.hosts", "is missing, and so is ipAddresses: nothing can be reached");
    }
    let ports = entries(&mut spec, "ports", MAX_SETTINGS, true, findings).into_iter();
    let ports: BTreeSet<_> =
        ports.filter_map(|node| read_port(node, hosts.as_ref(), networks.as_ref(), findings)).collect();
    let matches = read_matches(id, spec.take("matches"), findings);
    spec.finish(findings);
    let unrestricted = ports.iter().find(|(_, protocol)| *protocol != EgressProtocol::Http);
    let restricts = matches.as_ref().is_some_and(|groups| !groups.is_empty());
    if let Some((port, _)) = unrestricted.filter(|_| restricts) {
        let message = format!(
            "restricts requests in clear text alone: on port {port}, which is not http, everything passes"
        );
        findings.warning("spec.matches", message);
    }
    let matches_nothing = matches.as_ref().is_some_and(BTreeSet::is_empty);
    (!sources.is_empty() && !ports.is_empty() && !matches_nothing).then(|| Egress {
        id: id.clone(),
        sources,
        hosts,
        networks,
        ports,
        matches,
    })
}

/// A name of a host. Other than a network, a name has no bounds that a person could see: one that is an
/// address in other words would reach it whatever the networks say.
fn host(node: Node, findings: &mut Findings) -> Option<EgressHost> {
    let path = node.path.clone();
    let text = node.text(findings)?.to_ascii_lowercase();
    let name = text.strip_suffix('.').unwrap_or(&text);
    let shown = truncated(&text, 60);
    if text == "*" {
        return Some(EgressHost::Any);
    }
    let parent = name.strip_prefix("*.");
    let name = parent.unwrap_or(name);
    if !is_host_name(name) || name.split('.').any(|label| label.len() > MAX_LABEL) {
        let message = format!("is {shown:?}, which is neither a DNS name nor *. and a name, nor *; left out");
        findings.error(&path, message);
        return None;
    }
    if is_address(name) {
        findings.error(&path, format!("is {shown:?}, an address: addresses go into ipAddresses; left out"));
        return None;
    }
    if OF_THE_POD.contains(&name) || name.ends_with(".localhost") {
        findings.error(&path, format!("is {shown:?}, which is the pod itself; left out"));
        return None;
    }
    Some(if parent.is_some() {
        EgressHost::Under(name.to_owned())
    } else {
        EgressHost::Named(name.to_owned())
    })
}

fn network(node: Node, findings: &mut Findings) -> Option<IpNet> {
    let path = node.path.clone();
    range(&node.text(findings)?, &path, findings)
}

/// A port on which something can be reached.
fn read_port(
    node: Node,
    hosts: Option<&BTreeSet<EgressHost>>,
    networks: Option<&BTreeSet<IpNet>>,
    findings: &mut Findings,
) -> Option<(u16, EgressProtocol)> {
    let path = node.path.clone();
    let names = EgressProtocol::ALL.map(|(name, _)| name);
    let (number, name) = port(node, &names, findings)?;
    let (_, protocol) = EgressProtocol::ALL.into_iter().find(|(known, _)| *known == name)?;
    if is_of_sidecars(number) {
        findings.error(&format!("{path}.number"), format!("is {number}, a port of sidecars; left out"));
        return None;
    }
    let is_named = |host: &EgressHost| matches!(host, EgressHost::Named(_));
    // A list that is there restricts, also where nothing of it can be read.
    if hosts.is_some_and(BTreeSet::is_empty) || networks.is_some_and(BTreeSet::is_empty) {
        return None;
    }
    let reaches = match networks {
        Some(_) => {
            if hosts.is_some() && !protocol.is_by_name() {
                let message =
                    format!("is {name}, in which no name is: hosts restrict nothing here, ipAddresses do");
                findings.warning(&path, message);
            }
            true
        }
        None if protocol.is_by_name() => {
            let by_name = hosts.is_some_and(|hosts| hosts.iter().any(is_named));
            if !by_name && hosts.is_some() {
                let message = "has only hosts with a *, which need ipAddresses: nothing can be reached";
                findings.error(&path, message);
            }
            by_name
        }
        None => {
            let message = format!(
                "is {name}, which tells no names: without ipAddresses every address could be reached, so none can"
            );
            findings.error(&path, message);
            false
        }
    };
    reaches.then_some((number, protocol))
}

/// The groups, of which those that cannot be read are left out: they would only add requests.
fn read_matches(
    id: &NamespacedName,
    node: Option<Node>,
    findings: &mut Findings,
) -> Option<BTreeSet<NamespacedName>> {
    let node = node?;
    let path = node.path.clone();
    let (mut groups, mut settings, mut others) = (BTreeSet::new(), 0, false);
    for node in node.list(MAX_MATCHES, findings).unwrap_or_default() {
        let path = node.path.clone();
        let read = typed_reference(node, &[HTTP_ROUTE_GROUP, UPSTREAM_TRAFFIC_SETTING], findings);
        match read {
            Some((kind, _)) if kind == UPSTREAM_TRAFFIC_SETTING => {
                settings += 1;
                findings.warning(&path, "limits nothing: what is outside of the mesh has no limits yet");
            }
            Some((_, name)) => match beside(id, &name, &format!("{path}.name"), findings) {
                Some(name) => {
                    groups.insert(name);
                }
                None => others = true,
            },
            None => others = true,
        }
    }
    if settings > 1 {
        findings.error(&path, format!("names {settings} UpstreamTrafficSettings; one is the most"));
    }
    if groups.is_empty() && settings > 0 && !others {
        return None;
    }
    if groups.is_empty() {
        findings
            .error(&path, "names no HTTPRouteGroup: nothing passes. Leave the field out for all requests");
    }
    Some(groups)
}

impl Egress {
    /// The names that the sidecar resolves and that spell services, `web.shop.svc.cluster.local` or a shorter
    /// form with `.svc`, with the services' names and namespaces.
    pub fn resolved_services(&self) -> impl Iterator<Item = (&str, NamespacedName)> {
        let resolved = self.hosts.iter().flatten().filter(|_| self.networks.is_none());
        resolved.filter_map(|host| {
            let EgressHost::Named(name) = host else { return None };
            let service = FullName::parse(name)?;
            Some((name.as_str(), NamespacedName::new(service.namespace, service.name).ok()?))
        })
    }
}

#[cfg(test)]
mod tests;
