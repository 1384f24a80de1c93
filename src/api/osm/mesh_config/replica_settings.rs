//! `sidecar.maxDataPlaneConnections` and `observability.osmLogLevel`: what each controller obeys.
//!
//! Owns their values. One that cannot be read leaves the controller as its flags say.

use std::num::NonZeroU32;

use smc_model::replica_settings::LogLevel;
use smc_types::text::truncated;

use crate::reading::{Fields, Findings, mismatch};

/// Reads how many sidecars a replica serves at a time. Zero is OSM's word for no limit.
pub(super) fn max_proxies(fields: &mut Fields, findings: &mut Findings) -> Option<NonZeroU32> {
    let node = fields.take("maxDataPlaneConnections")?;
    let number = node.value.as_u64().and_then(|number| u32::try_from(number).ok());
    let wanted = "a number from 0, which is no limit, to 4294967295";
    number.or_else(|| mismatch(findings, &node.path, wanted, &node.value)).and_then(NonZeroU32::new)
}

/// Reads what a replica logs, by OSM's names. `info`, which OSM's installation presets, leaves it to the
/// flag.
pub(super) fn log_level(fields: &mut Fields, findings: &mut Findings) -> Option<LogLevel> {
    let node = fields.take("osmLogLevel")?;
    let path = node.path.clone();
    match node.text(findings)?.as_str() {
        "" | "info" => None,
        "trace" => Some(LogLevel::Trace),
        "debug" => Some(LogLevel::Debug),
        "warn" => Some(LogLevel::Warn),
        "error" | "fatal" | "panic" => Some(LogLevel::Error),
        "disabled" => Some(LogLevel::Off),
        other => {
            let other = truncated(other, 40);
            let words = "trace, debug, info, warn, error, fatal, panic or disabled";
            findings
                .error(&path, format!("is {other:?}, which is none of {words}; the controller's flag holds"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_model::replica_settings::ReplicaSettings;

    use super::*;
    use crate::osm::mesh_config::read_mesh_config;

    fn read(spec: Value) -> (ReplicaSettings, Vec<String>) {
        let reading = read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), spec);
        let fields = reading.problems.into_iter().map(|problem| problem.field).collect();
        (reading.object.unwrap().replica, fields)
    }

    #[test]
    fn the_number_of_sidecars_is_a_number_and_zero_is_no_limit() {
        for (value, most, problems) in [
            (json!(null), None, 1),
            (json!(0), None, 0),
            (json!(1), Some(1), 0),
            (json!(u32::MAX), Some(u32::MAX), 0),
            (json!(u64::from(u32::MAX) + 1), None, 1),
            (json!(-1), None, 1),
            (json!(1.5), None, 1),
            (json!("100"), None, 1),
        ] {
            let (settings, fields) = read(json!({"sidecar": {"maxDataPlaneConnections": value}}));
            assert_eq!(settings.max_proxies.map(NonZeroU32::get), most, "{value}");
            assert_eq!(fields, vec!["spec.sidecar.maxDataPlaneConnections"; problems], "{value}");
        }
    }

    #[test]
    fn the_log_level_has_osms_names_and_its_preset_leaves_it_to_the_flag() {
        for (value, level, problems) in [
            (json!(null), None, 1),
            (json!(""), None, 0),
            (json!("info"), None, 0),
            (json!("debug"), Some("debug"), 0),
            (json!("trace"), Some("trace"), 0),
            (json!("warn"), Some("warn"), 0),
            (json!("fatal"), Some("error"), 0),
            (json!("panic"), Some("error"), 0),
            (json!("disabled"), Some("off"), 0),
            (json!("DEBUG"), None, 1),
            (json!("debug,h2=trace"), None, 1),
            (json!(7), None, 1),
        ] {
            let (settings, fields) = read(json!({"observability": {"osmLogLevel": value}}));
            assert_eq!(settings.log_level.map(LogLevel::name), level, "{value}");
            assert_eq!(fields, vec!["spec.observability.osmLogLevel"; problems], "{value}");
        }
    }
}
