//! `access.smi-spec.io/v1alpha3` TrafficTarget: who may speak to whom, by which routes.

use std::collections::BTreeSet;

use crate::ids::{NamespacedName, ServiceAccountId};

/// An access rule: any of `sources` may reach `destination` by any of `rules`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficTarget {
    /// Its own name; rules are looked up in its namespace.
    pub id: NamespacedName,
    /// Who is spoken to.
    pub destination: ServiceAccountId,
    /// Who may speak. Never empty.
    pub sources: BTreeSet<ServiceAccountId>,
    /// By which routes. Never empty.
    pub rules: Vec<Rule>,
}

/// A reference to a route object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The kind of the route object.
    pub kind: RuleKind,
    /// Its name, in the TrafficTarget's namespace.
    pub name: NamespacedName,
    /// For an HTTPRouteGroup, the names of the matches meant; `None` (the field is absent) means all.
    /// An empty list that was written down means none.
    pub matches: Option<BTreeSet<String>>,
}

/// What a rule refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    /// HTTP routes.
    HttpRouteGroup,
    /// TCP ports.
    TcpRoute,
    /// UDP ports: read and reported, never enforced.
    UdpRoute,
}
