//! The listener for Prometheus: one path of Envoy's admin server, in clear text, as in OSM.
//!
//! Owns the bounds on its readers, of which none is known. Envoy renders the statistics on the thread that
//! takes updates and says whether it is ready, some 100 ms for 300 clusters, and keeps the whole text until
//! its reader has it. So what is rendered is bounded, in number and by time, and what is asked: a filter of
//! a reader's own would be an expression that this thread runs over all statistics.

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3::rate_limit;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::LocalRateLimitDescriptor;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::r#type::v3::TokenBucket;
use envoy_types::util::pack_any;

use super::{http, listen};
use crate::translate::proto::{self, Families};
use crate::translate::{rate_limit as limits, route};
use smc_xds::names;

/// How many answers are made for one address at once, and after how many seconds another one. Prometheus asks
/// every 15 s. One address that reads as slowly as it may has less than all places for readers then.
const OF_ONE_ADDRESS: (u32, i64) = (4, 4);

/// The same for all addresses together: two Prometheuses and a person, while some stranger asks all the time.
const OF_ALL: (u32, i64) = (8, 1);

/// The addresses that have a bucket of their own, some 500 bytes each. Of more, Envoy forgets the one that
/// asked first, and the bound of all holds.
const ADDRESSES: u32 = 256;

/// What a reader may ask: everything, what was ever counted, and the calls of the application.
const QUESTIONS: [&str; 3] = [names::STATISTICS_PATH, "/stats/prometheus?usedonly", names::CALLS_PATH];

/// `GET /stats/prometheus` and nothing else.
pub(in crate::translate) fn listener(port: u16, families: Families) -> listener::Listener {
    let routes = route::statistics("statistics", names::STATISTICS_PATH, &QUESTIONS, names::ADMIN_CLUSTER);
    listener::Listener {
        filter_chains: vec![listener::FilterChain {
            filters: vec![http::statistics("statistics", routes, rate())],
            ..listener::FilterChain::default()
        }],
        ..listen(names::PROMETHEUS_LISTENER, families, port, TrafficDirection::Inbound)
    }
}

/// Answers 429 to a reader who asks too often.
fn rate() -> HttpFilter {
    const KEY: &str = "remote_address";
    let bucket = |(most, seconds)| TokenBucket {
        max_tokens: most,
        tokens_per_fill: Some(proto::number(1_u32)),
        fill_interval: Some(proto::seconds(seconds)),
    };
    let address = rate_limit::action::ActionSpecifier::RemoteAddress(rate_limit::action::RemoteAddress {});
    let of_one_address = LocalRateLimitDescriptor {
        // No value: each has a bucket of its own.
        entries: vec![limits::entry(KEY, String::new())],
        token_bucket: Some(bucket(OF_ONE_ADDRESS)),
        ..LocalRateLimitDescriptor::default()
    };
    let limit = LocalRateLimit {
        token_bucket: Some(bucket(OF_ALL)),
        rate_limits: vec![limits::counted_by(vec![address])],
        max_dynamic_descriptors: Some(proto::number(ADDRESSES)),
        ..limits::limit("statistics", vec![of_one_address])
    };
    http::http_filter("envoy.filters.http.local_ratelimit", pack_any(limit))
}
