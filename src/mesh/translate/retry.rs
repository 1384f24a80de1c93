//! Requests that are sent again.
//!
//! Owns what "certainly not processed" means. A request is sent again only if no byte of it can have reached
//! an application:
//! - no connection to the other sidecar came to be (`connect-failure`);
//! - the request was not yet written when the connection broke off (`reset-before-request`);
//! - the other side refused the stream before any processing (`refused-stream`, RFC 9113 section 8.7);
//! - the other sidecar got no connection to its application, and says so by a header that it removes from
//!   the answers of applications.
//!
//! An answer of an application, whatever its status, and a connection that broke off after the request was
//! written are never a reason.

use envoy_types::pb::envoy::config::accesslog::v3 as accesslog;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::google::protobuf::UInt64Value;
use envoy_types::util::pack_any;
use route::retry_policy::{RetryHostPredicate, retry_host_predicate};

use super::proto;
use smc_xds::names;

/// Envoy's names of the reasons.
const REASONS: &str = "connect-failure,refused-stream,reset-before-request,retriable-headers";

/// How often another pod than those that were tried is looked for. With round robin, few draws find one.
const DRAWS: i64 = 5;

/// The most bytes of a request's body that are kept for another attempt; a request with more is sent once.
/// Envoy's own bound is a mebibyte for each request that is under way.
const BODY_LIMIT: u64 = 64 << 10;

/// What a connection failure is to Envoy's log filters: no connection to the upstream host came to be.
const CONNECTION_FAILURE: &str = "UF";

/// The policy with this many retries; `None` without any.
pub(super) fn policy(retries: u32) -> Option<route::RetryPolicy> {
    (retries > 0).then(|| route::RetryPolicy {
        retry_on: REASONS.to_owned(),
        num_retries: Some(proto::number(retries)),
        retriable_headers: vec![route::HeaderMatcher {
            name: names::NOT_PROCESSED_HEADER.to_owned(),
            header_match_specifier: Some(route::header_matcher::HeaderMatchSpecifier::PresentMatch(true)),
            ..route::HeaderMatcher::default()
        }],
        retry_host_predicate: vec![RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(retry_host_predicate::ConfigType::TypedConfig(pack_any(
                PreviousHostsPredicate::default(),
            ))),
        }],
        host_selection_retry_max_attempts: DRAWS,
        ..route::RetryPolicy::default()
    })
}

/// The bound on what is kept of a body; `None` without retries, which keep nothing.
pub(super) fn body_limit(retries: u32) -> Option<UInt64Value> {
    (retries > 0).then_some(UInt64Value { value: BODY_LIMIT })
}

/// Marks the answers that a sidecar gives because no connection to its application came to be. The header is
/// set after those of applications are removed.
pub(super) fn not_processed() -> hcm::LocalReplyConfig {
    let flags = accesslog::ResponseFlagFilter { flags: vec![CONNECTION_FAILURE.to_owned()] };
    hcm::LocalReplyConfig {
        mappers: vec![hcm::ResponseMapper {
            filter: Some(accesslog::AccessLogFilter {
                filter_specifier: Some(accesslog::access_log_filter::FilterSpecifier::ResponseFlagFilter(
                    flags,
                )),
            }),
            headers_to_add: vec![core::HeaderValueOption {
                header: Some(core::HeaderValue {
                    key: names::NOT_PROCESSED_HEADER.to_owned(),
                    value: "true".to_owned(),
                    ..core::HeaderValue::default()
                }),
                append_action: core::header_value_option::HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
                ..core::HeaderValueOption::default()
            }],
            ..hcm::ResponseMapper::default()
        }],
        ..hcm::LocalReplyConfig::default()
    }
}
