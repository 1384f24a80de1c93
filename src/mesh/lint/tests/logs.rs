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
use envoy_types::pb::envoy::extensions::access_loggers::stats::v3 as stats;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::r#type::v3::Scope;
use envoy_types::pb::google::protobuf::{ListValue, Struct, UInt32Value, Value, value::Kind};
use envoy_types::pb::opentelemetry::proto::common::v1::{
    AnyValue, ArrayValue, KeyValue, KeyValueList, any_value,
};

use stats::config::{Counter, Gauge, Histogram, Stat, Tag};

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

/// Metrics of requests, after a change.
fn metrics(change: impl FnOnce(&mut stats::Config)) -> Vec<AccessLog> {
    let tag = Tag { name: "a".to_owned(), value_format: "%RESPONSE_CODE%".to_owned(), ..Tag::default() };
    let stat = Some(Stat { name: "b".to_owned(), tags: vec![tag] });
    let bound = Some(UInt32Value { value: 1 });
    let mut config = stats::Config {
        counters: vec![Counter { stat, ..Counter::default() }],
        stats_scope: Some(Scope { max_counters: bound, max_histograms: bound, ..Scope::default() }),
        ..stats::Config::default()
    };
    change(&mut config);
    vec![AccessLog { config_type: Some(ConfigType::TypedConfig(pack_any(config))), ..AccessLog::default() }]
}

/// The first connection manager of calls, after a change.
fn outbound_http(change: impl FnOnce(&mut HttpConnectionManager)) -> String {
    broken(ResourceType::Listener, names::OUTBOUND_LISTENER, |listener: &mut Listener| {
        let is_manager = |chain: &&mut FilterChain| {
            chain.filters.iter().any(|filter| filter.name.contains("http_connection_manager"))
        };
        unpacked(listener.filter_chains.iter_mut().find(is_manager).unwrap(), change);
    })
}

#[test]
fn no_request_chooses_how_many_series_a_sidecar_counts() {
    let by = |format: &str| {
        metrics(|config| {
            config.counters[0].stat.as_mut().unwrap().tags[0].value_format = format.to_owned();
        })
    };
    let scope = |change: fn(&mut Scope)| metrics(|config| change(config.stats_scope.as_mut().unwrap()));
    for (logs, fault) in [
        (metrics(|_| {}), ""),
        (by("Service"), ""),
        (by("%CEL(xds.node.metadata.namespace)%"), ""),
        (by("%CLUSTER_METADATA(mesh.smc.dev:name)%"), ""),
        (by("%REQ(:PATH)%"), "a label that a request"),
        (by("%CEL(request.path)%"), "a label that a request"),
        (by("%CEL(xds.node.metadata.a + request.path)%"), "a label that a request"),
        (by("%CLUSTER_METADATA(mesh.smc.dev:a)% %REQ(:PATH)%"), "a label that a request"),
        (by("%ENVIRONMENT(TOKEN)%"), "a label that a request"),
        (metrics(|config| config.gauges.push(Gauge::default())), "a label that a request"),
        (
            metrics(|config| {
                let path = Tag { value_format: "%REQ(:PATH)%".to_owned(), ..Tag::default() };
                let stat = Some(Stat { name: "d".to_owned(), tags: vec![path] });
                config.histograms.push(Histogram { stat, ..Histogram::default() });
            }),
            "a label that a request",
        ),
        (scope(|scope| scope.max_counters = None), "without a bound"),
        (scope(|scope| scope.max_histograms = None), "without a bound"),
        (scope(|scope| scope.sharing_name.push('a')), "shares a scope"),
        (metrics(|config| config.stats_scope = None), "without a bound"),
    ] {
        let faults = outbound_http(|manager| manager.access_log.clone_from(&logs));
        assert!(if fault.is_empty() { faults.is_empty() } else { faults.contains(fault) }, "{faults}");
    }
    let inbound = inbound_http(|manager| manager.access_log = metrics(|_| {}));
    assert!(inbound.contains("no application asked for"), "{inbound}");
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
