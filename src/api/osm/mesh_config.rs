//! `config.openservicemesh.io` MeshConfig, the singleton `osm-mesh-config`, in v1alpha2, and in v1alpha1,
//! whose fields are some of v1alpha2's.
//!
//! Owns the fields that SMC obeys, and the list of OSM's fields that it does not obey. Such a field is
//! reported when its value asks for an effect.

mod external_authorization;
mod ingress_gateway;
mod replica_settings;
mod resources;
pub mod schema;
mod tls_parameters;
mod tracing;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smc_authority::pki::Lifetimes;
use smc_authority::rules::IngressGateway;
use smc_model::access_log::Logged;
use smc_model::cidr::parse_cidr;
use smc_model::external_authorization::ExternalAuthorization;
use smc_model::replica_settings::ReplicaSettings;
use smc_model::sidecar_settings::{LocalProxyMode, MAX_LIST_LEN, SidecarSettings};
use smc_model::tls_parameters::TlsParameters;
use smc_model::tracing::Tracing;
use smc_types::duration;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use crate::kind::{Column, CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::MeshConfigSpec>, schema_of::<schema::MeshConfigSpec>],
    example: |_| json!({"traffic": {"enablePermissiveTrafficPolicyMode": false}}),
    read: |object| {
        let id = object.id.clone();
        effective(read_mesh_config(object.id, object.spec), |config| Object::MeshConfig(id, config))
    },
    short_name: Some("meshconfig"),
    columns: &[Column {
        name: "Permissive",
        of: "boolean",
        path: ".spec.traffic.enablePermissiveTrafficPolicyMode",
    }],
    only_name: Some(SINGLETON),
    ..CustomKind::new(Kind::MeshConfig)
};

/// The name of the one MeshConfig that counts.
const SINGLETON: &str = "osm-mesh-config";

/// Mesh-wide settings. The default holds while there is no MeshConfig: deny what no policy allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the API")]
pub struct MeshConfig {
    /// `traffic.enablePermissiveTrafficPolicyMode`: every identity in the mesh may call every other. SMI
    /// access policy has no effect, mTLS stays.
    pub permissive: bool,
    /// `traffic.enableEgress`: connections to addresses that are no service of the mesh pass through.
    pub egress: bool,
    /// `traffic.inboundExternalAuthorization`; `None` means that no server is asked. Shared, since every
    /// query copies this.
    pub external_authorization: Option<Arc<ExternalAuthorization>>,
    /// `featureFlags.enableEgressPolicy` is there and false: no Egress has effect. OSM's own default is true.
    pub ignores_egress: bool,
    /// `featureFlags.enableIngressBackendPolicy` is there and false: no IngressBackend has effect. OSM's own
    /// default is true.
    pub ignores_ingress: bool,
    /// `featureFlags.enableRetryPolicy` is there and false: no Retry has effect. OSM's own default is false.
    /// Its installation writes it, so that a MeshConfig without it does not come from there.
    pub ignores_retries: bool,
    /// `featureFlags.enableMeshRootCertificate` is there and false: no MeshRootCertificate has effect. It is
    /// of OSM's main branch after 1.2.
    pub ignores_root_certificates: bool,
    /// `certificate.serviceCertValidityDuration`, within the bounds of [`Lifetimes::with_service`]; `None`
    /// means the controller's flag.
    pub service_cert_validity: Option<Duration>,
    /// `certificate.ingressGateway`.
    pub ingress_gateway: IngressGateway,
    /// `sidecar.localProxyMode`.
    pub local_proxy_mode: LocalProxyMode,
    /// `observability.accessLog`, SMC's own: what sidecars log where their namespace does not say.
    pub access_log: Option<Logged>,
    /// `observability.tracing`; `None` means that nothing is traced. Shared, since every query copies this.
    pub tracing: Option<Arc<Tracing>>,
    /// `observability.requestMetrics`, SMC's own: sidecars count requests in OSM's metrics.
    pub request_metrics: bool,
    /// `sidecar.tlsMinProtocolVersion`, `tlsMaxProtocolVersion`, `cipherSuites` and `ecdhCurves`; `None`
    /// means those that sidecars have anyway. Shared, since every query copies this.
    pub tls: Option<Arc<TlsParameters>>,
    /// `sidecar.maxDataPlaneConnections` and `observability.osmLogLevel`.
    pub replica: ReplicaSettings,
    /// What the injector obeys, for pods that are made afterwards. Shared, since every query copies this.
    pub injected: Arc<SidecarSettings>,
}

/// Fields of a section.
type Section = &'static [NotObeyed];

/// A field of OSM's that SMC does not obey.
struct NotObeyed {
    name: &'static str,
    /// What asks for nothing beside false, zero and empty: what OSM's own installation presets, as JSON text.
    preset: Option<&'static str>,
    /// Why it is not obeyed.
    reason: &'static str,
}

/// OSM's fields that SMC does not obey, by section.
const NOT_OBEYED: &[(&str, Section)] = &[
    (
        "sidecar",
        &[
            not_obeyed("envoyWindowsImage", None, "no sidecar runs on Windows"),
            not_obeyed(
                "configResyncInterval",
                Some("\"0s\""),
                "a change is sent at once, and what a sidecar has missed when it connects again",
            ),
        ],
    ),
    ("traffic", &[]),
    (
        "observability",
        &[not_obeyed(
            "enableDebugServer",
            None,
            "`smc` asks controllers at their administration socket, and no port answers without a certificate",
        )],
    ),
    (
        "certificate",
        &[not_obeyed(
            "certKeyBitSize",
            Some("2048"),
            "the keys of the mesh are of the curve P-256, not of RSA",
        )],
    ),
    (
        "featureFlags",
        &[
            not_obeyed(
                "enableWASMStats",
                Some("true"),
                "no sidecar runs WASM; observability.requestMetrics has the same metrics made",
            ),
            not_obeyed("enableMulticlusterMode", None, "a mesh is one cluster, with machines"),
            not_obeyed("enableSnapshotCacheMode", None, "sidecars are always served from snapshots"),
            not_obeyed(
                "enableAsyncProxyServiceMapping",
                None,
                "which services a pod is behind follows its events",
            ),
            not_obeyed(
                "enableEnvoyActiveHealthChecks",
                None,
                "sidecars leave out pods to which connections fail, without asking all of them",
            ),
        ],
    ),
];

const fn not_obeyed(name: &'static str, preset: Option<&'static str>, reason: &'static str) -> NotObeyed {
    NotObeyed { name, preset, reason }
}

/// Envoy's log levels.
const LOG_LEVELS: &[&str] = &["trace", "debug", "info", "warning", "warn", "error", "critical", "off"];

/// The longest reference of an image, in characters: a name of 255, a tag of 128, a digest.
const MAX_IMAGE: usize = 512;

/// Reads the `spec` of a MeshConfig. One of another name than the singleton's has no effect.
pub fn read_mesh_config(id: NamespacedName, spec: Value) -> Reading<MeshConfig> {
    let singleton = id.name() == SINGLETON;
    let namespace = id.namespace().to_owned();
    let mut findings = Findings::new(Kind::MeshConfig, id);
    if !singleton {
        findings.error("metadata.name", format!("must be {SINGLETON}; this one has no effect"));
        return findings.into_reading(None);
    }
    let config = read(Node::spec(spec), &namespace, &mut findings);
    findings.into_reading(config)
}

/// A switch that cannot be read stays off; the others still count.
fn read(spec: Node, namespace: &str, findings: &mut Findings) -> Option<MeshConfig> {
    let mut spec = spec.object(findings)?;
    let mut config = MeshConfig::default();
    let mut injected = SidecarSettings::default();
    for &(section, not_obeyed) in NOT_OBEYED {
        let Some(node) = spec.take(section) else { continue };
        let Some(mut fields) = node.object(findings) else {
            match section {
                "certificate" => config.ingress_gateway = IngressGateway::Unreadable,
                "traffic" => {
                    config.external_authorization = Some(Arc::new(external_authorization::denying()));
                }
                "sidecar" => config.tls = Some(Arc::new(tls_parameters::narrowest())),
                _ => {}
            }
            continue;
        };
        match section {
            "traffic" => {
                config.permissive = switch(&mut fields, "enablePermissiveTrafficPolicyMode", findings);
                config.egress = switch(&mut fields, "enableEgress", findings);
                config.external_authorization =
                    external_authorization::read(fields.take("inboundExternalAuthorization"), findings);
                read_interception(&mut fields, &mut injected, findings);
            }
            "certificate" => {
                let node = fields.take("serviceCertValidityDuration");
                config.service_cert_validity =
                    node.and_then(|node| lifetime(node, "; the controller's flag holds", findings));
                config.ingress_gateway = ingress_gateway::read(fields.take("ingressGateway"), findings);
            }
            "sidecar" => {
                config.local_proxy_mode = local_proxy_mode(&mut fields, findings);
                config.tls = tls_parameters::read(&mut fields, findings);
                config.replica.max_proxies = replica_settings::max_proxies(&mut fields, findings);
                read_sidecar(&mut fields, &mut injected, findings);
            }
            "observability" => {
                config.access_log = access_log(&mut fields, findings);
                config.replica.log_level = replica_settings::log_level(&mut fields, findings);
                config.tracing = tracing::read(fields.take("tracing"), namespace, findings);
                config.request_metrics = switch(&mut fields, "requestMetrics", findings);
            }
            "featureFlags" => {
                // What cannot be read narrows.
                let mut is_off =
                    |name: &str| fields.take(name).is_some_and(|node| node.boolean(findings) != Some(true));
                config.ignores_egress = is_off("enableEgressPolicy");
                config.ignores_ingress = is_off("enableIngressBackendPolicy");
                config.ignores_retries = is_off("enableRetryPolicy");
                config.ignores_root_certificates = is_off("enableMeshRootCertificate");
            }
            _ => {}
        }
        for NotObeyed { name, preset, reason } in not_obeyed {
            let Some(node) = fields.take(name) else { continue };
            let text = node.value.to_string();
            if !asks_for_nothing(&node.value) && *preset != Some(text.as_str()) {
                findings
                    .warning(&node.path, format!("is a field of OSM's that has no effect here: {reason}"));
            }
        }
        fields.finish(findings);
    }
    spec.finish(findings);
    config.injected = Arc::new(injected);
    Some(config)
}

fn read_sidecar(fields: &mut Fields, injected: &mut SidecarSettings, findings: &mut Findings) {
    injected.privileged_init = switch(fields, "enablePrivilegedInitContainer", findings);
    injected.envoy_image = image(fields, "envoyImage", findings);
    injected.init_image = image(fields, "initContainerImage", findings);
    if let Some(node) = fields.take("logLevel") {
        let path = node.path.clone();
        match node.text(findings) {
            Some(level) if LOG_LEVELS.contains(&level.as_str()) => injected.log_level = Some(level),
            Some(level) if !level.is_empty() => {
                let message = format!("is {:?}, which is no log level of Envoy", truncated(&level, 40));
                findings.error(&path, message);
            }
            _ => {}
        }
    }
    if let Some(node) = fields.take("resources") {
        injected.resources = resources::read(node, findings);
    }
}

fn image(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<String> {
    let node = fields.take(name)?;
    let path = node.path.clone();
    let text = node.text(findings).filter(|text| !text.is_empty())?;
    if text.len() > MAX_IMAGE || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        findings.error(&path, "is not the name of an image; the controller's flag holds");
        return None;
    }
    Some(text)
}

fn read_interception(fields: &mut Fields, injected: &mut SidecarSettings, findings: &mut Findings) {
    const NETWORK: &str = "is not an IP network";
    const PORT: &str = "is not a port number (1 to 65535)";
    let cidr = |value: &Value| parse_cidr(value.as_str()?).ok();
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok().filter(|port| *port > 0);
    let name = |value: &Value| value.as_str().map(str::to_owned);
    injected.exclude_outbound_ports = entries(fields, "outboundPortExclusionList", PORT, port, findings);
    injected.exclude_inbound_ports = entries(fields, "inboundPortExclusionList", PORT, port, findings);
    injected.exclude_outbound_cidrs =
        entries(fields, "outboundIPRangeExclusionList", NETWORK, cidr, findings);
    injected.include_outbound_cidrs =
        entries(fields, "outboundIPRangeInclusionList", NETWORK, cidr, findings);
    injected.exclude_interfaces =
        entries(fields, "networkInterfaceExclusionList", "is not a name", name, findings);
}

/// A list whose unreadable entries are named and left out: an exclusion that is missing narrows.
fn entries<T>(
    fields: &mut Fields,
    list: &str,
    refusal: &str,
    read: impl Fn(&Value) -> Option<T>,
    findings: &mut Findings,
) -> Vec<T> {
    let Some(node) = fields.take(list) else { return Vec::new() };
    let Value::Array(values) = node.value else {
        findings.error(&node.path, "must be a list");
        return Vec::new();
    };
    let mut entries = Vec::new();
    for (number, value) in values.iter().enumerate().take(MAX_LIST_LEN + 1) {
        match read(value) {
            _ if number == MAX_LIST_LEN => {
                findings
                    .error(&node.path, format!("has more than {MAX_LIST_LEN} entries; the rest is left out"));
            }
            Some(entry) => entries.push(entry),
            None => {
                let shown = truncated(&value.to_string(), 40);
                findings.error(&format!("{}[{number}]", node.path), format!("{shown} {refusal}; left out"));
            }
        }
    }
    entries
}

fn switch(fields: &mut Fields, name: &str, findings: &mut Findings) -> bool {
    fields.take(name).and_then(|node| node.boolean(findings)).unwrap_or(false)
}

fn local_proxy_mode(fields: &mut Fields, findings: &mut Findings) -> LocalProxyMode {
    let Some(node) = fields.take("localProxyMode") else { return LocalProxyMode::default() };
    let path = node.path.clone();
    match node.text(findings).as_deref() {
        None | Some("Localhost" | "") => LocalProxyMode::Localhost,
        Some("PodIP") => LocalProxyMode::PodIp,
        Some(other) => {
            let other = truncated(other, 40);
            findings
                .error(&path, format!("is {other:?}, which is neither Localhost nor PodIP; Localhost holds"));
            LocalProxyMode::Localhost
        }
    }
}

fn access_log(fields: &mut Fields, findings: &mut Findings) -> Option<Logged> {
    let node = fields.take("accessLog")?;
    let path = node.path.clone();
    let text = node.text(findings).filter(|text| !text.is_empty())?;
    let logged = Logged::parse(&text);
    if logged.is_none() {
        let (text, words) = (truncated(&text, 40), Logged::words());
        findings.error(&path, format!("is {text:?}, which is none of {words}; left out"));
    }
    logged
}

fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        // A block with `enable: false` asks for nothing, whatever its other fields.
        Value::Object(fields) => {
            fields.get("enable") == Some(&Value::Bool(false)) || fields.values().all(asks_for_nothing)
        }
    }
}

/// A lifetime of certificates. `otherwise` says what follows where it is none.
fn lifetime(node: Node, otherwise: &str, findings: &mut Findings) -> Option<Duration> {
    let path = node.path.clone();
    let text = node.text(findings)?;
    let duration = duration::parse(&text).ok().filter(|span| Lifetimes::with_service(*span).is_ok());
    if duration.is_none() {
        let text = truncated(&text, 40);
        findings.error(&path, format!("is {text:?}, which is no duration from 10s to 720h{otherwise}"));
    }
    duration
}

#[cfg(test)]
mod tests;
