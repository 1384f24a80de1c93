//! The schema of MeshConfig: all fields of OSM 1.2, so that its objects can be applied as they are.

use schemars::JsonSchema;
use serde_json::Value;

use crate::schema::any_object;

/// Settings of the whole mesh.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct MeshConfigSpec {
    /// The sidecars.
    pub sidecar: Option<Sidecar>,
    /// What may go where.
    pub traffic: Option<Traffic>,
    /// Logs and traces.
    pub observability: Option<Observability>,
    /// Service certificates.
    pub certificate: Option<Certificate>,
    /// Open Service Mesh's switches for its own features; none has an effect.
    #[schemars(default, schema_with = "any_object")]
    pub feature_flags: Option<Value>,
}

/// Settings of the sidecars.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Sidecar {
    /// Not obeyed.
    pub enable_privileged_init_container: Option<bool>,
    /// Not obeyed.
    pub log_level: Option<String>,
    /// Not obeyed.
    pub envoy_image: Option<String>,
    /// Not obeyed.
    pub envoy_windows_image: Option<String>,
    /// Not obeyed.
    pub init_container_image: Option<String>,
    /// Not obeyed.
    pub max_data_plane_connections: Option<i64>,
    /// Not obeyed.
    pub config_resync_interval: Option<String>,
    /// Not obeyed.
    #[schemars(default, schema_with = "any_object")]
    pub resources: Option<Value>,
    /// Not obeyed.
    pub tls_min_protocol_version: Option<String>,
    /// Not obeyed.
    pub tls_max_protocol_version: Option<String>,
    /// Not obeyed.
    pub cipher_suites: Option<Vec<String>>,
    /// Not obeyed.
    pub ecdh_curves: Option<Vec<String>>,
    /// Where a sidecar reaches its application: `Localhost` or `PodIP`.
    #[schemars(extend("enum" = ["Localhost", "PodIP"]))]
    pub local_proxy_mode: Option<String>,
}

/// What may go where.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Traffic {
    /// Every identity of the mesh may reach every other; TrafficTargets have no effect.
    pub enable_permissive_traffic_policy_mode: Option<bool>,
    /// Connections to addresses that are no service of the mesh pass through.
    pub enable_egress: Option<bool>,
    /// Address ranges that the injector excludes from interception.
    #[schemars(rename = "outboundIPRangeExclusionList")]
    pub outbound_ip_range_exclusion_list: Option<Vec<String>>,
    /// Address ranges that the injector restricts interception to.
    #[schemars(rename = "outboundIPRangeInclusionList")]
    pub outbound_ip_range_inclusion_list: Option<Vec<String>>,
    /// Ports that the injector excludes from outbound interception.
    #[schemars(inner(range(min = 1, max = 65535)))]
    pub outbound_port_exclusion_list: Option<Vec<u16>>,
    /// Ports that the injector excludes from inbound interception.
    #[schemars(inner(range(min = 1, max = 65535)))]
    pub inbound_port_exclusion_list: Option<Vec<u16>>,
    /// Network interfaces that the injector excludes from interception.
    pub network_interface_exclusion_list: Option<Vec<String>>,
    /// Not obeyed.
    #[schemars(default, schema_with = "any_object")]
    pub inbound_external_authorization: Option<Value>,
}

/// Logs and traces.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Observability {
    /// Not obeyed.
    pub osm_log_level: Option<String>,
    /// Not obeyed.
    pub enable_debug_server: Option<bool>,
    /// Not obeyed.
    #[schemars(default, schema_with = "any_object")]
    pub tracing: Option<Value>,
}

/// Service certificates.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Certificate {
    /// How long a service certificate is valid: a duration from `10s` to `720h`.
    pub service_cert_validity_duration: Option<String>,
    /// Not obeyed.
    pub cert_key_bit_size: Option<i64>,
    /// Not obeyed.
    #[schemars(default, schema_with = "any_object")]
    pub ingress_gateway: Option<Value>,
}
