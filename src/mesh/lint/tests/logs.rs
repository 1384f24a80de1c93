//! Breaks the rules for what is logged.

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::config::core::v3::{
    DataSource, GrpcService, HeaderValue, SubstitutionFormatString, TypedExtensionConfig,
};
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};
use envoy_types::pb::opentelemetry::proto::common::v1::{
    AnyValue, ArrayValue, KeyValue, KeyValueList, any_value,
};

use super::*;

fn log(format: SubstitutionFormatString) -> Vec<AccessLog> {
    let config =
        StdoutAccessLog { access_log_format: Some(stdout_access_log::AccessLogFormat::LogFormat(format)) };
    vec![AccessLog { config_type: Some(ConfigType::TypedConfig(pack_any(config))), ..AccessLog::default() }]
}

fn text(specifier: Specifier) -> SubstitutionFormatString {
    let source = DataSource { specifier: Some(specifier), ..DataSource::default() };
    SubstitutionFormatString {
        format: Some(Format::TextFormatSource(source)),
        ..SubstitutionFormatString::default()
    }
}

fn inline(line: &str) -> SubstitutionFormatString {
    text(Specifier::InlineString(line.to_owned()))
}

/// A JSON object with a text deep within.
fn json(line: &str) -> SubstitutionFormatString {
    let text = Value { kind: Some(Kind::StringValue(line.to_owned())) };
    let object = Struct { fields: [("a".to_owned(), text)].into() };
    let list = ListValue { values: vec![Value { kind: Some(Kind::StructValue(object)) }] };
    let members = [("b".to_owned(), Value { kind: Some(Kind::ListValue(list)) })];
    SubstitutionFormatString {
        format: Some(Format::JsonFormat(Struct { fields: members.into() })),
        ..SubstitutionFormatString::default()
    }
}

/// Records for a collector, after a change.
fn records(change: impl FnOnce(&mut OpenTelemetryAccessLogConfig)) -> Vec<AccessLog> {
    let server = EnvoyGrpc { cluster_name: names::INBOUND_LOGS.to_owned(), ..EnvoyGrpc::default() };
    let mut config = OpenTelemetryAccessLogConfig {
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(server)),
            ..GrpcService::default()
        }),
        body: Some(record("%PROTOCOL%")),
        ..OpenTelemetryAccessLogConfig::default()
    };
    change(&mut config);
    vec![AccessLog { config_type: Some(ConfigType::TypedConfig(pack_any(config))), ..AccessLog::default() }]
}

fn record(text: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) }
}

/// A record's text deep within.
fn nested(text: &str) -> AnyValue {
    let list = ArrayValue { values: vec![record(text)] };
    let list = AnyValue { value: Some(any_value::Value::ArrayValue(list)) };
    let member = KeyValue { key: "a".to_owned(), value: Some(list), ..KeyValue::default() };
    AnyValue { value: Some(any_value::Value::KvlistValue(KeyValueList { values: vec![member] })) }
}

#[test]
fn records_go_to_the_collector_and_have_known_values() {
    let to = |cluster: &str| {
        records(|config| {
            let server = EnvoyGrpc { cluster_name: cluster.to_owned(), ..EnvoyGrpc::default() };
            config.grpc_service.as_mut().unwrap().target_specifier = Some(TargetSpecifier::EnvoyGrpc(server));
        })
    };
    let with =
        |value: any_value::Value| records(|config| config.body = Some(AnyValue { value: Some(value) }));
    for (logs, fault) in [
        (records(|_| {}), ""),
        (to(names::OUTBOUND_LOGS), "another server"),
        (to("shop/a|80"), "another server"),
        (records(|config| config.grpc_service = None), "another server"),
        (records(|config| config.body = Some(record("%BOGUS%"))), "an operator that Envoy"),
        (records(|config| config.body = Some(nested("%ENVIRONMENT(TOKEN)%"))), "an operator that Envoy"),
        (records(|config| config.body = None), "an operator that Envoy"),
        (with(any_value::Value::IntValue(1)), "an operator that Envoy"),
        (
            records(|config| {
                let Some(any_value::Value::KvlistValue(list)) = nested("%BOGUS%").value else {
                    unreachable!("a list")
                };
                config.attributes = Some(list);
            }),
            "an operator that Envoy",
        ),
        (
            records(|config| config.filter_state_objects_to_log.push("a".to_owned())),
            "more than a body and attributes",
        ),
        (
            records(|config| {
                let service = config.grpc_service.as_mut().unwrap();
                service.initial_metadata.push(HeaderValue::default());
            }),
            "headers of its own",
        ),
    ] {
        let faults = inbound_http(|manager| manager.access_log.clone_from(&logs));
        assert!(if fault.is_empty() { faults.is_empty() } else { faults.contains(fault) }, "{faults}");
    }
    let reader = broken(ResourceType::Listener, names::PROMETHEUS_LISTENER, |listener: &mut Listener| {
        unpacked(&mut listener.filter_chains[0], |manager: &mut HttpConnectionManager| {
            manager.access_log = records(|_| {});
        });
    });
    assert!(reader.contains("reads the statistics"), "{reader}");
}

#[test]
fn what_is_logged_has_a_known_format_and_goes_to_the_standard_output() {
    let extended = SubstitutionFormatString {
        formatters: vec![TypedExtensionConfig::default()],
        ..inline("%PROTOCOL%")
    };
    let file = pack_any(FileAccessLog::default());
    let file = AccessLog { config_type: Some(ConfigType::TypedConfig(file)), ..AccessLog::default() };
    for (logs, fault) in [
        (log(inline("%BOGUS%")), "an operator that Envoy"),
        (log(inline("%ENVIRONMENT(TOKEN)%")), "an operator that Envoy"),
        (log(text(Specifier::Filename("/proc/self/environ".to_owned()))), "an operator that Envoy"),
        (log(SubstitutionFormatString::default()), "an operator that Envoy"),
        (log(extended), "an operator that Envoy"),
        (vec![file], "logs elsewhere"),
        (vec![AccessLog::default()], "without a configuration"),
        (log(inline("%PROTOCOL%")), ""),
        (log(json("%BOGUS%")), "an operator that Envoy"),
        (log(json("%PROTOCOL%")), ""),
    ] {
        let http = inbound_http(|manager| manager.access_log.clone_from(&logs));
        let tcp = inbound(
            |chain| unpacked(chain, |proxy: &mut TcpProxy| proxy.access_log.clone_from(&logs)),
            "inbound_90_tcp",
        );
        let own = broken(ResourceType::Listener, names::INBOUND_LISTENER, |listener: &mut Listener| {
            listener.access_log.clone_from(&logs);
        });
        for faults in [http, tcp, own] {
            assert!(if fault.is_empty() { faults.is_empty() } else { faults.contains(fault) }, "{faults}");
        }
    }
}
