//! `policy.openservicemesh.io` IngressBackend.

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use super::policy::{
    HTTP_ROUTE_GROUP, MAX_ENTRIES, MAX_MATCHES, MAX_SETTINGS, Port, Reference, TypedReference, entries,
    matches, port, range, read, reference, section,
};
use crate::kind::{CustomKind, schema, without_effect};
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
    read: |object| without_effect(read_ingress_backend(&object.id, object.spec)),
    ..CustomKind::new(Kind::IngressBackend)
};

/// Services that an ingress outside the mesh may reach. Not enforced yet.
#[derive(Debug, JsonSchema)]
pub struct IngressBackendSpec {
    /// The services, of the object's namespace.
    #[schemars(length(max = MAX_SETTINGS))]
    pub backends: Vec<IngressPort>,
    /// What may reach them: a Service, an IPRange or an AuthenticatedPrincipal.
    #[schemars(length(max = MAX_ENTRIES))]
    pub sources: Vec<Reference>,
    /// HTTPRouteGroups that restrict the requests.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<TypedReference>>,
}

/// A port of a service that is open to an ingress.
#[derive(Debug, JsonSchema)]
pub struct IngressPort {
    /// The name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its port, and the protocol that the ingress speaks: `http` or `https`.
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

/// Reads the `spec` of an IngressBackend.
pub fn read_ingress_backend(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::IngressBackend, id, spec, |id, spec, findings| {
        let mut principals = false;
        for node in entries(spec, "sources", MAX_ENTRIES, true, findings) {
            principals |= ingress_source(node, findings);
        }
        for node in entries(spec, "backends", MAX_SETTINGS, true, findings) {
            ingress_port(id, node, principals, findings);
        }
        matches(spec, &[HTTP_ROUTE_GROUP], findings);
    })
}

/// Whether the source is an identity in a client's certificate.
fn ingress_source(node: Node, findings: &mut Findings) -> bool {
    let path = node.path.clone();
    let kinds = ["Service", "IPRange", "AuthenticatedPrincipal"];
    let Some((kind, name, namespace)) = reference(node, &kinds, findings) else { return false };
    match kind.as_str() {
        "Service" => match namespace {
            None => findings.error(&format!("{path}.namespace"), "is missing, which a Service needs"),
            Some(namespace) => {
                if let Err(error) = ServiceId::new(&namespace, &name) {
                    findings.error(&path, error.to_string());
                }
            }
        },
        "IPRange" => range(Node { path: format!("{path}.name"), value: name.into() }, findings),
        _ => return true,
    }
    false
}

fn ingress_port(id: &NamespacedName, node: Node, principals: bool, findings: &mut Findings) {
    let Some(mut fields) = node.object(findings) else { return };
    let path = fields.path("name");
    if let Some(name) = fields.require("name", findings).and_then(|node| node.text(findings))
        && let Err(error) = ServiceId::new(id.namespace(), &name)
    {
        findings.error(&path, error.to_string());
    }
    let node = fields.require("port", findings);
    let protocol = node.and_then(|node| port(node, &INGRESS_PROTOCOLS, findings));
    let mut any_client = false;
    if let Some(mut tls) = section(&mut fields, "tls", findings) {
        let skip = tls.require("skipClientCertValidation", findings);
        any_client = skip.and_then(|node| node.boolean(findings)).unwrap_or_default();
        for node in entries(&mut tls, "sniHosts", MAX_SETTINGS, false, findings) {
            node.text(findings);
        }
        tls.finish(findings);
    }
    if protocol.as_deref() == Some("https") && !any_client && !principals {
        let message = "checks the certificates of clients, and no source is an AuthenticatedPrincipal: none could connect";
        findings.error(&fields.path("tls"), message);
    }
    fields.finish(findings);
}
