//! Breaks the rules for what is logged.

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::config::core::v3::{DataSource, SubstitutionFormatString, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};

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
