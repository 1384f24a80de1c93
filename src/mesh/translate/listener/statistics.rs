//! The listener for Prometheus: one path of Envoy's admin server, in clear text, as in OSM.

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;

use super::{http, listen};
use crate::translate::proto::Families;
use crate::translate::route;
use smc_xds::names;

/// `GET /stats/prometheus` and nothing else.
pub(in crate::translate) fn listener(port: u16, families: Families) -> listener::Listener {
    let routes = route::statistics("statistics", "/stats/prometheus", names::ADMIN_CLUSTER);
    listener::Listener {
        filter_chains: vec![listener::FilterChain {
            filters: vec![http::fixed("statistics", routes)],
            ..listener::FilterChain::default()
        }],
        ..listen(names::PROMETHEUS_LISTENER, families, port, TrafficDirection::Inbound)
    }
}
