//! What may be logged, and where.
//!
//! Owns the rule for the logs of listeners and filters. One operator that Envoy does not know makes it refuse
//! a whole listener; others print secrets of the sidecar. A log of another kind would send what it logs
//! somewhere.

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind as Form};
use prost::{DecodeError, Message, Name};
use smc_model::log_format::Line;

use super::reader::Reader;

impl Reader {
    pub(super) fn logs(&mut self, logs: &[AccessLog]) -> Result<(), DecodeError> {
        for log in logs {
            let Some(access_log::ConfigType::TypedConfig(config)) = &log.config_type else {
                self.fault("has a log without a configuration");
                continue;
            };
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
                self.fault("logs in a format with an operator that Envoy, or the mesh, refuses");
            }
        }
        Ok(())
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
