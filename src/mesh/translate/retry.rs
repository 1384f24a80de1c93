//! Requests that are sent again.
//!
//! Owns what "certainly not processed" means. A request is sent again without being asked for only if no byte
//! of it can have reached an application:
//! - no connection to the other sidecar came to be (`connect-failure`);
//! - the request was not yet written when the connection broke off (`reset-before-request`);
//! - the other side refused the stream before any processing (`refused-stream`, RFC 9113 section 8.7);
//! - the other sidecar got no connection to its application, and says so by a header that it removes from
//!   the answers of applications.
//!
//! An answer of an application, whatever its status, and a connection that broke off after the request was
//! written are never a reason, unless a person declares it one (a Retry).

use envoy_types::pb::envoy::config::accesslog::v3 as accesslog;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::thresholds::RetryBudget;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::UInt64Value;
use envoy_types::util::pack_any;
use route::retry_policy::{RetryHostPredicate, retry_host_predicate};

use super::proto;
use smc_model::retry_policy::RetryPolicy;
use smc_xds::names;

/// Envoy's names of the reasons.
const REASONS: [&str; 4] = ["connect-failure", "refused-stream", "reset-before-request", BY_HEADER];
const BY_HEADER: &str = "retriable-headers";

/// How often another pod than those that were tried is looked for. With round robin, few draws find one.
const DRAWS: i64 = 5;

/// The most bytes of a request's body that are kept for another attempt; a request with more is sent once.
/// Envoy's own bound is a mebibyte for each request that is under way.
const BODY_LIMIT: u64 = 64 << 10;

/// What a connection failure is to Envoy's log filters: no connection to the upstream host came to be.
const CONNECTION_FAILURE: &str = "UF";

/// The share of the requests under way that may be retries, in percent, where a person asked for retries, and
/// how many may be in any case. Under load, a service that fails is asked little more by it; of few requests
/// at a time only their number bounds retries (`benches/README.md` has the figures by which these were
/// chosen).
const BUDGET_PERCENT: f64 = 5.0;
const BUDGET_AT_LEAST: u32 = 4;

/// What is sent again: what certainly was not processed up to `own` times, and what a person `declared`, who
/// then says how often for both. `None` if nothing is.
pub(super) fn policy(own: u32, declared: Option<&RetryPolicy>) -> Option<route::RetryPolicy> {
    let retries = declared.map_or(own, |policy| policy.retries.unwrap_or(own.max(1)));
    let conditions = declared.into_iter().flat_map(|policy| &policy.conditions);
    let mut reasons: Vec<_> = REASONS.iter().copied().filter(|_| own > 0).collect();
    for condition in conditions.map(|condition| condition.as_str()) {
        if !reasons.contains(&condition) {
            reasons.push(condition);
        }
    }
    if retries == 0 || reasons.is_empty() {
        return None;
    }
    let unprocessed = || route::HeaderMatcher {
        name: names::NOT_PROCESSED_HEADER.to_owned(),
        header_match_specifier: Some(route::header_matcher::HeaderMatchSpecifier::PresentMatch(true)),
        ..route::HeaderMatcher::default()
    };
    Some(route::RetryPolicy {
        retry_on: reasons.join(","),
        num_retries: Some(proto::number(retries)),
        per_try_timeout: declared.and_then(|policy| policy.per_try_timeout).map(proto::duration),
        retry_back_off: declared.and_then(|policy| policy.backoff).map(|base| {
            route::retry_policy::RetryBackOff {
                base_interval: Some(proto::duration(base)),
                ..route::retry_policy::RetryBackOff::default()
            }
        }),
        retriable_headers: (own > 0).then(unprocessed).into_iter().collect(),
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

/// What is sent again, up to `own` times, to servers that are no sidecars: they say nothing by headers.
pub(super) fn of_strangers(own: u32) -> Option<route::RetryPolicy> {
    let policy = policy(own, None)?;
    let reasons: Vec<_> = REASONS.into_iter().filter(|reason| *reason != BY_HEADER).collect();
    Some(route::RetryPolicy { retry_on: reasons.join(","), retriable_headers: Vec::new(), ..policy })
}

/// The bound on what is kept of a body that may have to be sent again.
pub(super) fn body_limit() -> UInt64Value {
    UInt64Value { value: BODY_LIMIT }
}

/// The bound on retries at a time, for the cluster of a service for which a person asked for them.
pub(super) fn budget() -> RetryBudget {
    RetryBudget {
        budget_percent: Some(Percent { value: BUDGET_PERCENT }),
        min_retry_concurrency: Some(proto::number(BUDGET_AT_LEAST)),
        ..RetryBudget::default()
    }
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
