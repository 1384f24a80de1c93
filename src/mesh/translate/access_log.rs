//! The access log: one line of JSON for each request or connection, on Envoy's standard output.
//!
//! Owns the fields, and what counts as a failure: by default nothing else is logged. The generated
//! `google.protobuf.Struct` holds a hash map, whose order would change the bytes, so an equivalent message
//! with an ordered map is encoded instead.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3 as log;
use envoy_types::pb::envoy::config::core::v3::RuntimeUInt32;
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::{Any, Value, value};
use envoy_types::util::pack_any;
use log::access_log::ConfigType;
use log::access_log_filter::FilterSpecifier;
use log::comparison_filter::Op;
use log::grpc_status_filter::Status as Grpc;
use prost::{Message, Name};
use smc_model::sidecar_settings::AccessLog;

use super::http_match;

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

/// Logs HTTP requests.
pub(super) fn http(log: AccessLog) -> Vec<log::AccessLog> {
    logged(log, HTTP, http_failures)
}

/// Logs HTTP requests from outside of the mesh.
pub(super) fn ingress(log: AccessLog) -> Vec<log::AccessLog> {
    logged(log, INGRESS, http_failures)
}

/// Logs connections.
pub(super) fn tcp(log: AccessLog) -> Vec<log::AccessLog> {
    logged(log, TCP, tcp_failures)
}

fn logged(
    log: AccessLog,
    fields: &[(&str, &str)],
    failures: impl FnOnce() -> FilterSpecifier,
) -> Vec<log::AccessLog> {
    let filter = match log {
        AccessLog::Off => return Vec::new(),
        AccessLog::All => None,
        AccessLog::Failures => Some(filter(failures())),
    };
    vec![log::AccessLog { filter, ..stdout(fields) }]
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
}

/// `google.protobuf.Struct` with an ordered map.
#[derive(Clone, PartialEq, Message)]
struct OrderedStruct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

fn stdout(fields: &[(&str, &str)]) -> log::AccessLog {
    let fields = fields.iter().map(|&(key, format)| {
        (key.to_owned(), Value { kind: Some(value::Kind::StringValue(format.to_owned())) })
    });
    let config =
        Stdout { log_format: Some(Format { json_format: Some(OrderedStruct { fields: fields.collect() }) }) };
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

    use super::*;

    #[test]
    fn the_ordered_message_reads_back_as_envoys_own() {
        for (logs, expected) in [(http(AccessLog::All), HTTP), (tcp(AccessLog::All), TCP)] {
            let [log] = logs.try_into().unwrap();
            assert_eq!(log.filter, None);
            let Some(ConfigType::TypedConfig(any)) = log.config_type else { panic!("no config") };
            let decoded = StdoutAccessLog::decode(&*any.value).unwrap();
            let Some(AccessLogFormat::LogFormat(format)) = decoded.access_log_format else {
                panic!("no format")
            };
            let Some(Generated::JsonFormat(json)) = format.format else { panic!("not JSON") };
            assert_eq!(json.fields.len(), expected.len());
            for (key, text) in expected {
                assert_eq!(json.fields[*key].kind, Some(value::Kind::StringValue((*text).to_owned())));
            }
        }
    }

    #[test]
    fn nothing_is_logged_where_the_log_is_off_and_failures_have_a_filter() {
        assert!(http(AccessLog::Off).is_empty() && tcp(AccessLog::Off).is_empty());
        for logs in [http(AccessLog::Failures), tcp(AccessLog::Failures)] {
            let [log] = logs.try_into().unwrap();
            assert!(log.filter.is_some());
        }
    }
}
