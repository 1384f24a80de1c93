//! The access log: one line of JSON for each request or connection, on Envoy's standard output.
//!
//! Owns the fields. The generated `google.protobuf.Struct` holds a hash map, whose order would
//! change the bytes, so an equivalent message with an ordered map is encoded instead.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType};
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::google::protobuf::{Any, Value, value};
use prost::{Message, Name};

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

/// Logs HTTP requests.
pub(super) fn http() -> AccessLog {
    stdout(HTTP)
}

/// Logs connections.
pub(super) fn tcp() -> AccessLog {
    stdout(TCP)
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

fn stdout(fields: &[(&str, &str)]) -> AccessLog {
    let fields = fields.iter().map(|&(key, format)| {
        (key.to_owned(), Value { kind: Some(value::Kind::StringValue(format.to_owned())) })
    });
    let config =
        Stdout { log_format: Some(Format { json_format: Some(OrderedStruct { fields: fields.collect() }) }) };
    AccessLog {
        name: "envoy.access_loggers.stdout".to_owned(),
        config_type: Some(ConfigType::TypedConfig(Any {
            type_url: StdoutAccessLog::type_url(),
            value: config.encode_to_vec(),
        })),
        ..AccessLog::default()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format as Generated;
    use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::stdout_access_log::AccessLogFormat;

    use super::*;

    #[test]
    fn the_ordered_message_reads_back_as_envoys_own() {
        for (log, expected) in [(http(), HTTP), (tcp(), TCP)] {
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
}
