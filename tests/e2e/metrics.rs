//! Owns the reading of metrics: the controller's, and Envoy's counters. Tests which of these there are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use smc_lab::LabHandle;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, mesh_config, routes, settings};
use crate::{hello, start_with};

/// Returns the controller's metrics.
pub(crate) async fn metrics(lab: &LabHandle) -> String {
    let fetch = ["smc-lab", "fetch", "--url", "http://127.0.0.1:9091/metrics"];
    let results: Value = serde_json::from_str(&lab.exec_on_node(&fetch).await.unwrap().stdout).unwrap();
    results[0]["body"].as_str().unwrap_or_default().to_owned()
}

/// Sums a metric's samples over all label values.
pub(crate) fn sum(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(name));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Reads one of Envoy's counters.
pub(crate) async fn counter(lab: &LabHandle, pod: &str, name: &str) -> u64 {
    let regex = name.replace('.', "\\.").replace('|', "\\|");
    let text = lab.envoy_admin(pod, &format!("/stats?filter=^{regex}$")).await.unwrap().body;
    let value = text.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text:?}"))
}

/// Returns how many connections a pod's proxy has opened to a cluster, and how many of them have
/// ended.
pub(crate) async fn connections(lab: &LabHandle, pod: &str, cluster: &str) -> (u64, u64) {
    let count = async |what: &str| counter(lab, pod, &format!("cluster.{cluster}.upstream_cx_{what}")).await;
    (count("total").await, count("destroy").await)
}

/// The samples of OSM's metrics of requests in a pod's sidecar: the name, the labels and the value.
async fn requests(lab: &LabHandle, pod: &str) -> Vec<(String, BTreeMap<String, String>, u64)> {
    let text = lab.envoy_admin(pod, "/stats/prometheus?filter=osm_request").await.unwrap().body;
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.split_once("} ")?;
        let label = |text: &str| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        };
        Some((name.to_owned(), labels.split(',').filter_map(label).collect(), value.parse().ok()?))
    });
    samples.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_in_osms_metrics_at_the_caller() {
    const COUNTED: &str = "observability: {requestMetrics: true}";
    let split = "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: web, namespace: \
                 servers}\nspec: {service: web, backends: [{service: web-v1, weight: 1}]}\n";
    let mesh = Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with(
            "granted.yaml",
            &routes("granted", "    - {name: granted, pathRegex: '/granted$', methods: [GET]}"),
        )
        .with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/granted"]))
        .with("mesh-config.yaml", &settings(COUNTED));
    let lab = start_with(&mesh, |_| {}).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    eventually_get(&lab, "clients/bob", "http://web-v1.servers/granted", "200").await;
    // How many were answered so, by a service, as the sidecar of a pod counts them.
    let count = async |pod: &str, code: &str, service: &str| {
        let labels = [
            ("response_code", code),
            ("source_namespace", "clients"),
            ("source_kind", "ServiceAccount"),
            ("source_name", pod),
            ("destination_namespace", "servers"),
            ("destination_kind", "Service"),
            ("destination_name", service),
        ];
        let found = requests(&lab, &format!("clients/{pod}")).await.into_iter().find(|(name, of, _)| {
            name == "envoy_osm_request_total"
                && labels.iter().all(|(name, value)| of.get(*name).is_some_and(|of| of == value))
        });
        found.map_or(0, |(_, _, value)| value)
    };
    let before = count("alice", "200", "web-v1").await;
    assert!(before > 0, "{:?}", requests(&lab, "clients/alice").await);
    for (pod, url, status) in [
        ("alice", "http://web-v1.servers/a", "200"),
        ("alice", "http://web-v1.servers/status/418", "418"),
        ("bob", "http://web-v1.servers/denied", "403"),
    ] {
        eventually_get(&lab, &format!("clients/{pod}"), url, status).await;
    }
    assert_eq!(count("alice", "200", "web-v1").await, before + 1);
    assert_eq!(count("alice", "418", "web-v1").await, 1);
    assert!(count("bob", "403", "web-v1").await > 0);
    // Histograms are merged every five seconds.
    eventually("durations", async || {
        let found = requests(&lab, "clients/alice").await.into_iter().find(|(name, of, _)| {
            name == "envoy_osm_request_duration_ms_count" && of["destination_name"] == "web-v1"
        });
        match found {
            Some((_, of, count)) if count > 1 && of["source_name"] == "alice" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(requests(&lab, "servers/web-v1").await.is_empty(), "the caller's sidecar counts");

    // The backend of a split took the request, and no name of the request is a label.
    lab.apply("split.yaml", split).await.unwrap();
    eventually("a request goes by the split", async || {
        eventually_get(&lab, "clients/alice", "http://web.servers/path-of-a-request", "200").await;
        if count("alice", "200", "web-v1").await > before + 1 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
    let text = lab.envoy_admin("clients/alice", "/stats/prometheus?filter=osm_request").await.unwrap().body;
    assert!(!text.contains("path-of-a-request"), "{text}");

    // Off, with a listener that counts nothing.
    lab.apply("mesh-config.yaml", &settings("observability: {requestMetrics: false}")).await.unwrap();
    eventually("nothing is counted", async || {
        let before = count("alice", "418", "web-v1").await;
        eventually_get(&lab, "clients/alice", "http://web-v1.servers/status/418", "418").await;
        let after = count("alice", "418", "web-v1").await;
        if after == before { Ok(()) } else { Err(format!("{after}")) }
    })
    .await;
    lab.stop().await.unwrap();
}

/// Makes all statistics, as the injector does for a pod that asks for them.
const ALL: &str = r#"{"stats_config":{"stats_matcher":{"reject_all":false}}}"#;

/// The names of all statistics of a pod's sidecar.
async fn names(lab: &LabHandle, pod: &str) -> BTreeSet<String> {
    let text = lab.envoy_admin(pod, "/stats").await.unwrap().body;
    text.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

/// What counts the calls of the service `web`, at the caller and at the server, and what the caller's sidecar
/// does not make.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_made_that_are_used_and_all_where_a_person_wants_them() {
    let omitted = [
        "http.outbound_servers/web_80_http.downstream_rq_2xx",
        "http.outbound_servers/web_80_http.rds.outbound_servers/web_80.update_attempt",
        "http.outbound_servers/web_80_http.rds.outbound_servers/web_80.config_reload",
        "listener.0.0.0.0_15001.http.outbound_servers/web_80_http.downstream_rq_2xx",
        "tcp.outbound_servers/web_7000_tcp.downstream_cx_total",
        "sds.root-cert-for-mtls-outbound_servers/web.version",
        "cluster.servers/web|80.update_attempt",
        "cluster.servers/web|80.assignment_stale",
        "cluster.servers/web|80.init_fetch_timeout",
        "cluster.servers/web|80.version",
        "cluster.servers/web|80.warming_state",
        "cluster.servers/web|80.default.total_match_count",
        "cluster.servers/web|80.max_host_weight",
        "cluster.servers/web|80.ssl.certificate.service-cert.expiration_unix_time_seconds",
        "cluster.servers/web|80.ssl.ocsp_staple_failed",
        "cluster.servers/web|80.client_ssl_socket_factory.ssl_context_update_by_sds",
        "cluster.servers/web|80.lb_healthy_panic",
        "cluster.servers/web|80.circuit_breakers.default.cx_open",
        "cluster.servers/web|80.outlier_detection.ejections_enforced_consecutive_5xx",
        "cluster.servers/peers|80|pod.membership_change",
    ];
    for all in [false, true] {
        let mesh = Mesh::web().with("mesh-config.yaml", &mesh_config(true));
        let lab = start_with(&mesh, |options| {
            if all {
                options.envoy_args = ["--config-yaml", ALL].map(str::to_owned).to_vec();
            }
        })
        .await;
        eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
        eventually_get(&lab, "clients/alice", "http://peers.servers:8080/", "200").await;
        assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");
        let caller = names(&lab, "clients/alice").await;
        for name in [
            "cluster.servers/web|80.upstream_rq_total",
            "cluster.servers/web|80.upstream_rq_2xx",
            "cluster.servers/web|80.upstream_rq_time",
            "cluster.servers/web|80.upstream_cx_connect_fail",
            "cluster.servers/web|80.membership_healthy",
            "cluster.servers/web|80.outlier_detection.ejections_active",
            "cluster.servers/web|80.outlier_detection.ejections_enforced_total",
            "cluster.servers/web|80.ssl.fail_verify_san",
            "cluster.servers/web|80.update_rejected",
            "http.outbound_servers/web_80_http.rds.outbound_servers/web_80.update_success",
            "http.outbound_servers/web_80_http.rds.outbound_servers/web_80.update_rejected",
            "sds.root-cert-for-mtls-outbound_servers/web.update_rejected",
            "cluster.servers/web|7000.upstream_cx_rx_bytes_total",
            "cluster.smc-controller.upstream_cx_connect_fail",
            "cluster.smc-controller.update_success",
            "cluster_manager.cds.update_rejected",
            "sds.service-cert.update_success",
            "listener_manager.lds.update_rejected",
            "server.memory_allocated",
        ] {
            assert!(caller.contains(name), "{name} of {caller:#?}");
        }
        for name in omitted {
            assert_eq!(caller.contains(name), all, "{name} of {caller:#?}");
        }
        assert!(
            !caller.contains("cluster.servers/web|443.upstream_cx_total"),
            "a service that was not called"
        );
        let mut server = names(&lab, "servers/web-v1").await;
        server.extend(names(&lab, "servers/web-v2").await);
        for name in ["cluster.local|8080|http.upstream_rq_2xx", "http.inbound_8080_http.downstream_rq_2xx"] {
            assert!(server.contains(name), "{name} of {server:#?}");
        }
        lab.stop().await.unwrap();
    }
}
