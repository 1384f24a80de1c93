//! The schema of MeshConfig: all fields of OSM 1.2, so that its objects can be applied as they are.

use schemars::JsonSchema;
use serde_json::Value;
use smc_authority::ledger::MAX_NAMES;

use super::tls_parameters::{MAX_ENTRIES as MAX_TLS_ENTRIES, MAX_ENTRY as MAX_TLS_ENTRY};
use super::tracing::MAX_ENDPOINT;
use crate::schema::resources;

/// The longest of a host name, of the name of an object, and of what else is one word.
const MAX_WORD: usize = 253;

/// The longest of what may be a path or a URI.
const MAX_PATH: usize = 2048;

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
    /// Open Service Mesh's switches; those of Egress, IngressBackend, Retry and
    /// MeshRootCertificate are obeyed.
    pub feature_flags: Option<FeatureFlags>,
}

/// Settings of the sidecars.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Sidecar {
    /// The init container is privileged.
    pub enable_privileged_init_container: Option<bool>,
    /// Envoy's log level.
    pub log_level: Option<String>,
    /// Envoy's image.
    pub envoy_image: Option<String>,
    /// No effect; OSM's.
    pub envoy_windows_image: Option<String>,
    /// The image of the init container.
    pub init_container_image: Option<String>,
    /// How many sidecars each controller serves at a time; 0 (the default) is no limit.
    #[schemars(range(min = 0, max = u32::MAX))]
    pub max_data_plane_connections: Option<i64>,
    /// No effect; OSM's.
    pub config_resync_interval: Option<String>,
    /// What both containers request, and their limits.
    pub resources: Option<Resources>,
    /// The least version of TLS that sidecars accept: `TLSv1_2` (the default) or `TLSv1_3`.
    #[schemars(length(max = MAX_WORD))]
    pub tls_min_protocol_version: Option<String>,
    /// The highest version of TLS that sidecars accept: `TLSv1_2` or `TLSv1_3` (the default).
    #[schemars(length(max = MAX_WORD))]
    pub tls_max_protocol_version: Option<String>,
    /// The suites of TLS 1.2 that sidecars accept, as Envoy names them: those with `ECDHE-ECDSA` and GCM or
    /// POLY1305, which the mesh's certificates can use with HTTP/2. Envoy's own if empty.
    #[schemars(length(max = MAX_TLS_ENTRIES), inner(length(max = MAX_TLS_ENTRY)))]
    pub cipher_suites: Option<Vec<String>>,
    /// The curves of sidecars, as Envoy names them; `P-256` is always among them. Envoy's own if empty.
    #[schemars(length(max = MAX_TLS_ENTRIES), inner(length(max = MAX_TLS_ENTRY)))]
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
    /// A server that sidecars ask about each HTTP request to their application, after policy has allowed it.
    pub inbound_external_authorization: Option<ExternalAuthorization>,
}

/// Logs and traces.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Observability {
    /// What the controllers log: `trace`, `debug`, `warn`, `error`, `fatal`, `panic` or `disabled`. `info`
    /// leaves it to their flag.
    #[schemars(length(max = MAX_WORD))]
    pub osm_log_level: Option<String>,
    /// No effect; OSM's.
    pub enable_debug_server: Option<bool>,
    /// Where sidecars report what they did with each HTTP request.
    pub tracing: Option<Tracing>,
    /// SMC's own: which requests and connections sidecars log, where the annotation
    /// `mesh.smc.dev/access-log` of their namespace does not say. `failures` (the default): those that fail
    /// or are refused; `all`; or `none`.
    #[schemars(extend("enum" = ["failures", "all", "none"]))]
    pub access_log: Option<String>,
    /// SMC's own: whether the sidecars of callers count requests in OSM's metrics, `osm_request_total` and
    /// `osm_request_duration_ms`. Every sidecar must run Envoy 1.39 or later: an earlier one refuses the
    /// listener of its calls.
    pub request_metrics: Option<bool>,
}

/// Service certificates.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Certificate {
    /// How long a service certificate is valid: a duration from `10s` to `720h`.
    pub service_cert_validity_duration: Option<String>,
    /// No effect; OSM's.
    pub cert_key_bit_size: Option<i64>,
    /// The certificate of an ingress gateway.
    pub ingress_gateway: Option<IngressGateway>,
}

/// Resources of a container.
#[derive(Debug, JsonSchema)]
pub struct Resources {
    /// What is set aside for it.
    #[schemars(default, schema_with = "resources")]
    pub requests: Option<Value>,
    /// The most that it may take.
    #[schemars(default, schema_with = "resources")]
    pub limits: Option<Value>,
}

/// A server that is asked about each request.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct ExternalAuthorization {
    /// Whether it is asked.
    pub enable: Option<bool>,
    /// A DNS name, as a whole, or an IP address.
    #[schemars(length(max = MAX_WORD))]
    pub address: Option<String>,
    /// The port at which it speaks gRPC in clear text.
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<u16>,
    /// What the names of its statistics in Envoy begin with.
    #[schemars(length(max = MAX_WORD))]
    pub stat_prefix: Option<String>,
    /// How long an answer may take: a duration from `1ms` to `1m`.
    #[schemars(length(max = MAX_WORD))]
    pub timeout: Option<String>,
    /// Whether a request passes if no answer comes.
    pub failure_mode_allow: Option<bool>,
}

/// Where traces go.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Tracing {
    /// Whether requests are traced.
    pub enable: Option<bool>,
    /// The port of the collector, which takes spans in clear text. By default 9411.
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<u16>,
    /// The collector: a DNS name, as a whole, or an IP address. By default `jaeger` in the namespace of the
    /// control plane.
    #[schemars(length(max = MAX_WORD))]
    pub address: Option<String>,
    /// The path at which it takes spans in Zipkin's JSON. By default `/api/v2/spans`.
    #[schemars(length(max = MAX_ENDPOINT))]
    pub endpoint: Option<String>,
    /// SMC's own: of how many percent of the requests that bring no decision with them, to a hundredth. By
    /// default 100.
    #[schemars(range(min = 0, max = 100))]
    pub sampling_percent: Option<f64>,
}

/// A certificate for an ingress gateway.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct IngressGateway {
    /// Its DNS names.
    #[schemars(length(max = MAX_NAMES), inner(length(max = MAX_PATH)))]
    pub subject_alt_names: Option<Vec<String>>,
    /// How long it is valid, 10s to 720h.
    #[schemars(length(max = MAX_WORD))]
    pub validity_duration: Option<String>,
    /// The Secret that it is kept in.
    pub secret: Option<SecretReference>,
}

/// A Secret.
#[derive(Debug, JsonSchema)]
pub struct SecretReference {
    /// Its name.
    #[schemars(length(max = MAX_WORD))]
    pub name: Option<String>,
    /// Its namespace.
    #[schemars(length(max = MAX_WORD))]
    pub namespace: Option<String>,
}

/// Switches for features. The API server drops switches of other versions.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the names are those of the API"
)]
pub struct FeatureFlags {
    /// No effect; OSM's.
    #[schemars(rename = "enableWASMStats")]
    pub enable_wasm_stats: Option<bool>,
    /// If false, no Egress has effect.
    pub enable_egress_policy: Option<bool>,
    /// No effect; OSM's.
    pub enable_multicluster_mode: Option<bool>,
    /// No effect; OSM's.
    pub enable_snapshot_cache_mode: Option<bool>,
    /// No effect; OSM's.
    pub enable_async_proxy_service_mapping: Option<bool>,
    /// If false, no IngressBackend has effect.
    pub enable_ingress_backend_policy: Option<bool>,
    /// No effect; OSM's.
    pub enable_envoy_active_health_checks: Option<bool>,
    /// If false, no Retry has effect.
    pub enable_retry_policy: Option<bool>,
    /// If false, no MeshRootCertificate has effect.
    pub enable_mesh_root_certificate: Option<bool>,
}
