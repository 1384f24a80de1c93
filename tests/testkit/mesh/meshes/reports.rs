//! Meshes in which sidecars log, send and count in ways of their own.

use serde_json::{Value, json};
use smc_types::proxy_class::AppProtocol::{Http, TcpServerFirst};

use super::super::{extension_service, ingress, mesh_config_of, pod, service, target, tcp, telemetry};
use super::{Mesh, shop};

/// OSM's metrics, of calls to a service with a virtual address, a headless one and one without HTTP.
pub(super) fn what_requests_are_counted() -> Mesh {
    shop(
        "what_requests_are_counted",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/pods", "b", &[], &[(8080, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            mesh_config_of(json!({"observability": {"requestMetrics": true}})),
        ],
    )
}

/// A collector by name and one at an address, fields of SMC's own and formats.
pub(super) fn what_collectors_are_sent() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    let nested =
        json!({"path": "%REQ(:PATH)%", "list": ["%PROTOCOL%", 1.5, true, null, {}], "": "100%% of it"});
    let to = |namespace: &str, name: &str, attributes: Value| json!({"extensionService": {"namespace": namespace, "name": name}, "attributes": attributes});
    let attributes =
        json!({"code": "%RESPONSE_CODE%", "agent": "%REQ(USER-AGENT)%", "": "", "zone": "100%% a"});
    shop(
        "what_collectors_are_sent",
        vec![
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
            extension_service(
                "shop/otel",
                json!({"host": "otel.example", "port": 4317, "protocol": "h2c", "connectTimeout": "1500ms"}),
            ),
            extension_service("smc-system/otel", json!({"host": "2001:db8::7", "port": 4317})),
            telemetry(
                "shop/of-a",
                json!({"selector": {"app": "a"}, "accessLog": {
                    "format": nested.to_string(), "openTelemetry": to("smc-system", "otel", json!({})),
                }}),
            ),
            telemetry(
                "shop/of-b",
                json!({"selector": {"app": "b"}, "accessLog": {"openTelemetry": to("shop", "otel", attributes)}}),
            ),
            telemetry(
                "shop/of-all",
                json!({"accessLog": {
                    "format": "%PROTOCOL% %REQ(:PATH)%", "openTelemetry": to("shop", "otel", json!({"a": "b"})),
                }}),
            ),
        ],
    )
}

/// Two pods of one identity among them.
pub(super) fn what_sidecars_log_in_a_format_of_their_own() -> Mesh {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    let nested = json!({
        "when": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%", "what": {"path": "%REQ(:PATH)%", "code": "%RESPONSE_CODE%"},
        "list": ["%PROTOCOL% in %DURATION% ms", 1.5, true, null, {}, [[[[[["as deep as may be"]]]]]]], "": "100%% of %BYTES_SENT%",
    });
    shop(
        "what_sidecars_log_in_a_format_of_their_own",
        vec![
            pod("shop/b2", "shop/b1", "b2", &["10.1.0.3"]),
            service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
            service("shop/b2", "b2", &["10.9.0.3"], &[(80, 8080, Http)]),
            service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
            tcp("shop/all", &[]),
            target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
            target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "all")]),
            ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
            telemetry(
                "shop/of-b",
                json!({"selector": {"app": "b"}, "accessLog": {"format": nested.to_string()}}),
            ),
            telemetry("shop/of-a", json!({"selector": {"app": "a"}, "accessLog": {}})),
            telemetry(
                "shop/of-all",
                json!({"accessLog": {"format": "%REQ(X-A?:AUTHORITY):9% %REQ(:PATH)%"}}),
            ),
        ],
    )
}
