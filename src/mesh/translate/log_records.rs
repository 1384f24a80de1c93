//! What a collector of OpenTelemetry is sent: one record for each line of the log, over gRPC (OTLP).
//!
//! Owns the form of a record. Its body is the line: a text as a text, and a JSON object as a list of names
//! and values, so that what a peer chose cannot break out of its value, as it could out of JSON within a
//! text. Envoy takes texts for values, and lists of them, alone: a number or a boolean is sent as a text.
//! Envoy keeps up to 16 KiB of records, or those of one second, and sends them at once; what it cannot send
//! it drops.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3 as log;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::opentelemetry::proto::common::v1::{
    AnyValue, ArrayValue, KeyValue, KeyValueList, any_value,
};
use envoy_types::util::pack_any;
use log::access_log::ConfigType;
use smc_model::access_log::LogCollector;
use smc_model::log_format::{Line, LogLine, LogValue, number_text};

/// Sends records with this body to the `cluster` of a collector. Their `log_name` is its name. What a peer
/// chose is cut to `longest` bytes.
pub(super) fn log(collector: &LogCollector, cluster: &str, body: AnyValue, longest: u32) -> log::AccessLog {
    let server = core::grpc_service::EnvoyGrpc {
        cluster_name: cluster.to_owned(),
        ..core::grpc_service::EnvoyGrpc::default()
    };
    let attributes = collector.attributes.what.lines();
    let attributes = attributes.map(|(name, line)| member(name, text(line.print(longest))));
    let config = OpenTelemetryAccessLogConfig {
        grpc_service: Some(core::GrpcService {
            target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(server)),
            ..core::GrpcService::default()
        }),
        log_name: cluster.to_owned(),
        body: Some(body),
        attributes: Some(KeyValueList { values: attributes.collect() }),
        ..OpenTelemetryAccessLogConfig::default()
    };
    log::AccessLog {
        name: "envoy.access_loggers.open_telemetry".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack_any(config))),
        ..log::AccessLog::default()
    }
}

/// A body of SMC's own fields, in which what a peer chose is cut to `longest` bytes: Envoy keeps records in
/// memory.
pub(super) fn own(fields: &[(&str, &str)], longest: u32) -> AnyValue {
    let cut = |text: &str| Line::parse(text).map_or_else(|_| text.to_owned(), |line| line.print(longest));
    list(fields.iter().map(|&(name, line)| member(name, text(cut(line)))).collect())
}

/// A body in a format that a person wrote.
pub(super) fn as_declared(line: &LogLine, longest: u32) -> AnyValue {
    match line {
        // The line feed ends a line of a file.
        LogLine::Text(line) => text(line.print(longest).trim_end_matches('\n').to_owned()),
        LogLine::Json(members) => object(members, longest),
    }
}

fn object(members: &BTreeMap<String, LogValue>, longest: u32) -> AnyValue {
    list(members.iter().map(|(name, inside)| member(name, value(inside, longest))).collect())
}

fn value(value_of: &LogValue, longest: u32) -> AnyValue {
    match value_of {
        LogValue::Line(line) => text(line.print(longest)),
        LogValue::Number(number) => text(number_text(*number)),
        LogValue::Bool(switch) => text(switch.to_string()),
        LogValue::Null => text(String::new()),
        LogValue::Object(members) => object(members, longest),
        LogValue::List(values) => {
            let values = values.iter().map(|inside| value(inside, longest)).collect();
            AnyValue { value: Some(any_value::Value::ArrayValue(ArrayValue { values })) }
        }
    }
}

fn text(text: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text)) }
}

fn list(values: Vec<KeyValue>) -> AnyValue {
    AnyValue { value: Some(any_value::Value::KvlistValue(KeyValueList { values })) }
}

fn member(name: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use smc_model::log_format::LogFormat;

    use super::*;

    fn body(format: &str) -> AnyValue {
        as_declared(&LogFormat::parse(format).unwrap().line().unwrap(), 7)
    }

    #[test]
    fn a_line_is_a_text_and_an_object_is_names_and_values() {
        assert_eq!(body("100%% %REQ(X)%"), text("100%% %REQ(X):7%".to_owned()));
        let nested = r#"{"b": [1.5, true, null, "%REQ(X)%"], "a": {"n": "\"}, 1e300"}}"#;
        let of = |texts: [&str; 4]| {
            let values = texts.map(|one| text(one.to_owned())).to_vec();
            AnyValue { value: Some(any_value::Value::ArrayValue(ArrayValue { values })) }
        };
        let expected = list(vec![
            member("a", list(vec![member("n", text("\"}, 1e300".to_owned()))])),
            member("b", of(["1.5", "true", "", "%REQ(X):7%"])),
        ]);
        assert_eq!(body(nested), expected);
    }
}
