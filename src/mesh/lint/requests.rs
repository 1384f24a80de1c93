//! Reads what decides on requests: connection managers, routes and RBAC rules.
//!
//! Owns the rule that every request from another pod passes RBAC rules before it reaches the application.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::rbac::v3::{self as rbac, Permission, permission, principal};
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteConfiguration, VirtualHost, header_matcher::HeaderMatchSpecifier, route,
    route_action::ClusterSpecifier, route_match::PathSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{Rbac, RbacPerRoute};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    StringMatcher, path_matcher, string_matcher::MatchPattern,
};
use prost::{DecodeError, Message, Name};

use super::reader::{Client, EXTERNAL_AUTHORIZATION, INGRESS, Reader, names_identities, wrapped};
use smc_xds::resource::ResourceType;

/// The name of the HTTP RBAC filter, by which a virtual host overrides the filter's rules.
const RULES: &str = "envoy.filters.http.rbac";

/// The prefix of the names of route configurations that lead to the application.
const INBOUND: &str = "inbound_";

/// The one path that is served without authentication.
const STATISTICS: &str = "/stats/prometheus";

impl Reader {
    pub(super) fn http(
        &mut self,
        manager: &HttpConnectionManager,
        client: Client,
    ) -> Result<(), DecodeError> {
        let prefix = match client {
            Client::Application | Client::Scraper => "",
            Client::Ingress => INGRESS,
            Client::Others => INBOUND,
        };
        if !prefix.is_empty() && !manager.http_filters.first().is_some_and(denies_by_default) {
            self.fault("has an HTTP chain whose first filter does not deny by default");
        }
        if matches!(client, Client::Ingress | Client::Others) {
            self.asks.insert(manager.http_filters.iter().any(|filter| filter.name == EXTERNAL_AUTHORIZATION));
        }
        self.logs(&manager.access_log, client)?;
        self.tracing(manager.tracing.as_ref(), client)?;
        for filter in &manager.http_filters {
            if let Some(http_filter::ConfigType::ConfigDiscovery(source)) = &filter.config_type {
                let expected = if filter.name == EXTERNAL_AUTHORIZATION {
                    ExtAuthz::type_url()
                } else {
                    LocalRateLimit::type_url()
                };
                if source.type_urls != [expected] || source.default_config.is_some() {
                    self.fault(format!("takes a filter of another kind as {}", filter.name));
                }
                self.refer(ResourceType::ExtensionConfig, &filter.name);
            }
        }
        match &manager.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                if client == Client::Scraper || !rds.route_config_name.starts_with(prefix) {
                    self.fault(format!(
                        "routes HTTP from other pods by {}, which has no rules",
                        rds.route_config_name
                    ));
                }
                self.refer(ResourceType::Route, &rds.route_config_name);
            }
            Some(RouteSpecifier::RouteConfig(routes)) => {
                self.routes(routes)?;
                match client {
                    Client::Application => {}
                    Client::Scraper => self.statistics(routes),
                    Client::Ingress | Client::Others => self.fault("has an HTTP chain with inline routes"),
                }
            }
            _ => self.fault("has an HTTP chain without routes"),
        }
        Ok(())
    }

    /// Checks routes that are served in clear text and without authentication.
    fn statistics(&mut self, routes: &RouteConfiguration) {
        let path = PathSpecifier::Path(STATISTICS.to_owned());
        let mut all = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
        if !all.all(|route| route.r#match.as_ref().is_some_and(|m| m.path_specifier.as_ref() == Some(&path)))
        {
            self.fault("serves more than the statistics in clear text");
        }
    }

    pub(super) fn routes(&mut self, routes: &RouteConfiguration) -> Result<(), DecodeError> {
        let (mut names, mut domains) = (BTreeSet::new(), BTreeSet::new());
        for host in &routes.virtual_hosts {
            if !names.insert(&host.name) || !host.domains.iter().all(|domain| domains.insert(domain)) {
                self.fault(format!("has two virtual hosts with the same name or domain: {}", host.name));
            }
            if routes.name.starts_with(INBOUND) {
                self.host_rules(host, is_identity)?;
            } else if routes.name.starts_with(INGRESS) {
                self.host_rules(host, names_client)?;
            }
            for route in &host.routes {
                if !route.typed_per_filter_config.is_empty() {
                    self.fault("has a route that overrides the rules of its virtual host");
                }
                let matched = route.r#match.as_ref();
                let path = matched.and_then(|matched| matched.path_specifier.as_ref());
                if matches!(path, Some(PathSpecifier::SafeRegex(path)) if path.regex.is_empty()) {
                    self.empty_expression();
                }
                matched
                    .into_iter()
                    .flat_map(|matched| &matched.headers)
                    .for_each(|header| self.header(header));
                let Some(route::Action::Route(action)) = &route.action else { continue };
                match &action.cluster_specifier {
                    Some(ClusterSpecifier::Cluster(cluster)) => {
                        self.route_out(&routes.name, &host.domains, cluster);
                        self.refer(ResourceType::Cluster, cluster);
                    }
                    Some(ClusterSpecifier::WeightedClusters(split)) => {
                        let weight = |weight: &Option<_>| weight.map_or(0, wrapped);
                        self.weights(split.clusters.iter().map(|part| (&*part.name, weight(&part.weight))));
                        if split.clusters.iter().any(|part| !part.typed_per_filter_config.is_empty()) {
                            self.fault("has a route that overrides the rules of its virtual host");
                        }
                    }
                    _ => self.fault("has a route without a cluster"),
                }
            }
        }
        Ok(())
    }

    /// Checks the rules of a virtual host that leads to the application.
    fn host_rules(
        &mut self,
        host: &VirtualHost,
        is_allowed: fn(&rbac::Principal) -> bool,
    ) -> Result<(), DecodeError> {
        let rules = match host.typed_per_filter_config.get(RULES) {
            Some(any) if any.type_url == RbacPerRoute::type_url() => RbacPerRoute::decode(&*any.value)?.rbac,
            _ => None,
        };
        if !rules.as_ref().is_some_and(enforces) {
            self.fault(format!("virtual host {} has no RBAC rules with the action ALLOW", host.name));
        }
        self.rules_for(rules.as_ref().and_then(|rules| rules.rules.as_ref()), is_allowed);
        Ok(())
    }

    /// Checks rules, of a filter or a virtual host: they allow identities only, and hold no empty expression.
    pub(super) fn rules(&mut self, rules: Option<&rbac::Rbac>) {
        self.rules_for(rules, is_identity);
    }

    fn rules_for(&mut self, rules: Option<&rbac::Rbac>, is_allowed: fn(&rbac::Principal) -> bool) {
        let mut allows_others = false;
        for policy in rules.into_iter().flat_map(|rules| rules.policies.values()) {
            policy.permissions.iter().for_each(|permission| self.permission(permission));
            allows_others |= !policy.principals.iter().all(is_allowed);
        }
        if allows_others {
            self.fault("has rules that allow more than identities of the mesh, or than clients of an ingress by name");
        }
    }

    /// Recurses as deep as the permission that translation made: a few levels.
    fn permission(&mut self, permission: &Permission) {
        use permission::Rule;
        match &permission.rule {
            Some(Rule::AndRules(set) | Rule::OrRules(set)) => {
                set.rules.iter().for_each(|permission| self.permission(permission));
            }
            Some(Rule::NotRule(permission)) => self.permission(permission),
            Some(Rule::Header(header)) => self.header(header),
            Some(Rule::RequestedServerName(name)) => self.text(name),
            Some(Rule::UrlPath(path)) => {
                if let Some(path_matcher::Rule::Path(text)) = &path.rule {
                    self.text(text);
                }
            }
            _ => {}
        }
    }

    fn header(&mut self, header: &HeaderMatcher) {
        if let Some(HeaderMatchSpecifier::StringMatch(text)) = &header.header_match_specifier {
            self.text(text);
        }
    }

    fn text(&mut self, text: &StringMatcher) {
        if matches!(&text.match_pattern, Some(MatchPattern::SafeRegex(regex)) if regex.regex.is_empty()) {
            self.empty_expression();
        }
    }

    /// Envoy rejects a resource that holds an empty regular expression.
    fn empty_expression(&mut self) {
        self.fault("has an empty expression");
    }
}

fn is_identity(principal: &rbac::Principal) -> bool {
    let Some(principal::Identifier::Authenticated(identity)) = &principal.identifier else { return false };
    identity.principal_name.as_ref().is_some_and(names_identities)
}

/// Whether a principal of an ingress names the addresses of connections, or DNS names in certificates of the
/// mesh's CA. Recurses as deep as the principal that translation made: two levels.
fn names_client(principal: &rbac::Principal) -> bool {
    use principal::Identifier::{AndIds, Authenticated, DirectRemoteIp, OrIds};
    match &principal.identifier {
        Some(AndIds(set) | OrIds(set)) => !set.ids.is_empty() && set.ids.iter().all(names_client),
        Some(DirectRemoteIp(range)) => !range.address_prefix.is_empty() && range.prefix_len.is_some(),
        Some(Authenticated(identity)) => {
            let pattern = identity.principal_name.as_ref().and_then(|name| name.match_pattern.as_ref());
            matches!(pattern, Some(MatchPattern::Exact(name)) if !name.is_empty() && !name.contains([':', '/', '=']))
        }
        _ => false,
    }
}

fn denies_by_default(filter: &HttpFilter) -> bool {
    let Some(http_filter::ConfigType::TypedConfig(any)) = &filter.config_type else { return false };
    let is_rules = filter.name == RULES && any.type_url == Rbac::type_url() && !filter.disabled;
    is_rules && Rbac::decode(&*any.value).is_ok_and(|rules| enforces(&rules))
}

fn enforces(rules: &Rbac) -> bool {
    rules.matcher.is_none() && is_allow_list(rules.rules.as_ref())
}

/// Whether there are rules, and they deny every request that no policy matches.
pub(super) fn is_allow_list(rules: Option<&rbac::Rbac>) -> bool {
    rules.is_some_and(|rules| rules.action() == rbac::rbac::Action::Allow)
}
