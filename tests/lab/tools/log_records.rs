//! Owns the answers of a collector of logs, OpenTelemetry's gRPC service
//! `opentelemetry.proto.collector.logs.v1.LogsService`, and how it shows what it was sent. The messages have
//! the fields that are shown; `envoy-types` has those of values alone.

use envoy_types::pb::opentelemetry::proto::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message;
use serde_json::{Map, Value, json};

/// The method that sidecars call.
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// `ExportLogsServiceRequest`.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
}

/// The records of a call, as lines of JSON. `None` if it cannot be read.
pub(super) fn lines(call: &[u8]) -> Option<String> {
    let mut lines = String::new();
    for ResourceLogs { resource, scopes } in Export::decode(call).ok()?.resources {
        let resource = members(&resource.unwrap_or_default().attributes);
        for LogRecord { body, attributes } in scopes.into_iter().flat_map(|scope| scope.records) {
            let record = json!({
                "body": value(body.as_ref()), "attributes": members(&attributes), "resource": resource,
            });
            lines.push_str(&record.to_string());
            lines.push('\n');
        }
    }
    Some(lines)
}

fn members(list: &[KeyValue]) -> Value {
    let members = list.iter().map(|member| (member.key.clone(), value(member.value.as_ref())));
    Value::Object(members.collect::<Map<_, _>>())
}

/// A value; one that Envoy does not send is nothing.
fn value(sent: Option<&AnyValue>) -> Value {
    match sent.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::KvlistValue(list)) => members(&list.values),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.iter().map(|inside| value(Some(inside))).collect()
        }
        _ => Value::Null,
    }
}
