//! Session affinity: what a caller sends to a service stays at one pod of it.
//!
//! Owns how Envoy finds that pod. A sidecar serves one pod, whose address its connections come from, so the
//! hash of that address is the caller's. It leads to a pod by a consistent hash (Maglev) over those that get
//! traffic: equal in every sidecar and after every restart, without anything to remember.

use envoy_types::pb::envoy::config::cluster::v3::cluster::{LbConfig, LbPolicy, MaglevLbConfig};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3::route_action::{self, hash_policy as route_hash};
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3 as filter_state;
use envoy_types::pb::envoy::extensions::filters::network::set_filter_state::v3 as set_filter_state;
use envoy_types::pb::envoy::r#type::v3 as hash;
use envoy_types::pb::google::protobuf::UInt64Value;
use envoy_types::util::pack_any;

use super::listener::filter;
use smc_model::topology::SessionAffinity;

/// The entries of the table from hashes to pods; a prime. It is larger than the pods that the services of a
/// namespace may select (65,536), so that each has its part, and it decides how many callers move beside
/// those whose pod left: below 1 % with up to 200 pods. An entry takes as many bits as the number of pods has
/// (38 KiB a cluster with ten pods, Envoy 1.40), and a table is made in 1.5 ms whenever a pod comes or goes.
const TABLE_SIZE: u64 = 65_537;

/// Where a connection keeps its caller for the requests on it.
const CALLER: &str = "smc.caller";

/// How a cluster of a service picks a pod.
pub(super) fn balancer(affinity: SessionAffinity) -> (LbPolicy, Option<LbConfig>) {
    match affinity {
        SessionAffinity::None => (LbPolicy::RoundRobin, None),
        SessionAffinity::ClientIp => {
            let table = MaglevLbConfig { table_size: Some(UInt64Value { value: TABLE_SIZE }) };
            (LbPolicy::Maglev, Some(LbConfig::MaglevLbConfig(table)))
        }
    }
}

/// The hash of a request: that of the connection's caller, which [`noted_caller`] has noted. Envoy's own hash
/// of the source address would take the last address of `x-forwarded-for` for it, so that an application
/// which passes the header on would have no affinity.
pub(super) fn of_request() -> route_action::HashPolicy {
    let state = route_hash::FilterState { key: CALLER.to_owned() };
    route_action::HashPolicy {
        policy_specifier: Some(route_hash::PolicySpecifier::FilterState(state)),
        ..route_action::HashPolicy::default()
    }
}

/// The hash of a connection that carries bytes.
pub(super) fn of_connection() -> hash::HashPolicy {
    let source = hash::hash_policy::SourceIp {};
    hash::HashPolicy { policy_specifier: Some(hash::hash_policy::PolicySpecifier::SourceIp(source)) }
}

/// Notes the address that a connection comes from.
pub(super) fn noted_caller() -> listener::Filter {
    let address = core::DataSource {
        specifier: Some(core::data_source::Specifier::InlineString(
            "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%".to_owned(),
        )),
        ..core::DataSource::default()
    };
    let format = core::SubstitutionFormatString {
        format: Some(core::substitution_format_string::Format::TextFormatSource(address)),
        ..core::SubstitutionFormatString::default()
    };
    let value = filter_state::FilterStateValue {
        key: Some(filter_state::filter_state_value::Key::ObjectKey(CALLER.to_owned())),
        factory_key: "envoy.hashable_string".to_owned(),
        value: Some(filter_state::filter_state_value::Value::FormatString(format)),
        ..filter_state::FilterStateValue::default()
    };
    let config =
        set_filter_state::Config { on_new_connection: vec![value], ..set_filter_state::Config::default() };
    filter("envoy.filters.network.set_filter_state", pack_any(config))
}
