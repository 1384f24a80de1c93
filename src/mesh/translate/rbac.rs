//! Inbound access policy as Envoy RBAC: one ALLOW policy for each TrafficTarget, so overlapping targets
//! are OR-ed and what no target allows is denied.
//!
//! Owns the mapping from grants to principals and permissions. The generated messages hold policies in a
//! hash map, whose order would reach the bytes and thus the version; equal messages with an ordered map
//! are encoded in their place.

use std::collections::BTreeMap;

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
use super::{http_match, secret};
use crate::policy::{HttpAccess, InboundAccess};
use crate::smi::HttpMatch;

/// The HTTP filter's name, which per-route configuration refers to.
pub(super) const HTTP_FILTER: &str = "envoy.filters.http.rbac";
/// The network filter's name.
pub(super) const NETWORK_FILTER: &str = "envoy.filters.network.rbac";

/// Who is allowed what. Without any policy, nobody is allowed anything.
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
    /// Nobody.
    pub(super) fn nobody() -> Self {
        Self { action: rbac::rbac::Action::Allow.into(), policies: BTreeMap::new() }
    }

    /// What `access` says of requests.
    pub(super) fn http(access: &InboundAccess, settings: &Settings) -> Self {
        Self::of(access, settings, |http| match http {
            HttpAccess::Any => vec![anything()],
            HttpAccess::Only(matches) => matches.iter().map(request).collect(),
        })
    }

    /// What `access` says of connections. The grants are those for the port, so a policy that has a
    /// source allows it the connection.
    pub(super) fn connection(access: &InboundAccess, settings: &Settings) -> Self {
        Self::of(access, settings, |_| vec![anything()])
    }

    fn of(
        access: &InboundAccess,
        settings: &Settings,
        permissions: impl Fn(&HttpAccess) -> Vec<Permission>,
    ) -> Self {
        let grants = match access {
            InboundAccess::AnyoneInMesh => {
                let anyone = MatchPattern::Prefix(secret::mesh_prefix(settings));
                let policy = policy(vec![anything()], vec![authenticated(anyone)]);
                return Self {
                    policies: BTreeMap::from([("anyone-in-mesh".to_owned(), policy)]),
                    ..Self::nobody()
                };
            }
            InboundAccess::Grants(grants) => grants,
        };
        let mut rules = Self::nobody();
        for grant in grants {
            let permissions = permissions(&grant.http);
            let principals: Vec<_> = grant
                .sources
                .iter()
                .map(|source| authenticated(MatchPattern::Exact(settings.trust_domain.spiffe_id(source))))
                .collect();
            // Envoy refuses a policy without either, and it would allow nothing.
            if !permissions.is_empty() && !principals.is_empty() {
                rules.policies.insert(grant.target.to_string(), policy(permissions, principals));
            }
        }
        rules
    }

    /// For the HTTP filter itself.
    pub(super) fn http_filter(self) -> Any {
        Any { type_url: http_rbac::Rbac::type_url(), value: HttpRbac { rules: Some(self) }.encode_to_vec() }
    }

    /// For a virtual host, in place of what the HTTP filter says: the filter's name and the value.
    pub(super) fn per_route(self) -> (String, Any) {
        let value = HttpRbacPerRoute { rbac: Some(HttpRbac { rules: Some(self) }) }.encode_to_vec();
        (HTTP_FILTER.to_owned(), Any { type_url: http_rbac::RbacPerRoute::type_url(), value })
    }

    /// For the network filter.
    pub(super) fn network_filter(self, stat_prefix: &str) -> Any {
        let filter = NetworkRbac { rules: Some(self), stat_prefix: stat_prefix.to_owned() };
        Any { type_url: network_rbac::Rbac::type_url(), value: filter.encode_to_vec() }
    }
}

fn policy(permissions: Vec<Permission>, principals: Vec<Principal>) -> Policy {
    Policy { permissions, principals, ..Policy::default() }
}

fn authenticated(identity: MatchPattern) -> Principal {
    Principal {
        identifier: Some(principal::Identifier::Authenticated(principal::Authenticated {
            principal_name: Some(StringMatcher { match_pattern: Some(identity), ignore_case: false }),
        })),
    }
}

fn anything() -> Permission {
    permission(permission::Rule::Any(true))
}

fn permission(rule: permission::Rule) -> Permission {
    Permission { rule: Some(rule) }
}

/// Paths that an application may read as other paths than Envoy does: with an encoded slash or backslash, or a dot
/// segment with a parameter (`/..;/`). A grant of some paths does not cover them, or `/public/..%2fadmin` would pass
/// for a path below `/public/`.
const AMBIGUOUS_PATH: &str = r"(?i).*(?:%2f|%5c|/\.\.;).*";

fn url_path(regex: RegexMatcher) -> Permission {
    permission(permission::Rule::UrlPath(PathMatcher {
        rule: Some(path_matcher::Rule::Path(StringMatcher {
            match_pattern: Some(MatchPattern::SafeRegex(regex)),
            ignore_case: false,
        })),
    }))
}

/// All that the match names must hold.
fn request(http: &HttpMatch) -> Permission {
    let path = http.path.iter().flat_map(|pattern| {
        let unambiguous = (!http_match::every_path(pattern)).then(|| {
            let ambiguous = url_path(http_match::regex(AMBIGUOUS_PATH));
            permission(permission::Rule::NotRule(Box::new(ambiguous)))
        });
        std::iter::once(url_path(http_match::pattern(pattern))).chain(unambiguous)
    });
    let headers =
        http_match::headers(http).into_iter().map(|header| permission(permission::Rule::Header(header)));
    let rules: Vec<_> = path.chain(headers).collect();
    if rules.is_empty() {
        anything()
    } else {
        permission(permission::Rule::AndRules(permission::Set { rules }))
    }
}
