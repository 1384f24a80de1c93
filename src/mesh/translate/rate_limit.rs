//! Limits of the rate of requests: Envoy's filter for local rate limits.
//!
//! Owns which bucket counts a request. All buckets are in the filters' own configuration, which comes by
//! itself (ECDS). Envoy makes new buckets, which are full, for whatever configuration changes: routes change
//! with every TrafficTarget, and listeners with every port, whose connections end as well. So a route only
//! names the path that it is for, by its metadata, and a listener the filters.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3::{RateLimit, rate_limit};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{
    LocalRateLimitDescriptor, rate_limit_descriptor::Entry,
};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::rate_limit_descriptors::expr::v3 as expression;
use envoy_types::pb::envoy::r#type::metadata::v3::{MetadataKey, metadata_key};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, HttpStatus, TokenBucket, fractional_percent};
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value, value};
use envoy_types::util::pack_any;
use metadata_key::{PathSegment, path_segment};
use rate_limit::action::{ActionSpecifier, GenericKey, MetaData, meta_data};

use super::proto;
use super::provenance::Objects;
use smc_model::inbound_intent::InboundIntent;
use smc_model::rate_limit::{LocalRateLimits, Rate, RequestLimit};
use smc_model::regex::Pattern;
use smc_types::ids::ServiceId;
use smc_types::proxy_class::InboundPort;
use smc_xds::names;

/// The namespace of the metadata by which a route names its path: the service whose limit it is, and the
/// place of the path among those of the service. The descriptor of the path has the same key and value.
const METADATA: &str = "smc.rate_limit";
/// What the descriptor says where the route names no path of the service.
const NO_PATH: &str = "-";

/// The key of the descriptor that names the service that is called, by its full name.
const SERVICE: &str = "service";

/// The service that a caller of the mesh has named: its sidecar writes the name, and not its application.
const CALLED_SERVICE: &str = "connection.requested_server_name";

/// What the filter for all other names is named by.
const OTHER_NAMES: &str = "others";

/// A bucket that is never empty: what no limit counts.
const ENDLESS: TokenBucket = TokenBucket {
    max_tokens: u32::MAX,
    tokens_per_fill: Some(UInt32Value { value: u32::MAX }),
    fill_interval: Some(proto::seconds(1)),
};

/// From where requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// A sidecar, which names the service that it calls.
    Mesh,
    /// An ingress, whose name for the service is its own. All limits of the port count its requests.
    Ingress,
}

/// The limits of one inbound port.
pub(super) struct PortLimits<'a> {
    limits: Vec<(&'a ServiceId, &'a LocalRateLimits)>,
    objects: Objects,
    /// The services that lead to the port.
    services: &'a BTreeSet<ServiceId>,
}

/// The limits whose answer is the same: one filter.
struct Alike<'a> {
    /// The first of them, by which the filter is named.
    first: String,
    answer: &'a RequestLimit,
    services: Vec<&'a ServiceId>,
    /// The services of which paths are among them.
    paths: BTreeSet<&'a ServiceId>,
    descriptors: Vec<LocalRateLimitDescriptor>,
}

impl<'a> PortLimits<'a> {
    /// Those of the services of a port. Only requests are counted.
    pub(super) fn new(port: &'a InboundPort, intent: &'a InboundIntent) -> Self {
        let services = port.services.iter().filter(|_| port.protocol.is_http());
        let declared = services.filter_map(|id| Some((id, intent.limits.get(id)?)));
        let declared: Vec<_> = declared.filter(|(_, limits)| limits.what.counts_requests()).collect();
        let objects = declared.iter().map(|(_, limits)| limits.by.clone()).collect();
        let limits: Vec<_> = declared.into_iter().map(|(id, limits)| (id, &*limits.what)).collect();
        Self { limits, objects, services: &port.services }
    }

    /// Whether several services lead to the port.
    fn shared(&self) -> bool {
        self.services.len() > 1
    }

    /// The objects that say so.
    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The paths with a limit of their own, in the order in which they are tried, each with the metadata of
    /// its routes.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'a Pattern, core::Metadata)> {
        self.limits.iter().flat_map(|(service, limits)| {
            let paths = limits.routes.iter().enumerate();
            paths.map(|(place, route)| (&route.path, metadata(service, place)))
        })
    }

    /// The configurations of the filters of a chain, one for each answer. Empty if there is no limit.
    ///
    /// A filter is named by the first limit in it, and never gets that of another service. Connections from
    /// before a listener changed refer to its former filters, by name, and go on with what these were.
    pub(super) fn filters(&self, caller: Caller, chain: &str) -> Vec<core::TypedExtensionConfig> {
        let mut filters: Vec<Alike<'a>> = Vec::new();
        for (service, limits) in &self.limits {
            let Some(limit) = &limits.requests else { continue };
            let alike = alike(&mut filters, limit, || service.to_string());
            alike.services.push(service);
            let entries =
                vec![entry(SERVICE, service.fqdn()), entry(&service.to_string(), NO_PATH.to_owned())];
            alike.descriptors.push(descriptor(entries, bucket(limit.rate)));
        }
        for (service, limits) in &self.limits {
            for (place, route) in limits.routes.iter().enumerate() {
                let alike = alike(&mut filters, &route.limit, || format!("{service}_{place}"));
                alike.paths.insert(service);
                let entries = vec![entry(&service.to_string(), place.to_string())];
                alike.descriptors.push(descriptor(entries, bucket(route.limit.rate)));
            }
        }
        let filters = filters.into_iter().map(|alike| {
            let limit = LocalRateLimit {
                rate_limits: self.counted(&alike, caller),
                token_bucket: Some(ENDLESS),
                ..limit(chain, alike.descriptors)
            };
            configuration(chain, &alike.first, alike.answer, limit)
        });
        filters.chain(self.of_other_names(caller, chain)).collect()
    }

    /// By what requests are counted.
    fn counted(&self, alike: &Alike<'a>, caller: Caller) -> Vec<RateLimit> {
        let services = alike.services.iter().map(|service| {
            let called = match caller {
                Caller::Mesh if self.shared() => called_service(),
                Caller::Mesh | Caller::Ingress => named_service(service),
            };
            counted_by(vec![called, path(service, NO_PATH)])
        });
        services.chain(alike.paths.iter().map(|service| counted_by(vec![path(service, "")]))).collect()
    }

    /// The limit for requests that name none of the services, where each of them has one: a sidecar that
    /// makes up a name escapes no limit. It is that of the first.
    fn of_other_names(&self, caller: Caller, chain: &str) -> Option<core::TypedExtensionConfig> {
        let requests: Vec<_> =
            self.limits.iter().filter_map(|(_, limits)| limits.requests.as_ref()).collect();
        let (first, each) = (*requests.first()?, requests.len() == self.services.len());
        (caller == Caller::Mesh && self.shared() && each).then(|| {
            let known = self.services.iter();
            let known = known.map(|service| descriptor(vec![entry(SERVICE, service.fqdn())], ENDLESS));
            let limit = LocalRateLimit {
                rate_limits: vec![counted_by(vec![called_service()])],
                token_bucket: Some(bucket(first.rate)),
                ..limit(chain, known.collect())
            };
            configuration(chain, OTHER_NAMES, first, limit)
        })
    }
}

/// The filter with the answer of this limit; a new one comes last.
fn alike<'f, 'a>(
    filters: &'f mut Vec<Alike<'a>>,
    limit: &'a RequestLimit,
    first: impl FnOnce() -> String,
) -> &'f mut Alike<'a> {
    let answer = |limit: &'a RequestLimit| (limit.status, &limit.headers);
    let place = filters.iter().position(|one| answer(one.answer) == answer(limit)).unwrap_or(filters.len());
    if place == filters.len() {
        filters.push(Alike {
            first: first(),
            answer: limit,
            services: Vec::new(),
            paths: BTreeSet::new(),
            descriptors: Vec::new(),
        });
    }
    &mut filters[place]
}

/// The configuration of a filter with this answer.
fn configuration(
    chain: &str,
    first: &str,
    answer: &RequestLimit,
    limit: LocalRateLimit,
) -> core::TypedExtensionConfig {
    let limit = LocalRateLimit {
        status: Some(HttpStatus { code: answer.status.into() }),
        response_headers_to_add: added(&answer.headers),
        always_consume_default_token_bucket: Some(proto::switch(false)),
        // What gRPC calls it; clients send the other status, UNAVAILABLE, again at once.
        rate_limited_as_resource_exhausted: true,
        ..limit
    };
    core::TypedExtensionConfig { name: names::rate_limit(chain, first), typed_config: Some(pack_any(limit)) }
}

/// A filter that enforces what is in `descriptors`.
pub(super) fn limit(stat_prefix: &str, descriptors: Vec<LocalRateLimitDescriptor>) -> LocalRateLimit {
    let all = core::RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator: 100,
            denominator: fractional_percent::DenominatorType::Hundred.into(),
        }),
        ..core::RuntimeFractionalPercent::default()
    };
    LocalRateLimit {
        stat_prefix: stat_prefix.to_owned(),
        filter_enabled: Some(all.clone()),
        filter_enforced: Some(all),
        descriptors,
        ..LocalRateLimit::default()
    }
}

/// Counts each request by a descriptor of these.
pub(super) fn counted_by(actions: Vec<ActionSpecifier>) -> RateLimit {
    let actions = actions.into_iter().map(|action| rate_limit::Action { action_specifier: Some(action) });
    RateLimit { actions: actions.collect(), ..RateLimit::default() }
}

pub(super) fn entry(key: &str, value: String) -> Entry {
    Entry { key: key.to_owned(), value }
}

fn descriptor(entries: Vec<Entry>, bucket: TokenBucket) -> LocalRateLimitDescriptor {
    LocalRateLimitDescriptor { entries, token_bucket: Some(bucket), ..LocalRateLimitDescriptor::default() }
}

/// A bucket that is filled at this rate.
pub(super) fn bucket(rate: Rate) -> TokenBucket {
    TokenBucket {
        max_tokens: rate.most(),
        tokens_per_fill: Some(proto::number(rate.amount)),
        fill_interval: Some(proto::duration(rate.unit.length())),
    }
}

/// The path of this service that the route names. Nothing is counted where it names none, and `otherwise` is
/// empty.
fn path(service: &ServiceId, otherwise: &str) -> ActionSpecifier {
    let service = service.to_string();
    let key = path_segment::Segment::Key(service.clone());
    ActionSpecifier::Metadata(MetaData {
        descriptor_key: service,
        metadata_key: Some(MetadataKey {
            key: METADATA.to_owned(),
            path: vec![PathSegment { segment: Some(key) }],
        }),
        default_value: otherwise.to_owned(),
        source: meta_data::Source::RouteEntry.into(),
        ..MetaData::default()
    })
}

/// This service, whatever a request says.
fn named_service(service: &ServiceId) -> ActionSpecifier {
    let (descriptor_key, descriptor_value) = (SERVICE.to_owned(), service.fqdn());
    ActionSpecifier::GenericKey(GenericKey { descriptor_key, descriptor_value, ..GenericKey::default() })
}

/// The service that the sidecar of the caller names.
fn called_service() -> ActionSpecifier {
    let text = expression::descriptor::ExprSpecifier::Text(CALLED_SERVICE.to_owned());
    let descriptor = expression::Descriptor {
        descriptor_key: SERVICE.to_owned(),
        expr_specifier: Some(text),
        ..expression::Descriptor::default()
    };
    ActionSpecifier::Extension(core::TypedExtensionConfig {
        name: "envoy.rate_limit_descriptors.expr".to_owned(),
        typed_config: Some(pack_any(descriptor)),
    })
}

/// The headers of an answer. The first of a name takes the place of Envoy's own. Values are format strings to
/// Envoy, in which a `%` is written twice.
fn added(headers: &[(String, String)]) -> Vec<core::HeaderValueOption> {
    use core::header_value_option::HeaderAppendAction::{AppendIfExistsOrAdd, OverwriteIfExistsOrAdd};
    let added = headers.iter().enumerate().map(|(place, (name, value))| {
        let again = headers[..place].iter().any(|(before, _)| before == name);
        let action = if again { AppendIfExistsOrAdd } else { OverwriteIfExistsOrAdd };
        core::HeaderValueOption {
            header: Some(core::HeaderValue {
                key: name.clone(),
                value: value.replace('%', "%%"),
                ..core::HeaderValue::default()
            }),
            append_action: action.into(),
            ..core::HeaderValueOption::default()
        }
    });
    added.collect()
}

/// The metadata of the routes for a path. One entry each: the order of the maps cannot matter.
fn metadata(service: &ServiceId, place: usize) -> core::Metadata {
    let value = Value { kind: Some(value::Kind::StringValue(place.to_string())) };
    let fields = std::iter::once((service.to_string(), value)).collect();
    let filter_metadata = std::iter::once((METADATA.to_owned(), Struct { fields })).collect();
    core::Metadata { filter_metadata, ..core::Metadata::default() }
}

#[cfg(test)]
pub(super) mod tests;
