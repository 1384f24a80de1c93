//! Who may do what: TrafficTarget, HTTPRouteGroup and TCPRoute.

use std::collections::BTreeSet;

use crate::objects::{Access, Match, Name, World};
use crate::request::{Request, ambiguous, normalized_path};

impl World {
    /// Whether workloads of the account `source` may send this request to the port of those of `destination`.
    pub fn allows_request(&self, source: &Name, destination: &Name, port: u16, request: &Request) -> bool {
        if !request.is_decided_on() {
            return false;
        }
        if self.open.contains(&destination.0) {
            return true;
        }
        self.targets_between(source, destination).any(|target| {
            let routes = self.routes(target);
            routes.as_ref().is_none_or(|matches| matches.iter().any(|wanted| granted(request, wanted)))
                && self.ports(target).is_none_or(|ports| ports.contains(port))
                && (routes.is_some() || self.ports(target).is_some())
        })
    }

    /// Whether workloads of `source` may connect to a port of those of `destination` that does not speak
    /// HTTP.
    pub fn allows_connection(&self, source: &Name, destination: &Name, port: u16) -> bool {
        let open = self.open.contains(&destination.0);
        open || self.targets_between(source, destination).any(|target| {
            self.routes(target).is_none() && self.ports(target).is_some_and(|ports| ports.contains(port))
        })
    }

    /// Whether workloads of `source` may reach those of `destination` at some port by some request.
    pub(crate) fn reaches(&self, source: &Name, destination: &Name) -> bool {
        let open = self.open.contains(&destination.0);
        open || self.targets_between(source, destination).any(|target| {
            let (routes, ports) = (self.routes(target), self.ports(target));
            (routes.is_some() || ports.is_some())
                && routes.is_none_or(|routes| !routes.is_empty())
                && ports.is_none_or(|ports| ports.every || !ports.some.is_empty())
        })
    }

    /// The targets that open `destination` to `source`.
    fn targets_between(&self, source: &Name, destination: &Name) -> impl Iterator<Item = &Access> {
        self.targets.iter().filter(move |target| {
            // A namespace opens only its own.
            target.namespace == target.destination.0
                && target.destination == *destination
                && target.sources.contains(source)
        })
    }

    /// The matches that a target allows; `None` if it has no rule of that kind.
    fn routes(&self, target: &Access) -> Option<Vec<&Match>> {
        let rules: Vec<_> = target.rules.iter().filter(|rule| rule.kind == "HTTPRouteGroup").collect();
        let mut matches = Vec::new();
        for rule in &rules {
            let group = self.groups.get(&(target.namespace.clone(), rule.name.clone()));
            for (name, wanted) in group.into_iter().flatten() {
                if rule.matches.as_ref().is_none_or(|names| names.contains(name)) {
                    matches.push(wanted);
                }
            }
        }
        (!rules.is_empty()).then_some(matches)
    }

    /// The ports that a target allows; `None` if it has no rule of that kind.
    fn ports(&self, target: &Access) -> Option<Ports> {
        let rules: Vec<_> = target.rules.iter().filter(|rule| rule.kind == "TCPRoute").collect();
        let routes =
            rules.iter().filter_map(|rule| self.tcp.get(&(target.namespace.clone(), rule.name.clone())));
        let mut all = Ports { every: false, some: BTreeSet::new() };
        for ports in routes {
            all.every |= ports.is_empty();
            all.some.extend(ports);
        }
        (!rules.is_empty()).then_some(all)
    }
}

/// Whether a match is of this request, whose path has to be clear where the match has one.
pub(crate) fn granted(request: &Request, wanted: &Match) -> bool {
    let path = normalized_path(request.path());
    let unclear = wanted.path.is_some() && !wanted.every_path && ambiguous(&path);
    !unclear && request.fulfils(&path, wanted)
}

struct Ports {
    every: bool,
    some: BTreeSet<u16>,
}

impl Ports {
    fn contains(&self, port: u16) -> bool {
        self.every || self.some.contains(&port)
    }
}
