//! What each field of a MeshConfig means, and what is reported of it.

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
        "observability": {"accessLog": "all", "requestMetrics": true},
        "featureFlags": {"enableEgressPolicy": false, "enableIngressBackendPolicy": false, "enableRetryPolicy": false,
            "enableMeshRootCertificate": false},
    }));
    let expected = MeshConfig {
        permissive: true,
        egress: true,
        external_authorization: None,
        ignores_egress: true,
        ignores_ingress: true,
        ignores_retries: true,
        ignores_root_certificates: true,
        service_cert_validity: Some(Duration::from_hours(24)),
        ingress_gateway: IngressGateway::Absent,
        local_proxy_mode: LocalProxyMode::PodIp,
        access_log: Some(Logged::All),
        tracing: None,
        request_metrics: true,
        tls: None,
        replica: ReplicaSettings::default(),
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
            let renamed = flags.to_string().replace("IngressBackendPolicy", kind);
            let reading = read(json!({"featureFlags": serde_json::from_str::<Value>(&renamed).unwrap()}));
            assert_eq!(reading.problems.len(), problems, "{renamed}");
            reading.object.unwrap()
        };
        assert_eq!(of("IngressBackendPolicy").ignores_ingress, ignored, "{flags}");
        assert_eq!(of("RetryPolicy").ignores_retries, ignored, "{flags}");
        assert_eq!(of("EgressPolicy").ignores_egress, ignored, "{flags}");
        assert_eq!(of("MeshRootCertificate").ignores_root_certificates, ignored, "{flags}");
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
    assert!(config.permissive && config.egress && !config.request_metrics);
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
        "sidecar": {"configResyncInterval": "30s", "colour": "red"},
        "featureFlags": {"enableSnapshotCacheMode": true},
        "mesh": {},
    }));
    assert_eq!(reading.object, Some(MeshConfig::default()));
    assert_eq!(
        fields(&reading),
        [
            "spec.sidecar.configResyncInterval",
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
        for NotObeyed { name, .. } in *names {
            let field = &known["properties"][section]["properties"][name];
            assert!(field.is_object(), "{section}.{name}: {}", known["properties"][section]);
        }
    }
}

#[test]
fn a_validity_is_a_duration_of_go_within_the_bounds() {
    let given = |value: Value| read(json!({"certificate": {"serviceCertValidityDuration": value}}));
    for (text, seconds) in [("48h", 172_800), ("1h30m", 5400), ("1.5h", 5400), ("90s", 90), ("60000ms", 60)] {
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
