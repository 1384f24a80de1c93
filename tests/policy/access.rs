//! Who may do what: TrafficTarget, HTTPRouteGroup and TCPRoute.

use std::collections::BTreeSet;

use crate::objects::{Match, Name, Pod, Port, Protocol, Service, Target, World};
use crate::request::{Request, ambiguous, normalized_path};

impl World {
    /// Whether pods of the account `source` may send this request to the port of pods of `destination`.
    pub fn allows_request(
        &self,
        source: (&str, &str),
        destination: (&str, &str),
        port: u16,
        request: &Request,
    ) -> bool {
        let path = normalized_path(request.path());
        self.targets_between(source, destination).any(|target| {
            let routes = self.routes(target);
            let granted = match &routes {
                None => true,
                Some(matches) => matches.iter().any(|wanted| {
                    let unclear = wanted.path.is_some() && !wanted.every_path && ambiguous(&path);
                    !unclear && request.fulfils(&path, wanted)
                }),
            };
            granted
                && self.ports(target).is_none_or(|ports| ports.contains(port))
                && (routes.is_some() || self.ports(target).is_some())
        })
    }

    /// Whether pods of `source` may connect to a port of pods of `destination` that does not speak HTTP.
    pub fn allows_connection(&self, source: (&str, &str), destination: (&str, &str), port: u16) -> bool {
        self.targets_between(source, destination).any(|target| {
            self.routes(target).is_none() && self.ports(target).is_some_and(|ports| ports.contains(port))
        })
    }

    /// The targets that open `destination` to `source`.
    fn targets_between(
        &self,
        source: (&str, &str),
        destination: (&str, &str),
    ) -> impl Iterator<Item = &Target> {
        let is = |name: &Name, id: (&str, &str)| (&*name.0, &*name.1) == id;
        self.targets.iter().filter(move |target| {
            // A namespace opens only its own.
            target.namespace == target.destination.0
                && is(&target.destination, destination)
                && target.sources.iter().any(|name| is(name, source))
        })
    }

    /// The matches that a target allows; `None` if it has no rule of that kind.
    fn routes(&self, target: &Target) -> Option<Vec<&Match>> {
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
    fn ports(&self, target: &Target) -> Option<Ports> {
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

    /// The ports of pods of an account, in the numbers of the pods, without repetitions.
    pub fn pod_ports(&self, account: (&str, &str)) -> Vec<Port> {
        let mut ports: Vec<Port> = Vec::new();
        for pod in self.pods.iter().filter(|pod| (&*pod.account.0, &*pod.account.1) == account) {
            let services = self.services.iter().filter(|(name, service)| selects(&name.0, service, pod));
            for port in services.flat_map(|(_, service)| &service.ports) {
                if !ports.iter().any(|other| (other.target, other.protocol) == (port.target, port.protocol)) {
                    ports.push(*port);
                }
            }
        }
        ports
    }

    /// The accounts behind a service.
    pub fn accounts_behind(&self, service: (&str, &str)) -> BTreeSet<Name> {
        let id = (service.0.to_owned(), service.1.to_owned());
        let Some(found) = self.services.get(&id) else { return BTreeSet::new() };
        self.pods.iter().filter(|pod| selects(service.0, found, pod)).map(|pod| pod.account.clone()).collect()
    }

    /// The ports of a service.
    pub fn service_ports(&self, service: (&str, &str)) -> &[Port] {
        let id = (service.0.to_owned(), service.1.to_owned());
        self.services.get(&id).map(|service| &*service.ports).unwrap_or_default()
    }

    /// The names of all services.
    pub fn services(&self) -> impl Iterator<Item = (&str, &str)> {
        self.services.keys().map(|(namespace, name)| (&**namespace, &**name))
    }

    /// The accounts of all pods.
    pub fn accounts(&self) -> BTreeSet<(&str, &str)> {
        self.pods.iter().map(|pod| (&*pod.account.0, &*pod.account.1)).collect()
    }
}

impl Protocol {
    /// Whether requests are authorised one by one.
    pub fn is_http(self) -> bool {
        self == Self::Http
    }
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

fn selects(namespace: &str, service: &Service, pod: &Pod) -> bool {
    namespace == pod.account.0
        && !service.selector.is_empty()
        && service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
}
