//! What may be logged, and where.
//!
//! Owns the rule for the logs of listeners and filters. One operator that Envoy does not know makes it refuse
//! a whole listener; others print secrets of the sidecar. What is logged goes to the standard output and to
//! the collector that was declared, and nowhere else. Where that has no cluster, Envoy loses records without
//! a word.

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::grpc_service::TargetSpecifier;
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::envoy::extensions::access_loggers::stats::v3 as stats;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind as Form};
use envoy_types::pb::opentelemetry::proto::common::v1::{AnyValue, any_value};
use prost::{DecodeError, Message, Name};
use smc_model::log_format::Line;
use stats::config::Tag;

use super::reader::{Client, INBOUND_LOGS, OUTBOUND_LOGS, Reader};
use smc_xds::resource::ResourceType;

const UNKNOWN: &str = "logs in a format with an operator that Envoy, or the mesh, refuses";

impl Reader {
    pub(super) fn logs(&mut self, logs: &[AccessLog], client: Client) -> Result<(), DecodeError> {
        for log in logs {
            let Some(access_log::ConfigType::TypedConfig(config)) = &log.config_type else {
                self.fault("has a log without a configuration");
                continue;
            };
            if config.type_url == OpenTelemetryAccessLogConfig::type_url() {
                self.records(&OpenTelemetryAccessLogConfig::decode(&*config.value)?, client);
                continue;
            }
            if config.type_url == stats::Config::type_url() {
                self.metrics(&stats::Config::decode(&*config.value)?, client);
                continue;
            }
            if config.type_url != StdoutAccessLog::type_url() {
                self.fault("logs elsewhere than on the standard output");
                continue;
            }
            let config = StdoutAccessLog::decode(&*config.value)?;
            let Some(stdout_access_log::AccessLogFormat::LogFormat(format)) = config.access_log_format else {
                continue;
            };
            let formatters = format.formatters.len();
            let known = match format.format {
                Some(Format::TextFormatSource(source)) => {
                    matches!(source.specifier, Some(Specifier::InlineString(text)) if is_known(&text))
                }
                Some(Format::JsonFormat(members)) => are_known(&members),
                _ => false,
            };
            if !known || formatters > 0 {
                self.fault(UNKNOWN);
            }
        }
        Ok(())
    }

    /// What is counted of requests. A label whose value a request chooses would fill the sidecar's memory.
    fn metrics(&mut self, config: &stats::Config, client: Client) {
        if client != Client::Application {
            self.fault("counts in metrics of its own what no application asked for");
        }
        let histograms = config.histograms.iter().map(|histogram| &histogram.stat);
        let stats = config.counters.iter().map(|counter| &counter.stat).chain(histograms).flatten();
        let tags = stats.flat_map(|stat| &stat.tags);
        if !config.gauges.is_empty() || tags.into_iter().any(|tag| !is_bounded_label(tag)) {
            self.fault("counts by a label that a request, or a secret, gives its value");
        }
        let scope = config.stats_scope.clone().unwrap_or_default();
        if scope.max_counters.is_none() || scope.max_histograms.is_none() {
            self.fault("counts without a bound on how many series there are");
        }
        if !scope.sharing_name.is_empty() {
            self.fault("shares a scope, by which Envoy crashes where it validates");
        }
    }

    fn records(&mut self, config: &OpenTelemetryAccessLogConfig, client: Client) {
        let OpenTelemetryAccessLogConfig { grpc_service, log_name, body, attributes, .. } = config;
        let expected = OpenTelemetryAccessLogConfig {
            grpc_service: grpc_service.clone(),
            log_name: log_name.clone(),
            body: body.clone(),
            attributes: attributes.clone(),
            ..OpenTelemetryAccessLogConfig::default()
        };
        if *config != expected {
            self.fault("sends a collector more than a body and attributes");
        }
        let attributes = attributes.iter().flat_map(|list| &list.values).map(|member| &member.value);
        if !attributes.chain([body]).all(|value| is_known_record(value.as_ref())) {
            self.fault(UNKNOWN);
        }
        let own = match client {
            Client::Application => OUTBOUND_LOGS,
            Client::Ingress | Client::Others => INBOUND_LOGS,
            Client::Scraper => {
                self.fault("sends a collector what reads the statistics");
                return;
            }
        };
        let service = grpc_service.clone().unwrap_or_default();
        match &service.target_specifier {
            Some(TargetSpecifier::EnvoyGrpc(server)) if server.cluster_name == own => {
                self.refer(ResourceType::Cluster, own);
            }
            _ => self.fault("sends what it logs to another server than a collector"),
        }
        if !service.initial_metadata.is_empty() {
            self.fault("sends a collector headers of its own");
        }
    }
}

/// Whether the sidecar, its node or the cluster gives a label its value.
fn is_bounded_label(tag: &Tag) -> bool {
    let within = |prefix: &str, suffix: &str| {
        let inside = tag.value_format.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
        let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        inside.is_some_and(is_word)
    };
    tag.rules.is_none()
        && (tag.value_format == "%RESPONSE_CODE%"
            || within("%CEL(xds.node.metadata.", ")%")
            || within("%CLUSTER_METADATA(mesh.smc.dev:", ")%")
            || !tag.value_format.contains('%'))
}

/// Whether a value of a record is a text with known operators, or made of such. Envoy takes no other.
fn is_known_record(value: Option<&AnyValue>) -> bool {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => is_known(text),
        Some(any_value::Value::KvlistValue(list)) => {
            list.values.iter().all(|member| is_known_record(member.value.as_ref()))
        }
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.iter().all(|inside| is_known_record(Some(inside)))
        }
        _ => false,
    }
}

fn is_known(text: &str) -> bool {
    Line::parse(text).is_ok()
}

fn are_known(members: &Struct) -> bool {
    members.fields.values().all(is_known_value)
}

fn is_known_value(value: &Value) -> bool {
    match &value.kind {
        Some(Form::StringValue(text)) => is_known(text),
        Some(Form::StructValue(members)) => are_known(members),
        Some(Form::ListValue(list)) => list.values.iter().all(is_known_value),
        Some(Form::NullValue(_) | Form::NumberValue(_) | Form::BoolValue(_)) => true,
        None => false,
    }
}
