//! Inbound access policy as Envoy RBAC: ALLOW policies, one for all TrafficTargets with the same rules, and
//! one for each grant to an ingress. Overlapping ones are OR-ed, and a request that none allows is denied.
//!
//! Owns the mapping from grants to principals and permissions. The generated messages hold policies
//! in a hash map, whose order would change the bytes and thus the version. Equivalent messages with
//! an ordered map are encoded instead.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::rbac::v3 as rbac;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3 as http_rbac;
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3 as network_rbac;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    PathMatcher, RegexMatcher, StringMatcher, path_matcher, string_matcher,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use rbac::{Permission, Policy, Principal, permission, principal};
use string_matcher::MatchPattern;

use super::settings::Settings;
use super::{http_match, proto, secret};
use smc_model::cidr::IpNet;
use smc_model::http_match::HttpMatch;
use smc_model::inbound_intent::{Grant, HttpAccess, InboundAccess};
use smc_model::ingress::{IngressGrant, IngressGrantees};

/// The name of the HTTP filter, to which per-route configuration refers.
pub(super) const HTTP_FILTER: &str = "envoy.filters.http.rbac";
/// The name of the network filter.
pub(super) const NETWORK_FILTER: &str = "envoy.filters.network.rbac";

/// `envoy.config.rbac.v3.RBAC` with an ordered map. Without policies it denies everything.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Rules {
    #[prost(enumeration = "rbac::rbac::Action", tag = "1")]
    action: i32,
    #[prost(btree_map = "string, message", tag = "2")]
    policies: BTreeMap<String, Policy>,
}

/// `envoy.extensions.filters.http.rbac.v3.RBAC`, cut to what is set here.
#[derive(Clone, PartialEq, Message)]
struct HttpRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rules>,
}

/// `envoy.extensions.filters.http.rbac.v3.RBACPerRoute`.
#[derive(Clone, PartialEq, Message)]
struct HttpRbacPerRoute {
    #[prost(message, optional, tag = "2")]
    rbac: Option<HttpRbac>,
}

/// `envoy.extensions.filters.network.rbac.v3.RBAC`, cut to what is set here.
#[derive(Clone, PartialEq, Message)]
struct NetworkRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rules>,
    #[prost(string, tag = "3")]
    stat_prefix: String,
}

impl Rules {
    /// Rules that allow nothing.
    pub(super) fn none() -> Self {
        Self { action: rbac::rbac::Action::Allow.into(), policies: BTreeMap::new() }
    }

    /// The rules of `access` for requests: one policy for all grants of the same requests.
    pub(super) fn http(access: &InboundAccess, settings: &Settings) -> Self {
        let mut alike: BTreeMap<&HttpAccess, Vec<&Grant>> = BTreeMap::new();
        for grant in grants(access) {
            alike.entry(&grant.http).or_default().push(grant);
        }
        let policies = alike.into_iter().filter_map(|(http, grants)| {
            let permissions = match http {
                HttpAccess::Any => vec![anything()],
                HttpAccess::Only(matches) => matches.iter().map(request).collect(),
            };
            allow(permissions, &grants, settings)
        });
        Self::of(access, settings, policies)
    }

    /// The rules of `access` for connections. Its grants are those of the port, so each source may connect.
    pub(super) fn connection(access: &InboundAccess, settings: &Settings) -> Self {
        let grants: Vec<_> = grants(access).collect();
        Self::of(access, settings, allow(vec![anything()], &grants, settings))
    }

    /// The rules for requests from an ingress. A client's address is that of its connection: `remote_ip`
    /// would believe what the client says of itself in `x-forwarded-for`.
    pub(super) fn ingress(grants: &BTreeSet<IngressGrant>) -> Self {
        let mut policies = BTreeMap::new();
        for grant in grants {
            let name = grant.backend.to_string();
            // An object may open a port by two of its backends, each with other names.
            let name = if policies.contains_key(&name) { format!("{name} {}", policies.len()) } else { name };
            policies.insert(name, policy(vec![requests_of_ingress(grant)], vec![clients(&grant.sources)]));
        }
        Self { policies, ..Self::none() }
    }

    fn of(
        access: &InboundAccess,
        settings: &Settings,
        policies: impl IntoIterator<Item = (String, Policy)>,
    ) -> Self {
        let anyone = (*access == InboundAccess::AnyoneInMesh).then(|| {
            let anyone = MatchPattern::Prefix(secret::mesh_prefix(settings));
            ("anyone-in-mesh".to_owned(), policy(vec![anything()], vec![authenticated(anyone)]))
        });
        Self { policies: policies.into_iter().chain(anyone).collect(), ..Self::none() }
    }

    /// The configuration of the HTTP filter.
    pub(super) fn http_filter(self) -> Any {
        Any { type_url: http_rbac::Rbac::type_url(), value: HttpRbac { rules: Some(self) }.encode_to_vec() }
    }

    /// The configuration of a virtual host that replaces the HTTP filter's: the filter's name, and the value.
    pub(super) fn per_route(self) -> (String, Any) {
        let value = HttpRbacPerRoute { rbac: Some(HttpRbac { rules: Some(self) }) }.encode_to_vec();
        (HTTP_FILTER.to_owned(), Any { type_url: http_rbac::RbacPerRoute::type_url(), value })
    }

    /// The configuration of the network filter.
    pub(super) fn network_filter(self, stat_prefix: &str) -> Any {
        let filter = NetworkRbac { rules: Some(self), stat_prefix: stat_prefix.to_owned() };
        Any { type_url: network_rbac::Rbac::type_url(), value: filter.encode_to_vec() }
    }
}

fn grants(access: &InboundAccess) -> impl Iterator<Item = &Grant> {
    match access {
        InboundAccess::AnyoneInMesh => &[][..],
        InboundAccess::Grants(grants) => grants,
    }
    .iter()
    .map(|grant| &**grant)
}

/// The policy that allows `permissions` to the sources of all of these grants, under the name of the first
/// of them.
fn allow(permissions: Vec<Permission>, grants: &[&Grant], settings: &Settings) -> Option<(String, Policy)> {
    let sources: BTreeSet<_> = grants.iter().flat_map(|grant| &grant.sources).collect();
    let principals: Vec<_> = sources
        .into_iter()
        .map(|source| authenticated(MatchPattern::Exact(settings.trust_domain.spiffe_id(source))))
        .collect();
    // Envoy refuses a policy without permissions or principals, and it would allow nothing.
    if permissions.is_empty() || principals.is_empty() {
        return None;
    }
    Some((grants.first()?.target.to_string(), policy(permissions, principals)))
}

fn policy(permissions: Vec<Permission>, principals: Vec<Principal>) -> Policy {
    Policy { permissions, principals, ..Policy::default() }
}

fn authenticated(identity: MatchPattern) -> Principal {
    principal(principal::Identifier::Authenticated(principal::Authenticated {
        principal_name: Some(StringMatcher { match_pattern: Some(identity), ignore_case: false }),
    }))
}

/// The requests that a grant allows to an ingress.
fn requests_of_ingress(grant: &IngressGrant) -> Permission {
    let http = match &grant.http {
        HttpAccess::Any => None,
        HttpAccess::Only(matches) => Some(any_of(matches.iter().map(request).collect())),
    };
    let names =
        grant.server_names.as_ref().map(|names| any_of(names.iter().map(|name| server_name(name)).collect()));
    let mut rules: Vec<_> = names.into_iter().chain(http).collect();
    match rules.len() {
        0 => anything(),
        1 => rules.remove(0),
        _ => permission(permission::Rule::AndRules(permission::Set { rules })),
    }
}

fn any_of(rules: Vec<Permission>) -> Permission {
    permission(permission::Rule::OrRules(permission::Set { rules }))
}

/// Connections whose client asked for this name by SNI. `*.example.com` is any name below.
fn server_name(name: &str) -> Permission {
    let pattern = match name.strip_prefix('*') {
        Some(suffix) => MatchPattern::Suffix(suffix.to_owned()),
        None => MatchPattern::Exact(name.to_owned()),
    };
    permission(permission::Rule::RequestedServerName(StringMatcher {
        match_pattern: Some(pattern),
        ignore_case: false,
    }))
}

/// The clients that a grant names, as one principal.
fn clients(sources: &IngressGrantees) -> Principal {
    let any_of = |ids: Vec<Principal>| principal(principal::Identifier::OrIds(principal::Set { ids }));
    let addresses = |addresses: &BTreeSet<IpNet>| {
        let address = |net: &IpNet| principal(principal::Identifier::DirectRemoteIp(proto::range(*net)));
        any_of(addresses.iter().map(address).collect())
    };
    match sources {
        IngressGrantees::Addresses(all) => addresses(all),
        IngressGrantees::Principals(names, all) => {
            let names =
                any_of(names.iter().map(|name| authenticated(MatchPattern::Exact(name.clone()))).collect());
            let ids: Vec<_> = std::iter::once(names).chain(all.as_ref().map(addresses)).collect();
            principal(principal::Identifier::AndIds(principal::Set { ids }))
        }
    }
}

fn principal(identifier: principal::Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

fn anything() -> Permission {
    permission(permission::Rule::Any(true))
}

fn permission(rule: permission::Rule) -> Permission {
    Permission { rule: Some(rule) }
}

fn not(rule: Permission) -> Permission {
    permission(permission::Rule::NotRule(Box::new(rule)))
}

/// Paths that an application may read differently than Envoy: with an encoded slash or backslash,
/// or a dot segment with a parameter (`/..;/`). A grant of some paths does not cover them, or
/// `/public/..%2fadmin` would match as a path below `/public/`.
const AMBIGUOUS_PATH: &str = r"(?i).*(?:%2f|%5c|/\.\.;).*";

fn url_path(regex: RegexMatcher) -> Permission {
    permission(permission::Rule::UrlPath(PathMatcher {
        rule: Some(path_matcher::Rule::Path(StringMatcher {
            match_pattern: Some(MatchPattern::SafeRegex(regex)),
            ignore_case: false,
        })),
    }))
}

/// The permission of a match: all of its conditions must hold.
fn request(http: &HttpMatch) -> Permission {
    let path = http.path.iter().flat_map(|pattern| {
        let unambiguous =
            (!http_match::every_path(pattern)).then(|| not(url_path(http_match::regex(AMBIGUOUS_PATH))));
        std::iter::once(url_path(http_match::pattern(pattern))).chain(unambiguous)
    });
    let http_match::Conditions { some, none } = http_match::conditions(http);
    let some = some.into_iter().map(|header| permission(permission::Rule::Header(header)));
    let none = none.into_iter().map(|header| not(permission(permission::Rule::Header(header))));
    let rules: Vec<_> = path.chain(some).chain(none).collect();
    if rules.is_empty() {
        anything()
    } else {
        permission(permission::Rule::AndRules(permission::Set { rules }))
    }
}
