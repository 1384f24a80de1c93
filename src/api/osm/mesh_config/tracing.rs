//! `observability.tracing`: a Zipkin collector to which sidecars report what they did with a request.
//!
//! Owns its fields. A field that cannot be read leaves all traces out: no span goes to an address that the
//! author did not name.

use std::sync::Arc;

use smc_model::outside_server::{OutsideServer, ServerHost};
use smc_model::tracing::Tracing;
use smc_types::ids::ServiceId;
use smc_types::text::truncated;

use crate::osm::outside_server;
use crate::reading::{Fields, Findings, Node};

/// OSM's defaults: the service of this name in the control plane's namespace, its port, and the path.
const SERVICE: &str = "jaeger";
const PORT: u16 = 9411;
const ENDPOINT: &str = "/api/v2/spans";

/// The longest path. Every filter chain has it.
pub(super) const MAX_ENDPOINT: usize = 256;

/// Reads the field of a MeshConfig in this namespace. `None` means that nothing is traced.
pub(super) fn read(node: Option<Node>, namespace: &str, findings: &mut Findings) -> Option<Arc<Tracing>> {
    let mut fields = node.filter(|node| !node.value.is_null())?.object(findings)?;
    let Some(enable) = fields.take("enable").filter(|node| !node.value.is_null()) else {
        if fields.has("address") {
            findings.warning(&fields.path("enable"), "is missing: nothing is traced");
        }
        return None;
    };
    // It asks for nothing, whatever its other fields say.
    if enable.boolean(findings) != Some(true) {
        return None;
    }
    let host = match declared(&mut fields, "address") {
        Some(node) => outside_server::host(node, findings),
        None => ServiceId::new(namespace, SERVICE).ok().map(|id| ServerHost::Name(id.fqdn())),
    };
    let port = declared(&mut fields, "port").map_or(Some(PORT), |node| outside_server::port(node, findings));
    let path = match declared(&mut fields, "endpoint") {
        Some(node) => endpoint(node, findings),
        None => Some(ENDPOINT.to_owned()),
    };
    let sampling = match fields.take("samplingPercent").filter(|node| !node.value.is_null()) {
        Some(node) => percent(&node, findings),
        None => Some(Tracing::ALL),
    };
    let (place, address) = (fields.path("enable"), fields.path("address"));
    fields.finish(findings);
    let traced = || {
        let collector = OutsideServer { host: host?, port: port? };
        Some(Arc::new(Tracing { collector, path: path?, sampling: sampling? }))
    };
    let traced = traced();
    match &traced {
        None => {
            findings.error(&place, "has no effect, since another field cannot be read: nothing is traced");
        }
        Some(traced) => {
            let readable = "the paths of requests, with their queries, can be read";
            outside_server::warn_of_clear_text(&traced.collector, &address, readable, findings);
        }
    }
    traced
}

/// A field whose empty text, and whose zero, mean OSM's default.
fn declared(fields: &mut Fields, name: &str) -> Option<Node> {
    fields.take(name).filter(|node| !super::asks_for_nothing(&node.value))
}

fn endpoint(node: Node, findings: &mut Findings) -> Option<String> {
    let path = node.path.clone();
    let text = node.text(findings)?;
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !is_path || text.len() > MAX_ENDPOINT {
        let shown = truncated(&text, 60);
        findings
            .error(&path, format!("is {shown:?}, which is not a path of at most {MAX_ENDPOINT} characters"));
        return None;
    }
    Some(text)
}

/// A percentage, in hundredths of a percent.
fn percent(node: &Node, findings: &mut Findings) -> Option<u16> {
    let share = node.value.as_f64().filter(|percent| (0.0..=100.0).contains(percent));
    if share.is_none() {
        let shown = truncated(&node.value.to_string(), 40);
        findings.error(&node.path, format!("is {shown}, which is no number from 0 to 100"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10,000")]
    share.map(|percent| (percent * 100.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::osm::mesh_config::{MeshConfig, read_mesh_config};
    use smc_types::problem::Reading;

    fn reading(field: &Value) -> Reading<MeshConfig> {
        let spec = json!({"observability": {"tracing": field}});
        read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), spec)
    }

    fn read(field: &Value) -> Option<Tracing> {
        reading(field).object.unwrap().tracing.map(|read| Tracing::clone(&read))
    }

    /// The fields with problems, without the part that all have.
    fn fields(field: &Value) -> Vec<String> {
        let problems = reading(field).problems.into_iter();
        problems.map(|problem| problem.field.replace("spec.observability.tracing", "")).collect()
    }

    fn at(host: &str) -> Tracing {
        Tracing {
            collector: OutsideServer { host: ServerHost::Name(host.to_owned()), port: 9411 },
            path: "/api/v2/spans".to_owned(),
            sampling: Tracing::ALL,
        }
    }

    /// OSM's guide sets `enable` and `address` alone.
    #[test]
    fn what_is_left_out_is_as_in_osm() {
        for (sentence, field, host) in [
            ("all", json!({"enable": true}), "jaeger.smc-system.svc.cluster.local"),
            (
                "what is empty",
                json!({"enable": true, "address": "", "port": 0, "endpoint": ""}),
                "jaeger.smc-system.svc.cluster.local",
            ),
            (
                "the guide's",
                json!({"enable": true, "address": "jaeger.jaeger.svc.cluster.local", "port": 9411,
                    "endpoint": "/api/v2/spans"}),
                "jaeger.jaeger.svc.cluster.local",
            ),
        ] {
            assert_eq!(read(&field), Some(at(host)), "{sentence}");
            assert_eq!(fields(&field), [".address"], "{sentence}: they go in clear text");
        }
    }

    #[test]
    fn a_collector_beside_the_sidecar_is_reached_within_the_pod() {
        assert_eq!(fields(&json!({"enable": true, "address": "127.0.0.1"})).len(), 0);
    }

    #[test]
    fn nothing_is_traced_unless_it_is_enabled() {
        for (field, problems) in [
            (json!(null), vec![]),
            (json!({}), vec![]),
            // What OSM's installation writes.
            (json!({"enable": false, "port": 9411, "address": "%%", "samplingPercent": -1}), vec![]),
            (json!({"enable": null}), vec![]),
            (json!({"port": 9411, "endpoint": "/api/v2/spans"}), vec![]),
            (json!({"address": "jaeger.example"}), vec![".enable"]),
            (json!({"enable": "true"}), vec![".enable"]),
            (json!([]), vec![""]),
        ] {
            assert_eq!(
                (read(&field), fields(&field)),
                (None, problems.iter().map(|p| (*p).to_owned()).collect())
            );
        }
    }

    #[test]
    fn a_field_that_cannot_be_read_leaves_all_traces_out() {
        for (name, value) in [
            ("address", json!("a b")),
            ("address", json!(["a"])),
            ("address", json!("224.0.0.1")),
            ("port", json!(65536)),
            ("port", json!("9411")),
            ("port", json!(15000)),
            ("endpoint", json!("api")),
            ("endpoint", json!("/a b")),
            ("endpoint", json!("/a\r\nhost: b")),
            ("endpoint", json!(format!("/{}", "x".repeat(MAX_ENDPOINT)))),
            ("samplingPercent", json!(-1)),
            ("samplingPercent", json!(100.01)),
            ("samplingPercent", json!("10")),
        ] {
            let mut field = json!({"enable": true, "address": "192.0.2.7"});
            field[name] = value.clone();
            assert_eq!(read(&field), None, "{name} {value}");
            assert_eq!(fields(&field), [format!(".{name}"), ".enable".to_owned()], "{name} {value}");
        }
    }

    #[test]
    fn a_rate_counts_to_a_hundredth_of_a_percent() {
        for (percent, hundredths) in [("0", 0), ("0.01", 1), ("1", 100), ("33.333", 3333), ("100", 10_000)] {
            let field = json!({"enable": true, "samplingPercent": percent.parse::<f64>().unwrap()});
            assert_eq!(read(&field).map(|read| read.sampling), Some(hundredths), "{percent}");
        }
    }
}
