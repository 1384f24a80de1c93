//! Limits of the rate of connections.
//!
//! Owns that such a limit stands where it counts, counts every connection, and has a bucket of its own.

use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, filter};
use envoy_types::pb::envoy::extensions::filters::network::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::google::protobuf::Any;
use prost::{DecodeError, Message, Name};

use super::reader::{Client, Reader};
use smc_xds::resource::ResourceType;

/// What the names of the filters begin with.
pub(super) const CONNECTION_LIMIT: &str = "connection_limit_";

impl Reader {
    /// The configuration of such a filter.
    pub(super) fn connection_limit(&mut self, config: &Any) -> Result<(), DecodeError> {
        if config.type_url != LocalRateLimit::type_url() {
            self.fault("is no limit of connections");
            return Ok(());
        }
        let limit = LocalRateLimit::decode(&*config.value)?;
        if limit.runtime_enabled.is_some() || limit.token_bucket.is_none() {
            self.fault("limits only some connections");
        }
        if !limit.share_key.is_empty() {
            self.fault("shares a bucket, which Envoy destroys on one thread alone");
        }
        Ok(())
    }

    /// The filters of a chain that come after the limits of connections. Such a limit stands before all other
    /// filters, at ways into the application, and in no other's place.
    pub(super) fn after_limits<'a>(&mut self, chain: &'a FilterChain, client: Client) -> &'a [Filter] {
        let source = |filter: &'a Filter| match &filter.config_type {
            Some(filter::ConfigType::ConfigDiscovery(source)) => Some(source),
            _ => None,
        };
        let limits = chain.filters.iter().take_while(|filter| source(filter).is_some()).count();
        let (limits, others) = chain.filters.split_at(limits);
        for limit in limits {
            let expected = source(limit).is_some_and(|source| {
                source.type_urls == [LocalRateLimit::type_url()] && source.default_config.is_none()
            });
            let inbound = matches!(client, Client::Others | Client::Ingress);
            if !expected || !inbound || !limit.name.starts_with(CONNECTION_LIMIT) {
                self.fault(format!("takes a filter of another kind as {}", limit.name));
            }
            self.refer(ResourceType::ExtensionConfig, &limit.name);
        }
        if others.iter().any(|filter| source(filter).is_some()) {
            self.fault(format!("filter chain {} limits connections after something else", chain.name));
        }
        others
    }
}
