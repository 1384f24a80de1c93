//! What the grants of one destination take when they are written out, and which of them are left out.
//!
//! Owns the estimate in bytes, which reads the declared objects and builds nothing. A grant is repeated on
//! each port that it applies to, so a few short objects can stand for gigabytes. Bounds on single lists do
//! not bound that product; this does.
//!
//! Leaving out grants only narrows: grants are additive, and one is left out whole or not at all, so that
//! the conditions within it stay together.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{self, HttpRules, Routes, matches_of};
use smc_api::smi::{RuleKind, TrafficTarget};
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::proxy_class::InboundPort;

/// The most that an identity's inbound ports may take, in bytes, of one class of its workloads. It is
/// nine hundred ports, or some 5,000 matches of 300 bytes, and builds in some 10 ms.
pub const MAX_IDENTITY: u64 = 2 << 20;
/// The most that the identities of one namespace may take together. A namespace is what a tenant writes.
pub const MAX_NAMESPACE: u64 = 16 << 20;
/// The most that all namespaces may take together. A replica keeps each resource in two forms, thus holds
/// twice as much at worst.
pub const MAX_MESH: u64 = 256 << 20;

/// What an inbound port takes without its grants: filter chain, route, cluster, validation context.
pub(super) const PORT_BYTES: u64 = 2688;

/// What a filter chain takes more where a server is asked whether requests may pass.
pub const AUTHORIZATION_BYTES: usize = 256;

/// What a filter chain takes more where requests are traced, beside the collector's address.
pub const TRACING_BYTES: usize = 384;

/// What a filter chain takes more where a collector is sent what is logged, beside the attributes: which
/// records, and their body. That is as long as a line of the log, but for numbers, which are texts of up to
/// twice as many bytes.
pub const RECORDS_BYTES: usize = 3072;

/// What a filter chain takes more where the mesh chooses its TLS: all suites and all curves.
pub const TLS_BYTES: usize = 256;

/// Framing of an RBAC policy, of a permission, of a condition, and of an identity with its trust domain.
/// Each is above what the translation writes; a test compares.
const POLICY_BYTES: u64 = 64;
const PERMISSION_BYTES: u64 = 128;
const CONDITION_BYTES: u64 = 64;
const IDENTITY_BYTES: u64 = 96;

/// On a port of another protocol than HTTP, the handshake and the RBAC rules both name each identity.
const COPIES_OF_AN_IDENTITY: u64 = 2;

/// A port in a list, in memory.
const PORT_NUMBER_BYTES: u64 = 4;

/// More ports than this never fit, so that targets are not compared with them.
const MOST_PORTS: usize = (MAX_IDENTITY / PORT_BYTES) as usize;

/// The estimate of what TrafficTargets take on the inbound ports of one class of workloads.
#[derive(Debug)]
pub struct Estimate<'a> {
    /// What each port takes, sorted.
    ports: Vec<(&'a InboundPort, u64)>,
    offers: Vec<Offer<'a>>,
    /// What the matches of each distinct list of HTTP rules take on one port. Targets with the same rules
    /// share one policy.
    rules: Vec<u64>,
    /// What IngressBackends take, each on all ports together.
    ingress: BTreeMap<&'a NamespacedName, u64>,
}

/// A target that grants something.
#[derive(Debug)]
struct Offer<'a> {
    target: &'a NamespacedName,
    /// The place of its HTTP rules in [`Estimate::rules`].
    rules: usize,
    /// What its sources take on one port.
    sources: u64,
    /// The HTTP ports, and the others, that it applies to, by their place in the class.
    http: Vec<usize>,
    other: Vec<usize>,
}

impl Offer<'_> {
    fn sources_on(&self, http: usize, other: usize) -> u64 {
        self.sources.saturating_mul(count(http) + COPIES_OF_AN_IDENTITY * count(other))
    }
}

/// What is written out of a class, within an allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Whether each port has room.
    pub ports: Vec<bool>,
    /// The targets that are left out.
    pub left_out: BTreeSet<NamespacedName>,
    /// The IngressBackends that are left out.
    pub ingress_left_out: BTreeSet<NamespacedName>,
}

impl<'a> Estimate<'a> {
    /// Ports to which no TrafficTarget applies: permissive mode.
    pub fn of_ports(ports: &'a [InboundPort]) -> Self {
        let ports = ports.iter().map(|port| (port, PORT_BYTES)).collect();
        Self { ports, offers: Vec::new(), rules: Vec::new(), ingress: BTreeMap::new() }
    }

    /// Adds what the rate limits of a port, asking a server, traces and TLS take, written out for so many
    /// ways in. Without room for them the port is closed: what limits comes before what grants.
    pub fn add_limits(&mut self, port: &InboundPort, bytes: usize, ways: usize) {
        if let Ok(place) = self.ports.binary_search_by_key(&port, |(port, _)| port) {
            let sum = &mut self.ports[place].1;
            *sum = sum.saturating_add(count(bytes).saturating_mul(count(ways)));
        }
    }

    /// Adds what an IngressBackend takes on a port.
    pub fn add_ingress(&mut self, object: &'a NamespacedName, bytes: u64) {
        let sum = self.ingress.entry(object).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// The estimate for `targets`, which name one destination, on `ports`, sorted.
    pub fn new(
        routes: &impl Routes,
        targets: impl IntoIterator<Item = &'a TrafficTarget>,
        ports: &'a [InboundPort],
    ) -> Self {
        let mut places: BTreeMap<HttpRules<'a>, usize> = BTreeMap::new();
        let mut groups: BTreeMap<&NamespacedName, u64> = BTreeMap::new();
        let mut estimate = Self::of_ports(ports);
        let ports = &ports[..ports.len().min(MOST_PORTS)];
        for target in targets.into_iter().filter(|target| grants::allows_something(routes, target)) {
            let (http, other) = applicable(routes, target, ports);
            if http.is_empty() && other.is_empty() {
                continue;
            }
            let rules = *places.entry(grants::http_rules(target)).or_insert_with_key(|rules| {
                estimate.rules.push(rules_bytes(routes, rules, &mut groups));
                estimate.rules.len() - 1
            });
            let sources = target.sources.iter().map(identity_bytes).sum();
            estimate.offers.push(Offer { target: &target.id, rules, sources, http, other });
        }
        estimate
    }

    /// The bytes of all ports and targets, from above.
    pub fn demand(&self) -> u64 {
        let mut covered = vec![BTreeSet::new(); self.rules.len()];
        let open = vec![true; self.ports.len()];
        let offers = self.offers.iter().map(|offer| self.take(offer, &open, &mut covered));
        let ports = self.ports.iter().map(|(_, bytes)| *bytes);
        ports.chain(offers).chain(self.ingress.values().copied()).fold(0, u64::saturating_add)
    }

    /// What fits into `allowance` bytes: the ports, from the first, then the targets that take least, then
    /// the IngressBackends that do. Of equals, those come first that sort first by name.
    pub fn fit(&self, allowance: u64) -> Fit {
        let mut left = allowance;
        let fits = |(_, bytes): &(_, u64)| left.checked_sub(*bytes).map(|rest| left = rest).is_some();
        let ports: Vec<_> = self.ports.iter().map(fits).collect();
        let mut covered = vec![BTreeSet::new(); self.rules.len()];
        let alone = |offer: &&Offer<'_>| {
            let (http, other) = (within(&offer.http, &ports), within(&offer.other, &ports));
            let rules = self.rules.get(offer.rules).copied().unwrap_or(u64::MAX);
            offer.sources_on(http.len(), other.len()).saturating_add(rules.saturating_mul(count(http.len())))
        };
        let mut order: Vec<_> = self.offers.iter().collect();
        order.sort_by_cached_key(|offer| (alone(offer), offer.target));
        let mut left_out = BTreeSet::new();
        for offer in order {
            let before = covered.get(offer.rules).cloned();
            let bytes = self.take(offer, &ports, &mut covered);
            if let Some(rest) = left.checked_sub(bytes) {
                left = rest;
            } else {
                left_out.insert(offer.target.clone());
                if let (Some(now), Some(before)) = (covered.get_mut(offer.rules), before) {
                    *now = before;
                }
            }
        }
        let mut order: Vec<_> = self.ingress.iter().collect();
        order.sort_by_key(|(object, bytes)| (**bytes, **object));
        let mut ingress_left_out = BTreeSet::new();
        for (object, bytes) in order {
            match left.checked_sub(*bytes) {
                Some(rest) => left = rest,
                None => {
                    ingress_left_out.insert((*object).clone());
                }
            }
        }
        Fit { ports, left_out, ingress_left_out }
    }

    /// What an offer adds on the `open` ports, where `covered` has the ports that its rules are on already.
    fn take(&self, offer: &Offer<'_>, open: &[bool], covered: &mut [BTreeSet<usize>]) -> u64 {
        let (http, other) = (within(&offer.http, open), within(&offer.other, open));
        let sources = offer.sources_on(http.len(), other.len());
        let (Some(&rules), Some(covered)) = (self.rules.get(offer.rules), covered.get_mut(offer.rules))
        else {
            return u64::MAX;
        };
        let fresh = http.iter().filter(|port| covered.insert(**port)).count();
        sources.saturating_add(rules.saturating_mul(count(fresh)))
    }
}

/// The sizes of grants, written out once each. Remembers those of route groups.
#[derive(Debug, Default)]
pub struct GrantSizes<'a>(BTreeMap<&'a NamespacedName, u64>);

impl<'a> GrantSizes<'a> {
    /// What the routes and ports of a target take, in bytes, from above.
    pub fn of(&mut self, routes: &impl Routes, target: &'a TrafficTarget) -> u64 {
        let tcp = target.rules.iter().filter(|rule| rule.kind == RuleKind::TcpRoute);
        let tcp = tcp.filter_map(|rule| routes.tcp_route(&rule.name));
        let ports = tcp.map(|route| count(route.ports.len())).fold(0, u64::saturating_add);
        let http = rules_bytes(routes, &grants::http_rules(target), &mut self.0);
        http.saturating_add(ports.saturating_mul(PORT_NUMBER_BYTES))
    }
}

/// The places of open ports among these.
fn within(places: &[usize], open: &[bool]) -> Vec<usize> {
    places.iter().copied().filter(|&place| open.get(place).is_some_and(|open| *open)).collect()
}

/// A number of things, or of bytes, as what is estimated counts it.
pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// All parts together, or the largest number: an estimate is compared with a bound.
pub(super) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

/// The places of the ports that a target applies to: those of HTTP, and the others.
fn applicable(
    routes: &impl Routes,
    target: &TrafficTarget,
    ports: &[InboundPort],
) -> (Vec<usize>, Vec<usize>) {
    let http_only = target.rules.iter().any(|rule| rule.kind == RuleKind::HttpRouteGroup);
    let numbers = grants::ports(routes, target);
    let applies = |port: &InboundPort| {
        (!http_only || port.protocol.is_http())
            && numbers.as_ref().is_none_or(|numbers| numbers.contains(&port.port))
    };
    let places = ports.iter().enumerate().filter(|(_, port)| applies(port));
    let (http, other): (Vec<_>, Vec<_>) = places.partition(|(_, port)| port.protocol.is_http());
    let places = |ports: Vec<(usize, _)>| ports.into_iter().map(|(place, _)| place).collect();
    (places(http), places(other))
}

fn identity_bytes(account: &ServiceAccountId) -> u64 {
    IDENTITY_BYTES + count(account.namespace().len() + account.name().len())
}

/// What HTTP rules take on one port. `groups` remembers whole groups.
fn rules_bytes<'a>(
    routes: &impl Routes,
    rules: &HttpRules<'a>,
    groups: &mut BTreeMap<&'a NamespacedName, u64>,
) -> u64 {
    let one = |(name, names): &(&'a NamespacedName, Option<&BTreeSet<String>>)| {
        let Some(group) = routes.http_route_group(name) else { return 0 };
        match names {
            None => *groups.entry(name).or_insert_with(|| matches_of(group, None).map(match_bytes).sum()),
            Some(_) => matches_of(group, *names).map(match_bytes).sum(),
        }
    };
    POLICY_BYTES.saturating_add(rules.iter().map(one).fold(PERMISSION_BYTES, u64::saturating_add))
}

/// What one match takes, as a permission or as a route.
pub(crate) fn match_bytes(http: &HttpMatch) -> u64 {
    let methods = match &http.methods {
        MethodSet::Any => 0,
        MethodSet::Only(methods) => methods.iter().map(|method| count(method.len()) + 1).sum(),
    };
    let path = http.path.as_ref().map_or(0, |path| count(path.as_str().len()));
    // A condition for the values that match, and one for those that must not be there.
    let headers = http.headers.iter().flat_map(|(name, pattern)| {
        let patterns = std::iter::once(pattern.matching()).chain(pattern.other());
        patterns.map(|pattern| CONDITION_BYTES + count(name.len() + pattern.as_str().len()))
    });
    PERMISSION_BYTES + methods + path + headers.sum::<u64>()
}

#[cfg(test)]
mod tests;
