//! `config.openservicemesh.io` MeshConfig, the singleton `osm-mesh-config`, in v1alpha2, and in v1alpha1,
//! whose fields are some of v1alpha2's.
//!
//! Owns the fields that SMC obeys, and the list of OSM's fields that it does not obey. Such a field is
//! reported when its value asks for an effect.

mod external_authorization;
mod ingress_gateway;
mod outside_server;
mod resources;
pub mod schema;
mod tracing;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smc_authority::pki::Lifetimes;
use smc_authority::rules::IngressGateway;
use smc_model::access_log::Logged;
use smc_model::cidr::parse_cidr;
use smc_model::external_authorization::ExternalAuthorization;
use smc_model::sidecar_settings::{LocalProxyMode, MAX_LIST_LEN, SidecarSettings};
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
    /// What the injector obeys, for pods that are made afterwards. Shared, since every query copies this.
    pub injected: Arc<SidecarSettings>,
}

/// Fields of a section, each with the values that ask for nothing.
type Section = &'static [(&'static str, &'static [&'static str])];

/// OSM's fields that SMC does not obey, by section, with the values that ask for nothing: false, zero,
/// empty, and what OSM's own installation presets. Values are compared as JSON text.
const NOT_OBEYED: &[(&str, Section)] = &[
    (
        "sidecar",
        &[
            ("envoyWindowsImage", &[]),
            ("maxDataPlaneConnections", &[]),
            ("configResyncInterval", &["\"0s\""]),
            ("tlsMinProtocolVersion", &["\"TLSv1_2\""]),
            ("tlsMaxProtocolVersion", &["\"TLSv1_3\""]),
            ("cipherSuites", &[]),
            ("ecdhCurves", &[]),
        ],
    ),
    ("traffic", &[]),
    ("observability", &[("osmLogLevel", &["\"info\""]), ("enableDebugServer", &[])]),
    ("certificate", &[("certKeyBitSize", &["2048"])]),
    (
        "featureFlags",
        &[
            ("enableWASMStats", &["true"]),
            ("enableMulticlusterMode", &[]),
            ("enableSnapshotCacheMode", &[]),
            ("enableAsyncProxyServiceMapping", &[]),
            ("enableEnvoyActiveHealthChecks", &[]),
            // Of OSM's main branch after 1.2.
            ("enableMeshRootCertificate", &[]),
        ],
    ),
];

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
                read_sidecar(&mut fields, &mut injected, findings);
            }
            "observability" => {
                config.access_log = access_log(&mut fields, findings);
                config.tracing = tracing::read(fields.take("tracing"), namespace, findings);
            }
            "featureFlags" => {
                // What cannot be read narrows.
                let mut is_off =
                    |name: &str| fields.take(name).is_some_and(|node| node.boolean(findings) != Some(true));
                config.ignores_egress = is_off("enableEgressPolicy");
                config.ignores_ingress = is_off("enableIngressBackendPolicy");
                config.ignores_retries = is_off("enableRetryPolicy");
            }
            _ => {}
        }
        for &(name, quiet) in not_obeyed {
            let Some(node) = fields.take(name) else { continue };
            if !asks_for_nothing(&node.value) && !quiet.contains(&node.value.to_string().as_str()) {
                let message = "is known from OSM, but not obeyed by SMC; it has no effect";
                findings.warning(&node.path, message);
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
mod tests {

    use schemars::generate::SchemaSettings;

    use super::*;

    fn read(spec: Value) -> Reading<MeshConfig> {
        read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), spec)
    }

    fn fields(reading: &Reading<MeshConfig>) -> Vec<&str> {
        reading.problems.iter().map(|problem| problem.field.as_str()).collect()
    }

    #[test]
    fn an_empty_mesh_config_leaves_every_switch_off() {
        assert_eq!(read(json!({})), Reading { object: Some(MeshConfig::default()), problems: vec![] });
    }

    #[test]
    fn the_switches_that_count_are_read() {
        let reading = read(json!({
            "traffic": {"enablePermissiveTrafficPolicyMode": true, "enableEgress": true},
            "certificate": {"serviceCertValidityDuration": "24h"},
            "sidecar": {"localProxyMode": "PodIP"},
            "observability": {"accessLog": "all"},
            "featureFlags": {"enableEgressPolicy": false, "enableIngressBackendPolicy": false, "enableRetryPolicy": false},
        }));
        let expected = MeshConfig {
            permissive: true,
            egress: true,
            external_authorization: None,
            ignores_egress: true,
            ignores_ingress: true,
            ignores_retries: true,
            service_cert_validity: Some(Duration::from_hours(24)),
            ingress_gateway: IngressGateway::Absent,
            local_proxy_mode: LocalProxyMode::PodIp,
            access_log: Some(Logged::All),
            tracing: None,
            injected: Arc::default(),
        };
        assert_eq!(reading, Reading { object: Some(expected), problems: vec![] });
    }

    /// These are the switches that are on where they are left out.
    #[test]
    fn a_kind_is_ignored_where_its_flag_is_there_and_not_true() {
        for (flags, ignored, problems) in [
            (json!({}), false, 0),
            (json!({"enableIngressBackendPolicy": true}), false, 0),
            (json!({"enableIngressBackendPolicy": false}), true, 0),
            (json!({"enableIngressBackendPolicy": "true"}), true, 1),
            (json!({"enableIngressBackendPolicy": null}), true, 1),
        ] {
            let of = |kind: &str| {
                let renamed = flags.to_string().replace("IngressBackend", kind);
                let reading = read(json!({"featureFlags": serde_json::from_str::<Value>(&renamed).unwrap()}));
                assert_eq!(reading.problems.len(), problems, "{renamed}");
                reading.object.unwrap()
            };
            assert_eq!(of("IngressBackend").ignores_ingress, ignored, "{flags}");
            assert_eq!(of("Retry").ignores_retries, ignored, "{flags}");
            assert_eq!(of("Egress").ignores_egress, ignored, "{flags}");
        }
    }

    #[test]
    fn a_switch_of_the_wrong_type_stays_off_and_is_named() {
        let reading =
            read(json!({"traffic": {"enablePermissiveTrafficPolicyMode": "true", "enableEgress": true}}));
        assert_eq!(reading.object.as_ref().map(|c| (c.permissive, c.egress)), Some((false, true)));
        assert_eq!(fields(&reading), ["spec.traffic.enablePermissiveTrafficPolicyMode"]);
    }

    #[test]
    fn an_unknown_local_proxy_mode_leaves_the_default_and_is_named() {
        for (text, problems) in [("Localhost", 0), ("", 0), ("podip", 1), ("0.0.0.0", 1)] {
            let reading = read(json!({"sidecar": {"localProxyMode": text}}));
            assert_eq!(reading.object, Some(MeshConfig::default()), "{text}");
            assert_eq!(fields(&reading), vec!["spec.sidecar.localProxyMode"; problems], "{text}");
        }
    }

    #[test]
    fn an_unknown_access_log_leaves_the_default_and_is_named() {
        for (text, expected, problems) in [
            ("failures", Some(Logged::Failures), 0),
            ("", None, 0),
            ("none", Some(Logged::Off), 0),
            ("off", None, 1),
            ("ALL", None, 1),
        ] {
            let reading = read(json!({"observability": {"accessLog": text}}));
            assert_eq!(reading.object.as_ref().unwrap().access_log, expected, "{text}");
            assert_eq!(fields(&reading), vec!["spec.observability.accessLog"; problems], "{text}");
        }
    }

    /// What `osm-bootstrap` of OSM 1.2.4 makes of the chart's untouched values, as `kubectl get` prints it.
    #[test]
    fn osms_untouched_preset_is_read_without_a_warning() {
        let reading = read(json!({
            "certificate": {"certKeyBitSize": 2048, "serviceCertValidityDuration": "24h"},
            "featureFlags": {"enableAsyncProxyServiceMapping": false, "enableEgressPolicy": true,
                "enableEnvoyActiveHealthChecks": false, "enableIngressBackendPolicy": true,
                "enableRetryPolicy": false, "enableSnapshotCacheMode": false, "enableWASMStats": true},
            "observability": {"enableDebugServer": false, "osmLogLevel": "info", "tracing": {"enable": false}},
            "sidecar": {"configResyncInterval": "0s", "enablePrivilegedInitContainer": false,
                "localProxyMode": "Localhost", "logLevel": "error", "resources": {}},
            "traffic": {"enableEgress": true, "enablePermissiveTrafficPolicyMode": true,
                "inboundExternalAuthorization": {"enable": false, "failureModeAllow": false},
                "inboundPortExclusionList": [], "networkInterfaceExclusionList": [],
                "outboundIPRangeExclusionList": [], "outboundIPRangeInclusionList": [],
                "outboundPortExclusionList": []},
        }));
        assert_eq!(reading.problems, []);
        let config = reading.object.unwrap();
        assert!(config.permissive && config.egress);
        assert_eq!(config.service_cert_validity, Some(Duration::from_hours(24)));
    }

    #[test]
    fn what_osm_presets_passes_silently() {
        let reading = read(json!({
            "sidecar": {"enablePrivilegedInitContainer": false, "logLevel": "error", "maxDataPlaneConnections": 0,
                "configResyncInterval": "0s", "resources": {}, "tlsMinProtocolVersion": "TLSv1_2"},
            "traffic": {"enableEgress": false, "outboundPortExclusionList": [],
                "inboundExternalAuthorization": {"enable": false, "timeout": "1s"}},
            "observability": {"osmLogLevel": "info", "tracing": {"enable": false, "port": 9411}},
            "certificate": {"certKeyBitSize": 2048},
            "featureFlags": {"enableWASMStats": true, "enableRetryPolicy": false},
        }));
        assert_eq!(reading.problems, []);
    }

    #[test]
    fn a_known_field_that_is_not_obeyed_and_an_unknown_one_are_reported() {
        let reading = read(json!({
            "sidecar": {"cipherSuites": ["a"], "colour": "red"},
            "featureFlags": {"enableSnapshotCacheMode": true},
            "mesh": {},
        }));
        assert_eq!(reading.object, Some(MeshConfig::default()));
        assert_eq!(
            fields(&reading),
            [
                "spec.sidecar.cipherSuites",
                "spec.sidecar.colour",
                "spec.featureFlags.enableSnapshotCacheMode",
                "spec.mesh",
            ]
        );
        assert!(reading.problems[0].message.contains("OSM") && !reading.problems[1].message.contains("OSM"));
    }

    #[test]
    fn what_the_injector_obeys_is_read() {
        let reading = read(json!({
            "sidecar": {"enablePrivilegedInitContainer": true, "logLevel": "debug", "envoyImage": "envoy:1",
                "initContainerImage": "smc:1", "resources": {"limits": {"cpu": "1"}}},
            "traffic": {"outboundPortExclusionList": [22], "inboundPortExclusionList": [9090],
                "outboundIPRangeExclusionList": ["10.1.2.3/8"], "outboundIPRangeInclusionList": ["fd00::/8"],
                "networkInterfaceExclusionList": ["net1"]},
        }));
        assert_eq!(reading.problems, []);
        let cidr = |text| parse_cidr(text).unwrap();
        let expected = SidecarSettings {
            envoy_image: Some("envoy:1".to_owned()),
            init_image: Some("smc:1".to_owned()),
            log_level: Some("debug".to_owned()),
            resources: Some(json!({"limits": {"cpu": "1"}})),
            privileged_init: true,
            exclude_outbound_ports: vec![22],
            exclude_inbound_ports: vec![9090],
            exclude_outbound_cidrs: vec![cidr("10.0.0.0/8")],
            include_outbound_cidrs: vec![cidr("fd00::/8")],
            exclude_interfaces: vec!["net1".to_owned()],
        };
        assert_eq!(*reading.object.unwrap().injected, expected);
    }

    #[test]
    fn what_the_injector_cannot_obey_is_named_and_left_out() {
        let many: Vec<u16> = (1..=300).collect();
        for (section, field, value, named) in [
            ("sidecar", "logLevel", json!("loud"), "logLevel"),
            ("sidecar", "envoyImage", json!("a b"), "envoyImage"),
            ("sidecar", "resources", json!(["1"]), "resources"),
            ("sidecar", "resources", json!({"limits": "1"}), "resources.limits"),
            (
                "sidecar",
                "resources",
                json!({"requests": {"cpu": 0.5}, "limits": {"cpu": {}}}),
                "resources.limits.cpu",
            ),
            ("traffic", "outboundPortExclusionList", json!([0]), "outboundPortExclusionList[0]"),
            ("traffic", "inboundPortExclusionList", json!(7), "inboundPortExclusionList"),
            ("traffic", "inboundPortExclusionList", json!(many), "inboundPortExclusionList"),
            ("traffic", "outboundIPRangeExclusionList", json!(["::/129"]), "outboundIPRangeExclusionList[0]"),
        ] {
            let reading = read(json!({section: {field: value}}));
            assert_eq!(fields(&reading), [format!("spec.{section}.{named}")]);
            let injected = reading.object.unwrap().injected;
            assert_eq!(injected.resources, None, "{named}");
            let kept = injected.exclude_inbound_ports.len();
            assert!(kept == 0 || kept == MAX_LIST_LEN, "{kept}");
        }
    }

    /// What a definition does not know, the API server drops without a word.
    #[test]
    fn the_schema_knows_every_field_of_osm() {
        let known = schema_of::<schema::MeshConfigSpec>(
            SchemaSettings::openapi3()
                .with(|settings| {
                    settings.inline_subschemas = true;
                })
                .into_generator(),
        )
        .to_value();
        for (section, names) in NOT_OBEYED {
            for (name, _) in *names {
                let field = &known["properties"][section]["properties"][name];
                assert!(field.is_object(), "{section}.{name}: {}", known["properties"][section]);
            }
        }
    }

    #[test]
    fn a_validity_is_a_duration_of_go_within_the_bounds() {
        let given = |value: Value| read(json!({"certificate": {"serviceCertValidityDuration": value}}));
        for (text, seconds) in
            [("48h", 172_800), ("1h30m", 5400), ("1.5h", 5400), ("90s", 90), ("60000ms", 60)]
        {
            let object = given(json!(text)).object.unwrap();
            assert_eq!(object.service_cert_validity, Some(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            [json!("0s"), json!("9s"), json!("721h"), json!("100000h"), json!("1d"), json!(48), json!("soon")]
        {
            let reading = given(bad.clone());
            assert_eq!(reading.object, Some(MeshConfig::default()), "{bad}");
            assert_eq!(fields(&reading), ["spec.certificate.serviceCertValidityDuration"], "{bad}");
        }
    }

    #[test]
    fn a_mesh_config_of_another_name_has_no_effect() {
        let permissive = json!({"traffic": {"enablePermissiveTrafficPolicyMode": true}});
        let reading = read_mesh_config("shop/config".parse().unwrap(), permissive);
        assert_eq!(reading.object, None);
        assert_eq!(fields(&reading), ["metadata.name"]);
    }
}
