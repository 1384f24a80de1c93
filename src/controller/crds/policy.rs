//! `policy.openservicemesh.io`: Egress, IngressBackend, Retry, Telemetry and UpstreamTrafficSetting.
//!
//! Owns the schemas: all fields of OSM 1.2, so that its objects can be applied as they are. The mesh does not
//! enforce these kinds yet.

mod upstream;

pub use upstream::*;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::any_object;
use super::status::ObjectStatus;

/// External hosts and addresses that service accounts may reach. Not enforced yet.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.openservicemesh.io",
    version = "v1alpha1",
    kind = "Egress",
    plural = "egresses",
    category = "smc",
    namespaced,
    status = "ObjectStatus"
)]
pub struct EgressSpec {
    /// The service accounts that may.
    #[schemars(length(max = 1024))]
    pub sources: Vec<Reference>,
    /// Host names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub hosts: Option<Vec<String>>,
    /// Address ranges in CIDR notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub ip_addresses: Option<Vec<String>>,
    /// The ports, each with its protocol.
    #[schemars(length(max = 256))]
    pub ports: Vec<Port>,
    /// HTTPRouteGroups that restrict the requests, and at most one UpstreamTrafficSetting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub matches: Option<Vec<TypedReference>>,
}

/// Services that an ingress outside the mesh may reach. Not enforced yet.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.openservicemesh.io",
    version = "v1alpha1",
    kind = "IngressBackend",
    plural = "ingressbackends",
    category = "smc",
    namespaced,
    status = "ObjectStatus"
)]
pub struct IngressBackendSpec {
    /// The services, of the object's namespace.
    #[schemars(length(max = 256))]
    pub backends: Vec<IngressPort>,
    /// What may reach them: a Service, an IPRange or an AuthenticatedPrincipal.
    #[schemars(length(max = 1024))]
    pub sources: Vec<Reference>,
    /// HTTPRouteGroups that restrict the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub matches: Option<Vec<TypedReference>>,
}

/// A port of a service that is open to an ingress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IngressPort {
    /// The name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its port, and the protocol that the ingress speaks: `http` or `https`.
    pub port: Port,
    /// How TLS is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<IngressTls>,
}

/// How TLS from an ingress is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    /// Whether the client may have any certificate, or none.
    pub skip_client_cert_validation: bool,
    /// The names that the client may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub sni_hosts: Option<Vec<String>>,
}

/// When a service account's requests are sent again. Not enforced yet.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.openservicemesh.io",
    version = "v1alpha1",
    kind = "Retry",
    plural = "retries",
    category = "smc",
    namespaced,
    status = "ObjectStatus"
)]
pub struct RetrySpec {
    /// The service account.
    pub source: Reference,
    /// The services that it calls.
    #[schemars(length(max = 1024))]
    pub destinations: Vec<Reference>,
    /// What is sent again, and how.
    pub retry_policy: RetryPolicy,
}

/// What is sent again, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// Envoy's conditions, separated by commas.
    pub retry_on: String,
    /// How long one try may take, as a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<String>,
    /// How often, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub num_retries: Option<u32>,
    /// The first pause, as a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_backoff_base_interval: Option<String>,
}

/// Access logs. Not enforced yet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.openservicemesh.io",
    version = "v1alpha1",
    kind = "Telemetry",
    plural = "telemetries",
    category = "smc",
    namespaced,
    status = "ObjectStatus"
)]
pub struct TelemetrySpec {
    /// Labels of the pods that are meant; left out, all of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<BTreeMap<String, String>>,
    /// The access log of their sidecars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<AccessLog>,
}

/// An access log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessLog {
    /// Envoy's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub format: Option<String>,
    /// A collector of OpenTelemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub open_telemetry: Option<Value>,
}

/// A reference to an object of another namespace, or to what is no object (`IPRange`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// What is referred to.
    #[schemars(length(min = 1, max = 64))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedReference {
    /// The API group, or the group and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub number: u16,
    /// Its protocol.
    #[schemars(length(min = 1, max = 32))]
    pub protocol: String,
}
