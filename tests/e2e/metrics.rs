//! Owns the reading of metrics: the controller's, and Envoy's counters. Tests which of these there are.

use std::collections::BTreeSet;

use serde_json::Value;
use smc_lab::LabHandle;

use crate::eventually::eventually_get;
use crate::mesh::{Mesh, mesh_config};
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
