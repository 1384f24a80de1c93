//! `traffic.inboundExternalAuthorization`: a server that is asked about each request to an application.
//!
//! Owns its fields. What cannot be read denies: where it is wanted and names no server that could be asked,
//! every request is denied, as where the server is away.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use smc_model::external_authorization::ExternalAuthorization;
use smc_types::text::truncated;

use crate::osm::outside_server;
use crate::osm::policy::duration_within;
use crate::reading::{Fields, Findings, Node};

/// OSM's defaults.
const STAT_PREFIX: &str = "inboundExtAuthz";
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long an answer may take. A request is kept for as long.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);

/// The longest prefix of statistics, which every one of them has.
const MAX_STAT_PREFIX: usize = 64;

/// Reads the field. `None` means that no server is asked.
pub(super) fn read(node: Option<Node>, findings: &mut Findings) -> Option<Arc<ExternalAuthorization>> {
    let node = node.filter(|node| !node.value.is_null())?;
    let Some(mut fields) = node.object(findings) else { return Some(Arc::new(denying())) };
    let enable = fields.take("enable").filter(|node| !node.value.is_null());
    let Some(enable) = enable.map(|node| node.boolean(findings)) else {
        if fields.has("address") {
            findings.warning(&fields.path("enable"), "is missing: the server is not asked");
        }
        return None;
    };
    // It asks for nothing, whatever its other fields say.
    if enable == Some(false) {
        return None;
    }
    let server = outside_server::read(&mut fields, findings);
    let stat_prefix = stat_prefix(&mut fields, findings).unwrap_or_else(|| STAT_PREFIX.to_owned());
    let timeout = duration_within(&mut fields, "timeout", TIMEOUTS, findings).unwrap_or(TIMEOUT);
    let allow = fields.take("failureModeAllow").and_then(|node| node.boolean(findings)).unwrap_or(false);
    let path = fields.path("address");
    fields.finish(findings);
    match &server {
        None => findings.error(&path, "names no server that could be asked: every request is denied"),
        Some(server) => {
            let readable = "the headers of requests can be read, and answers written";
            outside_server::warn_of_clear_text(server, &path, readable, findings);
        }
    }
    let failure_mode_allow = allow && server.is_some();
    Some(Arc::new(ExternalAuthorization { server, stat_prefix, timeout, failure_mode_allow }))
}

/// What is in force where the field, or the section that it is in, is no object.
pub(super) fn denying() -> ExternalAuthorization {
    ExternalAuthorization {
        server: None,
        stat_prefix: STAT_PREFIX.to_owned(),
        timeout: TIMEOUT,
        failure_mode_allow: false,
    }
}

fn stat_prefix(fields: &mut Fields, findings: &mut Findings) -> Option<String> {
    let node = fields.take("statPrefix")?;
    let path = node.path.clone();
    let text = node.text(findings).filter(|text| !text.is_empty())?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.len() <= MAX_STAT_PREFIX && text.bytes().all(is_word) {
        return Some(text);
    }
    let shown = truncated(&text, 40);
    let message = format!(
        "is {shown:?}, which is not at most {MAX_STAT_PREFIX} letters, digits, - and _; {STAT_PREFIX} holds"
    );
    findings.error(&path, message);
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_model::outside_server::{OutsideServer, ServerHost};

    use super::*;
    use crate::osm::mesh_config::{MeshConfig, read_mesh_config};
    use smc_types::problem::Reading;

    fn reading(field: &Value) -> Reading<MeshConfig> {
        let spec = json!({"traffic": {"inboundExternalAuthorization": field}});
        read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), spec)
    }

    fn read(field: &Value) -> Option<ExternalAuthorization> {
        reading(field).object.unwrap().external_authorization.map(|read| ExternalAuthorization::clone(&read))
    }

    /// The fields with problems, without the part that all have.
    fn fields(field: &Value) -> Vec<String> {
        let problems = reading(field).problems.into_iter();
        let fields =
            problems.map(|problem| problem.field.replace("spec.traffic.inboundExternalAuthorization", ""));
        fields.collect()
    }

    fn at(host: ServerHost) -> ExternalAuthorization {
        ExternalAuthorization { server: Some(OutsideServer { host, port: 9191 }), ..denying() }
    }

    /// OSM's guide on external authorization.
    #[test]
    fn what_osms_guide_says_is_read() {
        let guide = json!({
            "enable": true, "address": "opa.opa.svc.cluster.local", "port": 9191, "statPrefix": "inboundExtAuthz",
            "timeout": "1s", "failureModeAllow": false,
        });
        assert_eq!(read(&guide), Some(at(ServerHost::Name("opa.opa.svc.cluster.local".to_owned()))));
        assert_eq!(fields(&guide), [".address"], "it is asked in clear text");
        let beside = json!({"enable": true, "address": "127.0.0.1", "port": 9191});
        assert_eq!(fields(&beside).len(), 0, "what is beside the sidecar is asked within the pod");
    }

    #[test]
    fn a_server_is_asked_only_where_it_is_enabled() {
        for field in [
            json!(null),
            json!({}),
            json!({"enable": false, "address": "%%", "port": 0, "timeout": "year", "failureModeAllow": "yes"}),
            json!({"enable": null, "failureModeAllow": false}),
        ] {
            assert_eq!((read(&field), fields(&field).len()), (None, 0), "{field}");
        }
        let misspelt = json!({"enabled": true, "address": "192.0.2.7", "port": 9191});
        assert_eq!((read(&misspelt), fields(&misspelt)), (None, vec![".enable".to_owned()]));
    }

    #[test]
    fn what_cannot_be_read_denies() {
        let good = json!({"enable": true, "address": "192.0.2.7", "port": 9191, "failureModeAllow": true});
        assert!(read(&good).unwrap().failure_mode_allow);
        for (name, value, problems) in [
            ("address", json!(5), vec![".address", ".address"]),
            ("address", json!("a b"), vec![".address", ".address"]),
            ("port", json!(0), vec![".port", ".address"]),
            ("port", json!("9191"), vec![".port", ".address"]),
        ] {
            let mut field = good.clone();
            field[name] = value.clone();
            assert_eq!(read(&field), Some(denying()), "{name} {value}");
            assert_eq!(fields(&field), problems, "{name} {value}");
        }
        for missing in ["address", "port"] {
            let mut field = good.clone();
            field.as_object_mut().unwrap().remove(missing);
            assert_eq!(read(&field), Some(denying()), "without {missing}");
        }
        assert_eq!(read(&json!("opa:9191")), Some(denying()));
        let section = read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), json!({"traffic": []}));
        assert_eq!(section.object.unwrap().external_authorization, Some(Arc::new(denying())));
        let mut unclear = good;
        unclear["enable"] = json!("no");
        assert!(read(&unclear).is_some(), "a switch that cannot be read is on");
    }

    #[test]
    fn other_fields_that_cannot_be_read_have_their_defaults() {
        let server = at(ServerHost::Address("192.0.2.7".parse().unwrap()));
        for (name, value) in [
            ("statPrefix", json!("a b")),
            ("statPrefix", json!("x".repeat(65))),
            ("statPrefix", json!(true)),
            ("timeout", json!("0s")),
            ("timeout", json!("61s")),
            ("timeout", json!("soon")),
            ("failureModeAllow", json!("true")),
        ] {
            let mut field = json!({"enable": true, "address": "192.0.2.7", "port": 9191});
            field[name] = value.clone();
            assert_eq!(read(&field), Some(server.clone()), "{name} {value}");
            assert_eq!(fields(&field), [&format!(".{name}"), ".address"], "{name} {value}");
        }
    }
}
