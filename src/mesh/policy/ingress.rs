//! The semantics of OSM's IngressBackend: what several of them open together.
//!
//! Owns how they unite. Each allows by itself what all of its own conditions allow, as the last versions of
//! OSM's guide on ingress have them, and differs from OSM where that would open a port to anybody
//! (`docs/osm-differences.md`). A condition that names nothing which exists allows nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::bounds::{PORT_BYTES, count, sum};
use super::grants::{self, Routes};
use smc_api::osm::ingress_backend::{BackendPort, IngressBackend, IngressProtocol};
use smc_model::cidr::IpNet;
use smc_model::inbound_intent::HttpAccess;
use smc_model::ingress::{IngressChain, IngressGrant, IngressGrantees, IngressTransport};
use smc_types::ids::NamespacedName;
use smc_types::proxy_class::InboundPort;

/// Framing of an address, and of a name of a client or a server. Each is above what the translation writes; a
/// test compares.
const ADDRESS_BYTES: u64 = 64;
const NAME_BYTES: u64 = 96;

/// What one IngressBackend opens of the ports of a class.
#[derive(Debug, Clone)]
pub struct Opening<'a> {
    /// The IngressBackend.
    pub object: &'a IngressBackend,
    /// Each port as the object names it, and as the class has it: one over HTTP, and one of each number.
    pub ports: Vec<(&'a BackendPort, &'a InboundPort)>,
}

/// The chains for these openings, sorted. `addresses` is what the sources of an object stand for; `None` if
/// they name no address.
pub fn chains(
    routes: &impl Routes,
    openings: &[Opening<'_>],
    addresses: impl Fn(&IngressBackend) -> Option<BTreeSet<IpNet>>,
) -> Vec<IngressChain> {
    let mut chains: BTreeMap<(u16, IngressTransport), IngressChain> = BTreeMap::new();
    for Opening { object, ports } in openings {
        let http = grants::requests(routes, object.matches.as_ref());
        let addresses = addresses(object);
        for (opened, inbound) in ports {
            let (port, protocol) = (inbound.port, inbound.protocol);
            let (transport, checks_client) = match opened.protocol {
                IngressProtocol::Http => (IngressTransport::ClearText, false),
                IngressProtocol::Https { checks_client, .. } => (IngressTransport::Tls, checks_client),
            };
            let chain = chains.entry((port, transport)).or_insert_with(|| {
                let (principals, grants) = (BTreeSet::new(), BTreeSet::new());
                IngressChain { port, transport, protocol, principals, anonymous: false, grants }
            });
            if checks_client {
                chain.principals.extend(object.sources.principals.iter().cloned());
            } else {
                chain.anonymous = true;
            }
            let http = http.as_ref();
            chain
                .grants
                .extend(http.and_then(|http| grant(routes, object, opened, addresses.as_ref(), http)));
        }
    }
    chains.into_values().collect()
}

/// What an IngressBackend allows on one port; `None` if that is nothing.
fn grant(
    routes: &impl Routes,
    object: &IngressBackend,
    opened: &BackendPort,
    addresses: Option<&BTreeSet<IpNet>>,
    http: &HttpAccess,
) -> Option<IngressGrant> {
    let IngressBackend { id, sources, matches, .. } = object;
    if addresses.is_some_and(BTreeSet::is_empty) {
        return None;
    }
    let addresses = addresses.cloned();
    let (checks_client, server_names) = match &opened.protocol {
        IngressProtocol::Http => (false, None),
        IngressProtocol::Https { checks_client, server_names } => (*checks_client, server_names.clone()),
    };
    let sources = match (checks_client, addresses) {
        (true, addresses) if !sources.principals.is_empty() => {
            IngressGrantees::Principals(sources.principals.clone(), addresses)
        }
        (false, Some(addresses)) => IngressGrantees::Addresses(addresses),
        _ => return None,
    };
    let routes = grants::existing_groups(routes, matches.as_ref()).collect();
    Some(IngressGrant { backend: id.clone(), sources, server_names, http: http.clone(), routes })
}

/// What an opening takes when it is written out, in bytes, from above, where its sources stand for so many
/// addresses. `groups` remembers what groups take. Builds nothing.
pub fn bytes<'a>(
    routes: &impl Routes,
    opening: &Opening<'a>,
    addresses: usize,
    groups: &mut BTreeMap<&'a NamespacedName, u64>,
) -> u64 {
    let names = |names: &BTreeSet<String>| sum(names.iter().map(|name| NAME_BYTES + 2 * count(name.len())));
    let bytes = |name| *groups.entry(name).or_insert_with(|| grants::group_size(routes, name).0);
    let matches = sum(opening.object.matches.iter().flatten().map(bytes));
    let addresses = count(addresses).saturating_mul(ADDRESS_BYTES);
    let each = sum([PORT_BYTES, names(&opening.object.sources.principals), addresses, matches]);
    let own = opening.ports.iter().map(|(opened, _)| match &opened.protocol {
        IngressProtocol::Https { server_names: Some(server_names), .. } => names(server_names),
        IngressProtocol::Https { server_names: None, .. } | IngressProtocol::Http => 0,
    });
    sum(own).saturating_add(each.saturating_mul(count(opening.ports.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixtures::{group, ingress, name, service_id};
    use smc_api::osm::ingress_backend::IngressSources;
    use smc_api::smi::{RouteGroup, TcpRoute};
    use smc_types::proxy_class::AppProtocol;

    /// Routes `/a` in `shop/a`, none in `shop/none`.
    struct Shop([RouteGroup; 2]);

    impl Routes for Shop {
        fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup> {
            self.0.iter().find(|group| group.id == *name)
        }

        fn tcp_route(&self, _: &NamespacedName) -> Option<&TcpRoute> {
            None
        }
    }

    fn shop() -> Shop {
        Shop([group("shop/a", &["/a"]), group("shop/none", &[])])
    }

    fn inbound(port: u16, protocol: AppProtocol) -> InboundPort {
        InboundPort { port, protocol, services: [service_id("shop/web")].into() }
    }

    /// The chains for these objects, each of which opens each of these ports, from these networks.
    fn of(
        objects: &[IngressBackend],
        ports: &[InboundPort],
        addresses: Option<&[&str]>,
    ) -> Vec<IngressChain> {
        let addresses: Option<BTreeSet<IpNet>> =
            addresses.map(|all| all.iter().map(|text| text.parse().unwrap()).collect());
        let openings: Vec<_> = objects
            .iter()
            .map(|object| {
                let named = object.backends.iter();
                let ports = named.flat_map(|opened| {
                    let same = ports.iter().filter(|inbound| inbound.port == opened.port);
                    same.map(move |inbound| (opened, inbound))
                });
                Opening { object, ports: ports.collect() }
            })
            .collect();
        chains(&shop(), &openings, |_| addresses.clone())
    }

    fn https(checks_client: bool, names: Option<&[&str]>) -> IngressProtocol {
        let names = names.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        IngressProtocol::Https { checks_client, server_names: names }
    }

    /// A port 80 of `shop/web`, opened by this protocol, to this principal if there is one.
    fn opened(id: &str, protocol: IngressProtocol, principal: Option<&str>) -> IngressBackend {
        let object = ingress(id, "shop/web", 80, &[], &["10.0.0.0/8"]);
        let backend = BackendPort { service: service_id("shop/web"), port: 80, protocol };
        let principals = principal.map(str::to_owned).into_iter().collect();
        IngressBackend {
            backends: [backend].into(),
            sources: IngressSources { principals, ..object.sources },
            ..object
        }
    }

    const GATEWAY: Option<&str> = Some("gateway.ingress.cluster.local");
    const ANY: Option<&[&str]> = Some(&["10.0.0.0/8"]);

    #[test]
    fn who_is_let_in_follows_from_the_protocol_and_the_sources() {
        let http = || IngressProtocol::Http;
        let net = || BTreeSet::from(["10.0.0.0/8".parse().unwrap()]);
        let names = || BTreeSet::from(["gateway.ingress.cluster.local".to_owned()]);
        let by_address = || Some(IngressGrantees::Addresses(net()));
        for (case, protocol, principal, addresses, expected) in [
            ("clear text, by address", http(), None, ANY, by_address()),
            ("a principal means nothing in clear text", http(), GATEWAY, ANY, by_address()),
            ("clear text without addresses", http(), GATEWAY, None, None),
            ("clear text, where the sources have no address", http(), None, Some(&[][..]), None),
            ("TLS, any certificate, by address", https(false, None), GATEWAY, ANY, by_address()),
            ("TLS, any certificate, without addresses", https(false, None), GATEWAY, None, None),
            (
                "mutual TLS",
                https(true, None),
                GATEWAY,
                None,
                Some(IngressGrantees::Principals(names(), None)),
            ),
            (
                "mutual TLS, by address too",
                https(true, None),
                GATEWAY,
                ANY,
                Some(IngressGrantees::Principals(names(), Some(net()))),
            ),
            (
                "mutual TLS, where the sources have no address",
                https(true, None),
                GATEWAY,
                Some(&[][..]),
                None,
            ),
            ("mutual TLS without a principal", https(true, None), None, ANY, None),
        ] {
            let chains =
                of(&[opened("shop/i", protocol, principal)], &[inbound(80, AppProtocol::Http)], addresses);
            let grants: Vec<_> = chains.iter().flat_map(|chain| &chain.grants).collect();
            let found: Vec<_> = grants.iter().map(|grant| grant.sources.clone()).collect();
            assert_eq!(found, Vec::from_iter(expected), "{case}");
        }
    }

    #[test]
    fn requests_are_those_of_existing_groups_and_an_empty_list_means_none() {
        for (groups, expected) in [
            (None, Some(None)),
            (Some(&["shop/a"][..]), Some(Some(1))),
            (Some(&["shop/a", "shop/gone"][..]), Some(Some(1))),
            (Some(&["shop/gone"][..]), None),
            (Some(&["shop/none"][..]), None),
            (Some(&[][..]), None),
        ] {
            let mut object = opened("shop/i", IngressProtocol::Http, None);
            object.matches = groups.map(|groups| groups.iter().map(|group| name(group)).collect());
            let chains = of(&[object], &[inbound(80, AppProtocol::Http)], ANY);
            let found =
                chains.first().and_then(|chain| chain.grants.first()).map(|grant| match &grant.http {
                    HttpAccess::Any => None,
                    HttpAccess::Only(matches) => Some(matches.len()),
                });
            assert_eq!(found, expected, "{groups:?}");
        }
    }

    #[test]
    fn several_objects_unite_in_one_chain_for_each_transport() {
        let objects = [
            opened("shop/1", IngressProtocol::Http, None),
            opened("shop/2", IngressProtocol::Http, None),
            opened("shop/3", https(true, Some(&["a.example"])), GATEWAY),
            opened("shop/4", https(false, None), None),
        ];
        let ports = [inbound(80, AppProtocol::Http)];
        let chains = of(&objects, &ports, ANY);
        let seen = |chain: &IngressChain| (chain.transport, chain.grants.len(), chain.anonymous);
        assert_eq!(
            chains.iter().map(seen).collect::<Vec<_>>(),
            [(IngressTransport::ClearText, 2, true), (IngressTransport::Tls, 2, true)]
        );
        assert_eq!(Vec::from_iter(&chains[1].principals), ["gateway.ingress.cluster.local"]);
        assert!(!of(&objects[2..3], &ports, ANY)[0].anonymous);
    }

    /// A listener that changed would end connections, of the mesh too.
    #[test]
    fn a_chain_differs_by_its_grants_alone_where_sources_come_and_go() {
        let ports = [inbound(80, AppProtocol::Http)];
        for (protocol, principal) in [
            (IngressProtocol::Http, None),
            (https(false, None), None),
            (https(true, Some(&["a.example"])), GATEWAY),
        ] {
            let object = opened("shop/i", protocol, principal);
            let groups = Some([name("shop/gone")].into());
            let denied = IngressBackend { matches: groups, ..object.clone() };
            let without_grants = |objects: &[IngressBackend], addresses| {
                let chains = of(objects, &ports, addresses);
                let chains =
                    chains.into_iter().map(|chain| IngressChain { grants: BTreeSet::new(), ..chain });
                chains.collect::<Vec<_>>()
            };
            let now = of(std::slice::from_ref(&object), &ports, ANY);
            assert_eq!((now.len(), now[0].grants.len()), (1, 1));
            let chains = without_grants(std::slice::from_ref(&object), ANY);
            assert_eq!(of(std::slice::from_ref(&object), &ports, Some(&[])), chains);
            assert_eq!(of(&[denied], &ports, ANY), chains);
        }
    }
}
