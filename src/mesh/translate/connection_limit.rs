//! Limits of the rate of connections: Envoy's network filter for local rate limits.
//!
//! Owns which bucket counts a connection. Envoy's filter has one bucket and does not look at the name that a
//! caller asks for, so that a connection counts for each service with a limit that its chain is for. Envoy
//! takes a token when it has chosen the chain, before the TLS handshake. The filter's configuration comes by
//! itself (ECDS), as that of limits of requests. It has no key to share its bucket by: Envoy destroys what
//! such filters share on its main thread alone, and the last connection of a former configuration ends on a
//! worker.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::extensions::filters::network::local_ratelimit::v3::LocalRateLimit;
use envoy_types::util::pack_any;
use prost::Name;

use super::draft::Draft;
use super::proto;
use super::provenance::Objects;
use super::rate_limit::bucket;
use smc_model::declared::Declared;
use smc_model::inbound_intent::InboundIntent;
use smc_model::rate_limit::{LocalRateLimits, Rate};
use smc_types::ids::ServiceId;
use smc_types::proxy_class::InboundPort;
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// The limits of connections to one inbound port.
pub(super) struct ConnectionLimits<'a>(Vec<(&'a ServiceId, Rate, &'a Declared<Arc<LocalRateLimits>>)>);

impl<'a> ConnectionLimits<'a> {
    /// Those of the services of a port whose chain is for these names; none means all.
    pub(super) fn new(port: &'a InboundPort, server_names: &[String], intent: &'a InboundIntent) -> Self {
        let is_meant = |service: &&ServiceId| {
            let is = |name: &String| name.starts_with('*') || *name == service.fqdn();
            server_names.is_empty() || server_names.iter().any(is)
        };
        let limits = port.services.iter().filter(is_meant).filter_map(|service| {
            let declared = intent.limits.get(service)?;
            Some((service, declared.what.connections?, declared))
        });
        Self(limits.collect())
    }

    /// The objects that say so.
    pub(super) fn objects(&self) -> Objects {
        self.0.iter().map(|(_, _, declared)| declared.by.clone()).collect()
    }

    /// Adds the configurations of the filters of a chain, and returns the filters.
    pub(super) fn filters(&self, chain: &str, draft: &mut Draft<'_>) -> Vec<Filter> {
        let filters = self.0.iter().map(|(service, rate, declared)| {
            let limit = LocalRateLimit {
                stat_prefix: chain.to_owned(),
                token_bucket: Some(bucket(*rate)),
                ..LocalRateLimit::default()
            };
            let name = names::connection_limit(chain, service);
            let config = TypedExtensionConfig { name: name.clone(), typed_config: Some(pack_any(limit)) };
            let objects = Objects::from([declared.by.clone()]);
            draft.add(ResourceType::ExtensionConfig, &name, &config, &objects);
            proto::discovered_network_filter(name, LocalRateLimit::type_url())
        });
        filters.collect()
    }
}

#[cfg(test)]
mod tests;
