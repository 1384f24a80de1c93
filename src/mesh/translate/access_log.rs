//! The access log: one line for each request or connection, on Envoy's standard output, and to a collector
//! where one is declared.
//!
//! Owns SMC's own fields, as JSON, and what counts as a failure: by default nothing else is logged.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3 as log;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::{DataSource, RuntimeUInt32};
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use log::access_log::ConfigType;
use log::access_log_filter::FilterSpecifier;
use log::comparison_filter::Op;
use log::grpc_status_filter::Status as Grpc;
use prost::{Message, Name};
use smc_model::access_log::{AccessLog, Logged};
use smc_model::log_format::{LONGEST, LogLine, LogValue};

use super::ordered_struct::{OrderedKind, OrderedList, OrderedStruct, OrderedValue};
use super::{http_match, log_records};

/// The fields of an HTTP request.
const HTTP: &[(&str, &str)] = &[
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration_ms", "%DURATION%"),
    ("flags", "%RESPONSE_FLAGS%"),
    ("method", "%REQ(:METHOD)%"),
    // Not X-ENVOY-ORIGINAL-PATH, as is usual: the mesh rewrites no path, so only a caller could have set it.
    ("path", "%REQ(:PATH)%"),
    ("peer", "%DOWNSTREAM_PEER_URI_SAN%"),
    ("policy", "%DYNAMIC_METADATA(envoy.filters.http.rbac:enforced_effective_policy_id)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("response_details", "%RESPONSE_CODE_DETAILS%"),
    ("start_time", "%START_TIME%"),
    ("status", "%RESPONSE_CODE%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_peer", "%UPSTREAM_PEER_URI_SAN%"),
];

/// The fields of a request from outside of the mesh. A stranger can have one refused, so that what it chose
/// is cut: a path alone may have 256 KiB. It has an address where peers within the mesh have names.
const INGRESS: &[(&str, &str)] = &[
    ("authority", "%REQ(:AUTHORITY):256%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("client", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"),
    ("duration_ms", "%DURATION%"),
    ("flags", "%RESPONSE_FLAGS%"),
    ("method", "%REQ(:METHOD):32%"),
    ("path", "%REQ(:PATH):512%"),
    ("peer", "%DOWNSTREAM_PEER_DNS_SAN%"),
    ("policy", "%DYNAMIC_METADATA(envoy.filters.http.rbac:enforced_effective_policy_id)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID):64%"),
    ("response_details", "%RESPONSE_CODE_DETAILS%"),
    ("start_time", "%START_TIME%"),
    ("status", "%RESPONSE_CODE%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
];

/// The fields of a connection without HTTP.
const TCP: &[(&str, &str)] = &[
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("connection_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("destination", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("duration_ms", "%DURATION%"),
    ("flags", "%RESPONSE_FLAGS%"),
    ("peer", "%DOWNSTREAM_PEER_URI_SAN%"),
    ("policy", "%DYNAMIC_METADATA(envoy.filters.network.rbac:enforced_effective_policy_id)%"),
    ("start_time", "%START_TIME%"),
    // Why a caller was refused. One that may not call has a name in `peer`.
    ("tls_failure", "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_peer", "%UPSTREAM_PEER_URI_SAN%"),
];

/// The statuses of gRPC by which a server, or a sidecar, says that it failed or refused. The others tell a
/// caller about its request, as 404 does.
const GRPC_FAILURES: [Grpc; 9] = [
    Grpc::Unknown,
    Grpc::DeadlineExceeded,
    Grpc::PermissionDenied,
    Grpc::ResourceExhausted,
    Grpc::Unimplemented,
    Grpc::Internal,
    Grpc::Unavailable,
    Grpc::DataLoss,
    Grpc::Unauthenticated,
];

/// When a connection failed or was refused, as an expression of CEL: no native filter knows it.
const TCP_FAILURES: &str = "response.flags != 0 || connection.transport_failure_reason != '' || connection.termination_details != ''";

/// The most bytes of what a stranger chose, such as a header, in a format that a person wrote.
const LONGEST_OF_A_STRANGER: u32 = 512;

/// What the filters of a listener log, made once for all of its chains.
pub(super) struct Logs {
    /// Of HTTP requests.
    pub(super) http: Vec<log::AccessLog>,
    /// Of HTTP requests from outside of the mesh.
    pub(super) ingress: Vec<log::AccessLog>,
    /// Of connections.
    pub(super) tcp: Vec<log::AccessLog>,
}

impl Logs {
    /// What is logged, with this cluster of the collector.
    pub(super) fn of(log: &AccessLog, collector: &str) -> Self {
        Self { http: http(log, collector), ingress: ingress(log, collector), tcp: tcp(log, collector) }
    }
}

/// Logs HTTP requests.
fn http(log: &AccessLog, collector: &str) -> Vec<log::AccessLog> {
    logged(log, collector, HTTP, LONGEST, http_failures)
}

/// Logs HTTP requests from outside of the mesh.
fn ingress(log: &AccessLog, collector: &str) -> Vec<log::AccessLog> {
    logged(log, collector, INGRESS, LONGEST_OF_A_STRANGER, http_failures)
}

/// Logs connections.
fn tcp(log: &AccessLog, collector: &str) -> Vec<log::AccessLog> {
    logged(log, collector, TCP, LONGEST, tcp_failures)
}

fn logged(
    log: &AccessLog,
    cluster: &str,
    fields: &[(&str, &str)],
    longest: u32,
    failures: impl FnOnce() -> FilterSpecifier,
) -> Vec<log::AccessLog> {
    let filter = match log.logged {
        Logged::Off => return Vec::new(),
        Logged::All => None,
        Logged::Failures => Some(filter(failures())),
    };
    let declared = log.format.as_ref().and_then(|format| format.what.line());
    let format = declared.as_ref().map_or_else(|| own(fields), |line| as_declared(line, longest));
    let mut logs = vec![log::AccessLog { filter: filter.clone(), ..stdout(format) }];
    logs.extend(log.collector.as_ref().map(|collector| {
        let body = declared.as_ref().map_or_else(
            || log_records::own(fields, longest),
            |line| log_records::as_declared(line, longest),
        );
        log::AccessLog { filter, ..log_records::log(collector, cluster, body, longest) }
    }));
    logs
}

/// What Envoy has a flag for, 403, 5xx, and what gRPC has in their place. An application's answers of these
/// kinds are logged with the sidecar's own: a reader asks who gave them.
fn http_failures() -> FilterSpecifier {
    any(vec![
        FilterSpecifier::ResponseFlagFilter(log::ResponseFlagFilter::default()),
        status(Op::Eq, 403),
        status(Op::Ge, 500),
        // Of a request that is none of gRPC, Envoy would make a status of the one of HTTP.
        FilterSpecifier::AndFilter(log::AndFilter {
            filters: vec![
                filter(is_grpc()),
                filter(FilterSpecifier::GrpcStatusFilter(log::GrpcStatusFilter {
                    statuses: GRPC_FAILURES.map(Into::into).to_vec(),
                    exclude: false,
                })),
            ],
        }),
    ])
}

fn tcp_failures() -> FilterSpecifier {
    FilterSpecifier::ExtensionFilter(log::ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(log::extension_filter::ConfigType::TypedConfig(pack_any(ExpressionFilter {
            expression: TCP_FAILURES.to_owned(),
            ..ExpressionFilter::default()
        }))),
    })
}

fn filter(specifier: FilterSpecifier) -> log::AccessLogFilter {
    log::AccessLogFilter { filter_specifier: Some(specifier) }
}

fn any(filters: Vec<FilterSpecifier>) -> FilterSpecifier {
    FilterSpecifier::OrFilter(log::OrFilter { filters: filters.into_iter().map(filter).collect() })
}

fn status(op: Op, value: u32) -> FilterSpecifier {
    // Envoy wants the key of a runtime value that could replace this one. None is set.
    let value = RuntimeUInt32 { default_value: value, runtime_key: "smc".to_owned() };
    let comparison = Some(log::ComparisonFilter { op: op.into(), value: Some(value) });
    FilterSpecifier::StatusCodeFilter(log::StatusCodeFilter { comparison })
}

fn is_grpc() -> FilterSpecifier {
    let prefix = MatchPattern::Prefix("application/grpc".to_owned());
    FilterSpecifier::HeaderFilter(log::HeaderFilter {
        header: Some(http_match::matcher("content-type", prefix)),
    })
}

/// `StdoutAccessLog` with the fields set here.
#[derive(Clone, PartialEq, Message)]
struct Stdout {
    #[prost(message, optional, tag = "1")]
    log_format: Option<Format>,
}

/// `SubstitutionFormatString` with the fields set here.
#[derive(Clone, PartialEq, Message)]
struct Format {
    #[prost(message, optional, tag = "2")]
    json_format: Option<OrderedStruct>,
    #[prost(message, optional, tag = "5")]
    text_format_source: Option<DataSource>,
}

/// SMC's own fields.
fn own(fields: &[(&str, &str)]) -> Format {
    json(OrderedStruct::of_texts(fields.iter().copied()))
}

/// A format that a person wrote.
fn as_declared(line: &LogLine, longest: u32) -> Format {
    match line {
        LogLine::Text(line) => {
            let source = DataSource {
                specifier: Some(Specifier::InlineString(line.print(longest))),
                ..DataSource::default()
            };
            Format { json_format: None, text_format_source: Some(source) }
        }
        LogLine::Json(members) => json(structure(members, longest)),
    }
}

fn json(fields: OrderedStruct) -> Format {
    Format { json_format: Some(fields), text_format_source: None }
}

fn structure(members: &BTreeMap<String, LogValue>, longest: u32) -> OrderedStruct {
    let fields = members.iter().map(|(name, value)| (name.clone(), ordered(value, longest)));
    OrderedStruct { fields: fields.collect() }
}

fn ordered(value: &LogValue, longest: u32) -> OrderedValue {
    let kind = match value {
        LogValue::Line(line) => OrderedKind::Text(line.print(longest)),
        LogValue::Number(number) => OrderedKind::Number(*number),
        LogValue::Bool(switch) => OrderedKind::Bool(*switch),
        LogValue::Null => OrderedKind::Null(0),
        LogValue::Object(members) => OrderedKind::Object(structure(members, longest)),
        LogValue::List(values) => OrderedKind::List(OrderedList {
            values: values.iter().map(|value| ordered(value, longest)).collect(),
        }),
    };
    OrderedValue { kind: Some(kind) }
}

fn stdout(format: Format) -> log::AccessLog {
    let config = Stdout { log_format: Some(format) };
    log::AccessLog {
        name: "envoy.access_loggers.stdout".to_owned(),
        config_type: Some(ConfigType::TypedConfig(Any {
            type_url: StdoutAccessLog::type_url(),
            value: config.encode_to_vec(),
        })),
        ..log::AccessLog::default()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format as Generated;
    use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::stdout_access_log::AccessLogFormat;
    use envoy_types::pb::google::protobuf::value::Kind;
    use smc_model::declared::Declared;
    use smc_model::log_format::{LogFormat, MAX_FORMAT};
    use smc_types::object_ref::ObjectRef;

    use super::*;

    fn of(logged: Logged, format: Option<&str>) -> AccessLog {
        let declared = |text| Declared {
            what: LogFormat::parse(text).unwrap(),
            by: ObjectRef::Namespace("shop".to_owned()),
        };
        AccessLog { logged, format: format.map(declared), collector: None }
    }

    /// The format as Envoy's own messages have it.
    fn read(logs: Vec<log::AccessLog>) -> Generated {
        let [log] = logs.try_into().unwrap();
        assert_eq!(log.filter, None);
        let Some(ConfigType::TypedConfig(any)) = log.config_type else { panic!("no config") };
        let decoded = StdoutAccessLog::decode(&*any.value).unwrap();
        let Some(AccessLogFormat::LogFormat(format)) = decoded.access_log_format else { panic!("no format") };
        format.format.unwrap()
    }

    #[test]
    fn the_ordered_message_reads_back_as_envoys_own() {
        let all = of(Logged::All, None);
        for (logs, expected) in
            [(http(&all, "logs"), HTTP), (ingress(&all, "logs"), INGRESS), (tcp(&all, "logs"), TCP)]
        {
            let Generated::JsonFormat(json) = read(logs) else { panic!("not JSON") };
            assert_eq!(json.fields.len(), expected.len());
            for (key, text) in expected {
                assert_eq!(json.fields[*key].kind, Some(Kind::StringValue((*text).to_owned())));
            }
        }
        let nested = r#"{"a": {"b": ["%PROTOCOL%", 1.5, true, null, {"c": "%REQ(X)%"}]}}"#;
        let Generated::JsonFormat(json) = read(http(&of(Logged::All, Some(nested)), "logs")) else {
            panic!("not JSON")
        };
        let Some(Kind::StructValue(a)) = &json.fields["a"].kind else { panic!("no object") };
        let Some(Kind::ListValue(list)) = &a.fields["b"].kind else { panic!("no list") };
        let kinds: Vec<_> = list.values.iter().map(|value| value.kind.clone().unwrap()).collect();
        assert_eq!(kinds[0], Kind::StringValue("%PROTOCOL%".to_owned()));
        assert_eq!(kinds[1..4], [Kind::NumberValue(1.5), Kind::BoolValue(true), Kind::NullValue(0)]);
        let Kind::StructValue(last) = &kinds[4] else { panic!("no object") };
        assert_eq!(last.fields["c"].kind, Some(Kind::StringValue("%REQ(X):2048%".to_owned())));
    }

    #[test]
    fn a_text_is_logged_as_it_is_and_a_stranger_fills_less_of_it() {
        let log = of(Logged::All, Some("100%% %REQ(:PATH)% %REQ(X):9%"));
        for (logs, cut) in
            [(http(&log, "logs"), 2048), (tcp(&log, "logs"), 2048), (ingress(&log, "logs"), 512)]
        {
            let Generated::TextFormatSource(source) = read(logs) else { panic!("not text") };
            let text = format!("100%% %REQ(:PATH):{cut}% %REQ(X):9%\n");
            assert_eq!(source.specifier, Some(Specifier::InlineString(text)));
        }
    }

    #[test]
    fn a_format_takes_no_more_than_it_is_estimated_at() {
        for text in [
            "x".to_owned(),
            "%REQ(X-A)%".repeat(60),
            r#"{"a": "%PROTOCOL%", "": ""}"#.to_owned(),
            format!("{{\"a\": [0{}]}}", ",1.5".repeat(60)),
            format!("{{\"a\": [null{}]}}", ",{}".repeat(60)),
            format!("{{\"{}\": [[[[[[true]]]]]]}}", "x".repeat(800)),
        ] {
            let format = LogFormat::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let line = format.line().unwrap();
            let written = as_declared(&line, LONGEST).encoded_len();
            let (least, most) = (line.bytes() / 5, line.bytes() + 8);
            assert!((least..=most).contains(&written), "{text}: {written} bytes, {most} estimated");
            assert!(line.bytes() <= MAX_FORMAT);
        }
    }

    #[test]
    fn nothing_is_logged_where_the_log_is_off_and_failures_have_a_filter() {
        for format in [None, Some("%PROTOCOL%")] {
            let log = |logged| of(logged, format);
            assert!(http(&log(Logged::Off), "logs").is_empty() && tcp(&log(Logged::Off), "logs").is_empty());
            for logs in [http(&log(Logged::Failures), "logs"), tcp(&log(Logged::Failures), "logs")] {
                let [log] = logs.try_into().unwrap();
                assert!(log.filter.is_some());
            }
        }
    }
}
