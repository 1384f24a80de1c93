//! `policy.openservicemesh.io` IngressBackend: what of outside the mesh may reach ports of a service.
//!
//! Owns its fields. What cannot be read narrows: a backend, a name or a principal that cannot be read is left
//! out, and of a source that cannot be read it is not known whether it was to restrict the addresses, so the
//! others are taken as if it did. An empty list that is written down means none.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::cidr::IpNet;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::policy::{
    HTTP_ROUTE_GROUP, MAX_ENTRIES, MAX_MATCHES, MAX_SETTINGS, Port, Reference, TypedReference, beside,
    entries, is_host_name, port, range, reference, restriction, typed_reference,
};
use crate::kind::{CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Findings, Node};

/// The protocols that an ingress may speak.
const INGRESS_PROTOCOLS: [&str; 2] = ["http", "https"];

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<IngressBackendSpec>],
    example: |_| {
        json!({
            "backends": [{"name": "web", "port": {"number": 8080, "protocol": "http"}}],
            "sources": [{"kind": "Service", "namespace": "ingress", "name": "gateway"}],
        })
    },
    read: |object| effective(read_ingress_backend(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::IngressBackend)
};

/// Ports of services that an ingress outside of the mesh may reach.
#[derive(Debug, JsonSchema)]
pub struct IngressBackendSpec {
    /// The services, of the object's namespace.
    #[schemars(length(max = MAX_SETTINGS))]
    pub backends: Vec<IngressPort>,
    /// What may reach them: a Service, an IPRange or an AuthenticatedPrincipal.
    #[schemars(length(max = MAX_ENTRIES))]
    pub sources: Vec<Reference>,
    /// HTTPRouteGroups of the object's namespace that restrict the requests.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<TypedReference>>,
}

/// A port of a service that is open to an ingress.
#[derive(Debug, JsonSchema)]
pub struct IngressPort {
    /// The name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The port of its pods, and the protocol that the ingress speaks: `http` or `https`.
    pub port: Port,
    /// How TLS is checked.
    pub tls: Option<IngressTls>,
}

/// How TLS from an ingress is checked.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct IngressTls {
    /// Whether the client may have any certificate, or none.
    pub skip_client_cert_validation: bool,
    /// The names that the client may ask for.
    #[schemars(length(max = MAX_SETTINGS))]
    pub sni_hosts: Option<Vec<String>>,
}

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressBackend {
    /// Its own name. Its services and HTTPRouteGroups are of its namespace.
    pub id: NamespacedName,
    /// The ports that it opens.
    pub backends: BTreeSet<BackendPort>,
    /// What it opens them to.
    pub sources: IngressSources,
    /// The HTTPRouteGroups that requests have to match; `None` (the field is absent) means all requests.
    pub matches: Option<BTreeSet<NamespacedName>>,
}

/// A port that an IngressBackend opens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendPort {
    /// The service.
    pub service: ServiceId,
    /// The port of its pods.
    pub port: u16,
    /// What is spoken there.
    pub protocol: IngressProtocol,
}

/// What an ingress speaks to a backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressProtocol {
    /// HTTP in clear text.
    Http,
    /// HTTP over TLS, with the certificate of the backend's identity.
    Https {
        /// Whether the client has to show a certificate of one of the principals.
        checks_client: bool,
        /// The names that the client may ask for, in lower case, also `*.example.com`; `None` means any, and
        /// none. Never empty.
        server_names: Option<BTreeSet<String>>,
    },
}

/// What an IngressBackend opens its ports to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressSources {
    /// Where connections may come from; `None` if the sources name no address at all.
    pub addresses: Option<IngressAddresses>,
    /// The DNS names in certificates of clients, one of which has to be there.
    pub principals: BTreeSet<String>,
}

/// Where connections may come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressAddresses {
    /// The services whose endpoints may connect.
    pub services: BTreeSet<ServiceId>,
    /// The networks whose addresses may connect.
    pub ranges: BTreeSet<IpNet>,
}

/// Reads the `spec` of an IngressBackend.
pub fn read_ingress_backend(id: &NamespacedName, spec: Value) -> Reading<IngressBackend> {
    let mut findings = Findings::new(Kind::IngressBackend, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<IngressBackend> {
    let mut spec = spec.object(findings)?;
    let mut sources = IngressSources::default();
    for node in entries(&mut spec, "sources", MAX_ENTRIES, true, findings) {
        read_source(node, &mut sources, findings);
    }
    let ports = entries(&mut spec, "backends", MAX_SETTINGS, true, findings);
    let ports = ports.into_iter().filter_map(|node| read_port(id, node, &sources, findings));
    let backends: BTreeSet<_> = ports.collect();
    let matches = read_matches(id, spec.take("matches"), findings);
    spec.finish(findings);
    (!backends.is_empty()).then(|| IngressBackend { id: id.clone(), backends, sources, matches })
}

/// Adds a source. Whatever is no principal that can be read restricts the addresses.
fn read_source(node: Node, sources: &mut IngressSources, findings: &mut Findings) {
    let path = node.path.clone();
    let kinds = ["Service", "IPRange", "AuthenticatedPrincipal"];
    let source = reference(node, &kinds, findings);
    if let Some((kind, name, _)) = &source
        && kind == "AuthenticatedPrincipal"
    {
        if is_host_name(name) {
            sources.principals.insert(name.clone());
        } else {
            let name = truncated(name, 60);
            findings.error(&format!("{path}.name"), format!("is {name:?}, which is no DNS name; left out"));
        }
        return;
    }
    let addresses = sources.addresses.get_or_insert_default();
    let Some((kind, name, namespace)) = source else { return };
    if kind == "IPRange" {
        let path = format!("{path}.name");
        addresses.ranges.extend(range(&name, &path, findings));
        return;
    }
    let Some(namespace) = namespace else {
        findings.error(&format!("{path}.namespace"), "is missing, which a Service needs");
        return;
    };
    match ServiceId::new(&namespace, &name) {
        Ok(service) => {
            addresses.services.insert(service);
        }
        Err(error) => findings.error(&path, error.to_string()),
    }
}

fn read_port(
    id: &NamespacedName,
    node: Node,
    sources: &IngressSources,
    findings: &mut Findings,
) -> Option<BackendPort> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let name_path = fields.path("name");
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let service = name.and_then(|name| {
        let service = ServiceId::new(id.namespace(), &name);
        service.map_err(|error| findings.error(&name_path, error.to_string())).ok()
    });
    let node = fields.require("port", findings);
    let port = node.and_then(|node| port(node, &INGRESS_PROTOCOLS, findings));
    let tls = fields.take("tls").map(|node| read_tls(node, findings));
    fields.finish(findings);
    let (service, (port, protocol)) = (service?, port?);
    let protocol = if protocol == "http" {
        if tls.is_some() {
            findings
                .warning(&format!("{path}.tls"), "has no meaning for a port that is reached in clear text");
        }
        IngressProtocol::Http
    } else {
        let (checks_client, server_names) = tls.unwrap_or(Some((true, None)))?;
        IngressProtocol::Https { checks_client, server_names }
    };
    let checks_client = matches!(protocol, IngressProtocol::Https { checks_client: true, .. });
    if checks_client && sources.principals.is_empty() {
        let message = "checks the certificates of clients, and no source is an AuthenticatedPrincipal: none could connect";
        findings.error(&format!("{path}.tls"), message);
        return None;
    }
    if !checks_client && !sources.principals.is_empty() && sources.addresses.is_some() {
        let message =
            "asks for no certificate, so the AuthenticatedPrincipals restrict nothing here: the addresses do";
        findings.warning(&path, message);
    }
    if !checks_client && sources.addresses.is_none() {
        let message = "checks no certificates of clients, and no source names an address: anybody could connect, so \
                       the port stays closed";
        findings.error(&path, message);
        return None;
    }
    Some(BackendPort { service, port, protocol })
}

/// Whether clients are checked, and the names that they may ask for. `None` if the names mean none.
fn read_tls(node: Node, findings: &mut Findings) -> Option<(bool, Option<BTreeSet<String>>)> {
    let mut tls = node.object(findings)?;
    let skip = tls.require("skipClientCertValidation", findings).and_then(|node| node.boolean(findings));
    let path = tls.path("sniHosts");
    let names = restriction(&mut tls, "sniHosts", MAX_SETTINGS, server_name, findings);
    tls.finish(findings);
    if names.as_ref().is_some_and(BTreeSet::is_empty) {
        findings.error(&path, "names no host that a client could ask for: none could connect");
        return None;
    }
    Some((!skip.unwrap_or(false), names))
}

/// A name that clients may ask for, in lower case.
fn server_name(node: Node, findings: &mut Findings) -> Option<String> {
    let path = node.path.clone();
    let name = node.text(findings)?.to_ascii_lowercase();
    let shown = truncated(&name, 60);
    let message = if name.ends_with(ServiceId::DOMAIN) {
        format!("is {shown:?}, by which sidecars ask: a client that does has to be one; left out")
    } else if is_host_name(name.strip_prefix("*.").unwrap_or(&name)) {
        return Some(name);
    } else {
        format!("is {shown:?}, which is neither a name nor *. and a name; left out")
    };
    findings.error(&path, message);
    None
}

/// The groups, of which those that cannot be read are left out: they would only add requests.
fn read_matches(
    id: &NamespacedName,
    node: Option<Node>,
    findings: &mut Findings,
) -> Option<BTreeSet<NamespacedName>> {
    let node = node?;
    let mut names = BTreeSet::new();
    for node in node.list(MAX_MATCHES, findings).unwrap_or_default() {
        let path = format!("{}.name", node.path);
        let Some((_, name)) = typed_reference(node, &[HTTP_ROUTE_GROUP], findings) else { continue };
        names.extend(beside(id, &name, &path, findings));
    }
    if names.is_empty() {
        findings.error(
            "spec.matches",
            "names no HTTPRouteGroup: no request gets in. Leave the field out for all",
        );
    }
    Some(names)
}

#[cfg(test)]
mod tests;
