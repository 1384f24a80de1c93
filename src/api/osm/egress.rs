//! `policy.openservicemesh.io` Egress.

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use super::policy::{
    HTTP_ROUTE_GROUP, MAX_ENTRIES, MAX_MATCHES, MAX_SETTINGS, Port, Reference, TypedReference, account,
    entries, matches, port, range, read,
};
use crate::kind::{CustomKind, schema, without_effect};

/// The protocols of a port that traffic leaves the mesh by.
const EGRESS_PROTOCOLS: [&str; 4] = ["http", "https", "tcp", "tcp-server-first"];
const UPSTREAM_TRAFFIC_SETTING: &str = Kind::UpstreamTrafficSetting.as_str();

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
    read: |object| without_effect(read_egress(&object.id, object.spec)),
    ..CustomKind::new(Kind::Egress)
};

/// External hosts and addresses that service accounts may reach. Not enforced yet.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct EgressSpec {
    /// The service accounts that may.
    #[schemars(length(max = MAX_ENTRIES))]
    pub sources: Vec<Reference>,
    /// Host names.
    #[schemars(length(max = MAX_ENTRIES))]
    pub hosts: Option<Vec<String>>,
    /// Address ranges in CIDR notation.
    #[schemars(length(max = MAX_ENTRIES))]
    pub ip_addresses: Option<Vec<String>>,
    /// The ports, each with its protocol.
    #[schemars(length(max = MAX_SETTINGS))]
    pub ports: Vec<Port>,
    /// HTTPRouteGroups that restrict the requests, and at most one UpstreamTrafficSetting.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<TypedReference>>,
}

/// Reads the `spec` of an Egress.
pub fn read_egress(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Egress, id, spec, |_, spec, findings| {
        for node in entries(spec, "sources", MAX_ENTRIES, true, findings) {
            account(node, None, findings);
        }
        for node in entries(spec, "hosts", MAX_ENTRIES, false, findings) {
            node.text(findings);
        }
        for node in entries(spec, "ipAddresses", MAX_ENTRIES, false, findings) {
            range(node, findings);
        }
        for node in entries(spec, "ports", MAX_SETTINGS, true, findings) {
            port(node, &EGRESS_PROTOCOLS, findings);
        }
        let kinds = [HTTP_ROUTE_GROUP, UPSTREAM_TRAFFIC_SETTING];
        let path = spec.path("matches");
        let settings = matches(spec, &kinds, findings).into_iter().filter(|kind| kind == kinds[1]).count();
        if settings > 1 {
            findings.error(&path, format!("names {settings} UpstreamTrafficSettings; one is the most"));
        }
    })
}
