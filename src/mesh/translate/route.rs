//! Routes (RDS): from a service port to its clusters, and from an inbound port to the application.
//!
//! Owns the order of routes, the form of weights, and where retries apply. The listener has already
//! chosen the service by the destination address ([`super::listener`]), so no route matches host
//! names, and an application may send any.

use envoy_types::pb::envoy::config::route::v3 as route;
use route::route_action::ClusterSpecifier;
use route::route_match::PathSpecifier;

use super::rate_limit::PortLimits;
use super::rbac::Rules;
use super::{affinity, http_match, proto, retry};
use smc_model::egress::{EgressHost, EgressRoute};
use smc_model::http_match::HttpMatch;
use smc_model::regex::Pattern;
use smc_xds::names;

/// The clusters that traffic goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    /// This cluster.
    One(String),
    /// These clusters, by weight. Two or more, each weight positive, the sum below 2³².
    Split(Vec<(String, u32)>),
}

impl Destination {
    /// Splits by `weights`, without those of zero. `None` if no weight is left.
    pub(super) fn weighted(weights: impl IntoIterator<Item = (String, u32)>) -> Option<Self> {
        let mut weights: Vec<_> = weights.into_iter().filter(|(_, weight)| *weight > 0).collect();
        if weights.len() < 2 {
            return weights.pop().map(|(cluster, _)| Self::One(cluster));
        }
        weights.sort();
        // Envoy refuses a sum beyond 32 bits; halving all keeps the shares to within rounding.
        while weights.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>() > u64::from(u32::MAX) {
            for (_, weight) in &mut weights {
                *weight = (*weight / 2).max(1);
            }
        }
        Some(Self::Split(weights))
    }
}

/// A part of the traffic of a service port.
pub(super) struct Arm {
    /// It takes requests that match any of these; `None` takes everything.
    pub(super) matches: Option<Vec<HttpMatch>>,
    /// The clusters that it goes to.
    pub(super) destination: Destination,
    /// Whether one of these clusters picks its pod by the caller.
    pub(super) by_caller: bool,
}

/// The route configuration of a service port. The first arm that matches takes a request, which is sent again
/// as `retries` has it.
pub(super) fn outbound(
    name: &str,
    arms: &[Arm],
    retries: Option<route::RetryPolicy>,
) -> route::RouteConfiguration {
    let routes = arms.iter().flat_map(|arm| {
        let matches = match &arm.matches {
            None => vec![everything()],
            Some(matches) => matches.iter().map(one).collect(),
        };
        matches.into_iter().map(|matched| {
            let mut route = to(matched, &arm.destination);
            if let Some(route::route::Action::Route(action)) = &mut route.action
                && arm.by_caller
            {
                action.hash_policy = vec![affinity::of_request()];
            }
            route
        })
    });
    configuration(
        name,
        route::VirtualHost {
            routes: routes.collect(),
            request_body_buffer_limit: retries.is_some().then(retry::body_limit),
            retry_policy: retries,
            response_headers_to_remove: not_processed(),
            ..route::VirtualHost::default()
        },
    )
}

/// The header that only sidecars may set. An application that passed on the answer of another one would
/// otherwise claim for its own request what holds for that one's.
fn not_processed() -> Vec<String> {
    vec![names::NOT_PROCESSED_HEADER.to_owned()]
}

/// The route configuration of an inbound port, for requests from the mesh or from an ingress that `rules`
/// allow. Those to the paths of `limits` are counted by limits of their own.
///
/// The rules are part of the route, not of the listener: a new policy applies to the next request
/// on every existing connection, and no connection is drained for it.
pub(super) fn inbound(
    name: &str,
    cluster: String,
    rules: Rules,
    limits: &PortLimits<'_>,
) -> route::RouteConfiguration {
    let destination = Destination::One(cluster);
    let limited = limits.paths().map(|(path, metadata)| route::Route {
        metadata: Some(metadata),
        ..to(at(Some(path)), &destination)
    });
    configuration(
        name,
        route::VirtualHost {
            routes: limited.chain(std::iter::once(to(everything(), &destination))).collect(),
            // One entry: the map's order cannot matter.
            typed_per_filter_config: std::iter::once(rules.per_route()).collect(),
            response_headers_to_remove: not_processed(),
            ..route::VirtualHost::default()
        },
    )
}

/// The route configuration of requests out of the mesh on one port, by their host: each with its routes and
/// where these lead. Others are answered with 404.
pub(super) fn egress(
    name: &str,
    port: u16,
    hosts: &[(&EgressHost, Vec<(&EgressRoute, String)>)],
    retries: Option<&route::RetryPolicy>,
) -> route::RouteConfiguration {
    let virtual_hosts = hosts.iter().map(|(host, routes)| {
        let routes = routes.iter().map(|(route, cluster)| {
            to(route.matched.as_ref().map_or_else(everything, one), &Destination::One(cluster.clone()))
        });
        let domains = match host {
            EgressHost::Any => vec!["*".to_owned()],
            // A client names its port unless it is the usual one.
            EgressHost::Under(_) | EgressHost::Named(_) => vec![host.to_string(), format!("{host}:{port}")],
        };
        route::VirtualHost {
            name: host.to_string(),
            domains,
            routes: routes.collect(),
            request_body_buffer_limit: retries.is_some().then(retry::body_limit),
            retry_policy: retries.cloned(),
            ..route::VirtualHost::default()
        }
    });
    route::RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: virtual_hosts.collect(),
        ..route::RouteConfiguration::default()
    }
}

/// How long, in seconds, an answer with statistics may take, and its reader have a place: some 10 MB, to a
/// Prometheus that waits 10 s.
const STATISTICS_SECONDS: i64 = 6;

/// One path, read only, to one cluster; of paths with a query, those in `questions`.
pub(super) fn statistics(
    name: &str,
    path: &str,
    questions: &[&str],
    cluster: &str,
) -> route::RouteConfiguration {
    // Each by itself: an expression of all of them would be larger than some Envoys may take.
    let matched = |question: &&str| route::RouteMatch {
        path_specifier: Some(PathSpecifier::Path(path.to_owned())),
        headers: vec![http_match::one_of(":method", &["GET"]), http_match::exactly(":path", question)],
        ..route::RouteMatch::default()
    };
    let routes =
        questions.iter().map(|question| to(matched(question), &Destination::One(cluster.to_owned())));
    let mut routes: Vec<_> = routes.collect();
    for route in &mut routes {
        if let Some(route::route::Action::Route(action)) = &mut route.action {
            action.timeout = Some(proto::seconds(STATISTICS_SECONDS));
        }
    }
    configuration(name, route::VirtualHost { routes, ..route::VirtualHost::default() })
}

fn configuration(name: &str, host: route::VirtualHost) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            name: name.to_owned(),
            domains: vec!["*".to_owned()],
            ..host
        }],
        ..route::RouteConfiguration::default()
    }
}

fn everything() -> route::RouteMatch {
    at(None)
}

/// Any request to these paths, or to all.
fn at(path: Option<&Pattern>) -> route::RouteMatch {
    let path = path.map(http_match::pattern).map(PathSpecifier::SafeRegex);
    route::RouteMatch {
        path_specifier: Some(path.unwrap_or_else(|| PathSpecifier::Prefix("/".to_owned()))),
        ..route::RouteMatch::default()
    }
}

fn one(http: &HttpMatch) -> route::RouteMatch {
    route::RouteMatch { headers: http_match::headers(http), ..at(http.path.as_ref()) }
}

fn to(matched: route::RouteMatch, destination: &Destination) -> route::Route {
    let specifier = match destination {
        Destination::One(cluster) => ClusterSpecifier::Cluster(cluster.clone()),
        Destination::Split(weights) => ClusterSpecifier::WeightedClusters(route::WeightedCluster {
            clusters: weights
                .iter()
                .map(|(cluster, weight)| route::weighted_cluster::ClusterWeight {
                    name: cluster.clone(),
                    weight: Some(proto::number(*weight)),
                    ..route::weighted_cluster::ClusterWeight::default()
                })
                .collect(),
            ..route::WeightedCluster::default()
        }),
    };
    route::Route {
        r#match: Some(matched),
        action: Some(route::route::Action::Route(route::RouteAction {
            cluster_specifier: Some(specifier),
            // The mesh adds no deadline of its own (Envoy's default is 15 s).
            timeout: Some(proto::seconds(0)),
            ..route::RouteAction::default()
        })),
        ..route::Route::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(weights: &[(&str, u32)]) -> Option<Destination> {
        Destination::weighted(weights.iter().map(|&(name, weight)| (name.to_owned(), weight)))
    }

    #[test]
    fn weights_are_sorted_positive_and_sum_within_32_bits() {
        assert_eq!(weighted(&[]), None);
        assert_eq!(weighted(&[("a", 0)]), None);
        assert_eq!(weighted(&[("a", 0), ("b", 7)]), Some(Destination::One("b".to_owned())));
        assert_eq!(
            weighted(&[("b", 90), ("a", 10)]),
            Some(Destination::Split(vec![("a".to_owned(), 10), ("b".to_owned(), 90)]))
        );
        let Some(Destination::Split(huge)) = weighted(&[("a", u32::MAX), ("b", u32::MAX), ("c", 1)]) else {
            panic!("not split");
        };
        assert!(huge.iter().try_fold(0_u32, |sum, (_, weight)| sum.checked_add(*weight)).is_some());
        assert!(huge.iter().all(|(_, weight)| *weight > 0));
        assert_eq!(huge[0].1, huge[1].1);
    }
}
