//! What a sidecar's statistics say about the calls of its application.
//!
//! Owns the question, and the reading of the answer, which is Prometheus' text format. Of the inbound side
//! Envoy counts no callers, so the caller's own sidecar is asked, which counts by service port.

use std::collections::BTreeSet;

use smc_types::ids::ServiceId;
use smc_xds::names;
pub use smc_xds::names::CALLS_PATH;
use thiserror::Error;

/// The metric, and the label with the cluster.
const METRIC: &str = "envoy_cluster_upstream_rq_total{";
const LABEL: &str = "envoy_cluster_name=\"";

/// The answer is not that of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the answer holds no statistics of a sidecar")]
pub struct NotStatistics;

/// The service ports that the application has called since the sidecar started, of the answer to
/// [`CALLS_PATH`]. The question itself passes the cluster of Envoy's admin server and is counted there, so an
/// answer without that is none: what answers is no sidecar, and "no calls" would be wrong.
pub fn called(answer: &str) -> Result<BTreeSet<(ServiceId, u16)>, NotStatistics> {
    let clusters: Vec<_> = answer.lines().filter_map(used_cluster).collect();
    if !clusters.contains(&names::ADMIN_CLUSTER) {
        return Err(NotStatistics);
    }
    Ok(clusters.into_iter().filter_map(names::service_port).collect())
}

/// The cluster of a line that counts at least one request.
fn used_cluster(line: &str) -> Option<&str> {
    let (labels, count) = line.strip_prefix(METRIC)?.rsplit_once("} ")?;
    let (_, cluster) = labels.split_once(LABEL)?;
    let (cluster, _) = cluster.split_once('"')?;
    count.trim().parse::<f64>().is_ok_and(|count| count > 0.0).then_some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<Vec<String>, NotStatistics> {
        let called = called(&lines.join("\n"))?;
        Ok(called.into_iter().map(|(service, port)| format!("{service} {port}")).collect())
    }

    const OWN: &str = "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"envoy-admin\"} 1";

    /// The text is Envoy 1.40's.
    #[test]
    fn the_service_ports_that_were_called_are_read_and_nothing_else() {
        let lines = [
            "# TYPE envoy_cluster_upstream_rq_total counter",
            OWN,
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"local|8080|http\"} 9",
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"passthrough-outbound\"} 9",
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"shop/db|5432|pod\"} 1",
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"shop/never|80\"} 0",
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"smc-controller\"} 2",
            "envoy_cluster_upstream_rq_total{tag=\"a\",envoy_cluster_name=\"shop/web|80\"} 2",
            "envoy_cluster_upstream_cx_total{envoy_cluster_name=\"shop/other|80\"} 2",
        ];
        assert_eq!(of(&lines).unwrap(), ["shop/db 5432", "shop/web 80"]);
        assert_eq!(of(&[OWN]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_answer_of_a_sidecar_does_not_pass_for_no_calls() {
        let unfinished = "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"envoy-admin";
        for lines in
            [&[][..], &["<html>"], &["# TYPE envoy_cluster_upstream_rq_total counter"], &[unfinished]]
        {
            assert_eq!(of(lines), Err(NotStatistics), "{lines:?}");
        }
    }
}
