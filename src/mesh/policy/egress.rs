//! The semantics of OSM's Egress: what several of them let an identity reach.
//!
//! Owns how they unite. Each allows by itself what all of its own conditions allow together, and what any
//! allows is allowed. Envoy chooses by the most specific network of a destination and never goes back to a
//! wider one, nor from a name to a wider one; so each network and each name is given here all that holds for
//! it. What is written down has a way of its own, also where a wider one leads to the same: a way that came
//! and went with others' would end connections. Bounds what an identity's objects come to, which is a product
//! of ports, networks, names and requests ([`EgressSurvey`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::bounds::{count, sum};
use super::grants::{self, Routes};
use smc_api::osm::egress::{Egress, EgressProtocol};
use smc_model::cidr::IpNet;
use smc_model::egress::{EgressHost, EgressPort, EgressPorts, EgressRoute, EgressTarget, EgressWay};
use smc_model::inbound_intent::HttpAccess;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};

/// The most that one identity's Egresses may take, in bytes as they are written out: some five hundred hosts.
/// A sidecar holds some forty times as much.
pub const MAX_EGRESS: u64 = 2 << 20;

/// Framing of the way out of one network on one port, and of its requests; of a name on it, with the chain
/// and the route that it may have; of the cluster of a name; and of a route. Each is above what the
/// translation writes; a test compares. Names are written several times.
const WAY_BYTES: u64 = 1536;
const REQUESTS_BYTES: u64 = 1920;
const HOST_BYTES: u64 = 1664;
const CLUSTER_BYTES: u64 = 1024;
const ROUTE_BYTES: u64 = 64;
const COPIES_OF_A_NAME: u64 = 8;

/// All addresses: where a connection is dialled to means nothing for a name that the sidecar resolves.
const EVERYWHERE: [IpNet; 2] = [net4([0, 0, 0, 0], 0), net6([0; 8], 0)];

/// Networks that a wider one never includes. A network within one of these means it.
const NEVER_IMPLIED: [IpNet; 16] = [
    // The machine itself, also behind a translation from IPv6 (RFC 6052).
    net4([0, 0, 0, 0], 8),
    net4([127, 0, 0, 0], 8),
    net6([0; 8], 127),
    net6([0x64, 0xff9b, 0, 0, 0, 0, 0x7f00, 0], 104),
    // Its link, where clouds serve credentials, and other addresses at which they do: of AWS over IPv6, of
    // Google's over IPv6, of Alibaba's and of Azure's.
    net4([169, 254, 0, 0], 16),
    net6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    net6([0x64, 0xff9b, 0, 0, 0, 0, 0xa9fe, 0], 112),
    net6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    net6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    net4([100, 100, 100, 200], 32),
    net4([168, 63, 129, 16], 32),
    // IPv4 in disguise, and what is no destination of a connection.
    net6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    net4([224, 0, 0, 0], 4),
    net4([240, 0, 0, 0], 4),
    net6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    net6([0x64, 0xff9b, 0, 0, 0, 0, 0xe000, 0], 100),
];

const fn net4(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::from_octets(octets)), prefix)
}

const fn net6(segments: [u16; 8], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::from_segments(segments)), prefix)
}

/// How far the Egresses of an identity have effect, without what they come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EgressSurvey {
    /// The first object, by name, for which there is no room. It and those after it have no effect: so no
    /// more is looked at than there is room for.
    pub cut: Option<NamespacedName>,
    /// The ports that are both for TLS and for servers that speak first.
    pub delayed: BTreeSet<u16>,
}

impl EgressSurvey {
    /// Of these objects, sorted by name, within so many bytes. `groups` remembers the sizes of groups, which
    /// several identities have in common.
    pub fn of<'a>(
        routes: &impl Routes,
        objects: impl IntoIterator<Item = &'a Egress>,
        allowance: u64,
        groups: &mut GroupSizes<'a>,
    ) -> Self {
        let mut sizes = Sizes::default();
        let (mut tls, mut first) = (BTreeSet::new(), BTreeSet::new());
        let mut cut = None;
        for object in objects {
            if !sizes.add(routes, object, allowance, groups) {
                cut = Some(object.id.clone());
                break;
            }
            for &(port, protocol) in &object.ports {
                match protocol {
                    EgressProtocol::Https => tls.insert(port),
                    EgressProtocol::TcpServerFirst => first.insert(port),
                    EgressProtocol::Http | EgressProtocol::Tcp => false,
                };
            }
        }
        Self { cut, delayed: tls.intersection(&first).copied().collect() }
    }

    /// Whether an object has effect beside the others.
    pub fn has_room_for(&self, id: &NamespacedName) -> bool {
        self.cut.as_ref().is_none_or(|cut| id < cut)
    }
}

/// What these objects let an identity reach, all of which have room.
pub fn egress_ports<'a>(routes: &impl Routes, objects: impl IntoIterator<Item = &'a Egress>) -> EgressPorts {
    let mut grants: BTreeMap<u16, Vec<Grant<'a>>> = BTreeMap::new();
    for object in objects {
        let requests = requests_of(object).then(|| grants::requests(routes, object.matches.as_ref()));
        let requests = requests.unwrap_or(Some(HttpAccess::Any));
        for &(port, protocol) in &object.ports {
            // What is encrypted, or no HTTP, has no requests that could be matched.
            let is_http = protocol == EgressProtocol::Http;
            let Some(requests) = (if is_http { requests.clone() } else { Some(HttpAccess::Any) }) else {
                continue;
            };
            grants.entry(port).or_default().push(Grant { object, protocol, requests });
        }
    }
    let ports = grants.into_iter().map(|(number, grants)| {
        let of = |grant: &Grant<'_>| {
            let object = ObjectRef::Namespaced(Kind::Egress, grant.object.id.clone());
            let is_http = grant.protocol == EgressProtocol::Http;
            let matches = grant.object.matches.as_ref().filter(|_| is_http);
            grants::existing_groups(routes, matches).chain([object]).collect::<Vec<_>>()
        };
        let declared_by = grants.iter().flat_map(of).collect();
        (number, EgressPort { networks: networks(&grants), declared_by })
    });
    ports.filter(|(_, port)| !port.networks.is_empty()).collect()
}

/// Whether an object is about requests in clear text.
fn requests_of(object: &Egress) -> bool {
    object.ports.iter().any(|(_, protocol)| *protocol == EgressProtocol::Http)
}

/// What one object allows on one port.
struct Grant<'a> {
    object: &'a Egress,
    protocol: EgressProtocol,
    requests: HttpAccess,
}

impl Grant<'_> {
    /// Where a connection that is dialled into `network` goes by this grant, if it may go anywhere.
    fn target(&self, network: IpNet) -> Option<EgressTarget> {
        match &self.object.networks {
            None => self.protocol.is_by_name().then_some(EgressTarget::Resolved),
            Some(granted) => {
                granted.iter().any(|granted| implies(granted, &network)).then_some(EgressTarget::Dialled)
            }
        }
    }
}

/// Whether a network that is granted grants all addresses of another one.
fn implies(granted: &IpNet, network: &IpNet) -> bool {
    let excepted = |never: &IpNet| never.contains(network) && is_wider(granted, never);
    granted.contains(network) && !NEVER_IMPLIED.iter().any(excepted)
}

fn is_wider(one: &IpNet, other: &IpNet) -> bool {
    one != other && one.contains(other)
}

/// The networks that an object writes down on each of its ports, and what these do not imply.
fn networks_of(object: &Egress) -> impl Iterator<Item = IpNet> {
    let written = object.networks.as_ref();
    let excepted = |never: &&IpNet| written.into_iter().flatten().any(|granted| is_wider(granted, never));
    let excepted = NEVER_IMPLIED.iter().filter(excepted).copied().collect::<Vec<_>>();
    let everywhere = EVERYWHERE.into_iter().filter(move |_| written.is_none());
    written.into_iter().flatten().copied().chain(everywhere).chain(excepted)
}

/// The way out of each network that these grants name. One that is closed is there only within an open one.
fn networks(grants: &[Grant<'_>]) -> BTreeMap<IpNet, EgressWay> {
    let all: BTreeSet<IpNet> = grants.iter().flat_map(|grant| networks_of(grant.object)).collect();
    let ways: BTreeMap<_, _> = all.into_iter().map(|network| (network, way(grants, network))).collect();
    let closed = EgressWay::closed();
    let open: Vec<IpNet> =
        ways.iter().filter(|(_, way)| **way != closed).map(|(network, _)| *network).collect();
    let is_needed =
        |network: &IpNet, way: &EgressWay| *way != closed || open.iter().any(|open| is_wider(open, network));
    ways.into_iter().filter(|(network, way)| is_needed(network, way)).collect()
}

/// The way out for connections that are dialled into this network, by all grants together.
fn way(grants: &[Grant<'_>], network: IpNet) -> EgressWay {
    let any = BTreeSet::from([EgressHost::Any]);
    let mut tls: BTreeMap<EgressHost, EgressTarget> = BTreeMap::new();
    let mut http: BTreeMap<EgressHost, BTreeSet<EgressRoute>> = BTreeMap::new();
    for grant in grants {
        let Some(target) = grant.target(network) else { continue };
        if !grant.protocol.is_by_name() {
            return EgressWay::Anything;
        }
        let hosts = grant.object.hosts.as_ref().unwrap_or(&any).iter();
        // A name with a star can be resolved by nothing.
        let hosts =
            hosts.filter(|host| target == EgressTarget::Dialled || matches!(host, EgressHost::Named(_)));
        for host in hosts {
            if grant.protocol == EgressProtocol::Https {
                let known = tls.entry(host.clone()).or_insert(target);
                *known = target.min(*known);
                continue;
            }
            let routes = http.entry(host.clone()).or_default();
            match &grant.requests {
                HttpAccess::Any => {
                    routes.insert(EgressRoute { target, matched: None });
                }
                HttpAccess::Only(matches) => {
                    let matches = matches.iter().cloned().map(Some);
                    routes.extend(matches.map(|matched| EgressRoute { target, matched }));
                }
            }
        }
    }
    let tls = tls.keys().map(|host| (host.clone(), widest(&tls, host))).collect();
    let http = http.keys().map(|host| (host.clone(), routes(&http, host))).collect();
    EgressWay::ByName { tls, http }
}

/// Where TLS that asks for this name goes, by all names that hold it.
fn widest(names: &BTreeMap<EgressHost, EgressTarget>, host: &EgressHost) -> EgressTarget {
    let targets = host.and_wider().filter_map(|wider| names.get(&wider).copied());
    targets.min().unwrap_or(EgressTarget::Resolved)
}

/// The routes of this name and of all that hold it, without those to which another one leaves nothing.
fn routes(names: &BTreeMap<EgressHost, BTreeSet<EgressRoute>>, host: &EgressHost) -> Vec<EgressRoute> {
    use EgressTarget::{Dialled, Resolved};
    let wider = host.and_wider().filter_map(|wider| names.get(&wider));
    let all: BTreeSet<&EgressRoute> = wider.flatten().collect();
    let has = |target, matched: &Option<_>| all.contains(&EgressRoute { target, matched: matched.clone() });
    let has_effect = |route: &&&EgressRoute| {
        let is_rest = route.matched.is_none();
        match route.target {
            Dialled => is_rest || !has(Dialled, &None),
            Resolved => {
                !has(Dialled, &None) && !has(Dialled, &route.matched) && (is_rest || !has(Resolved, &None))
            }
        }
    };
    all.iter().filter(has_effect).map(|route| EgressRoute::clone(route)).collect()
}

/// The bytes of the matches of groups, and how many these are.
pub type GroupSizes<'a> = BTreeMap<&'a NamespacedName, (u64, u64)>;

/// What the objects of an identity take, from above.
#[derive(Default)]
struct Sizes {
    ports: BTreeMap<u16, PortSize>,
    total: u64,
}

/// What is written out on one port.
#[derive(Default)]
struct PortSize {
    networks: BTreeSet<IpNet>,
    has_requests: bool,
    hosts: u64,
    /// The bytes of names, each once.
    names: u64,
    /// The bytes, and the number, of the requests that hold for the names of their own object, for each name;
    /// and of those that hold for names of other objects, too.
    own: u64,
    wide: (u64, u64),
    clusters: u64,
}

impl PortSize {
    fn bytes(&self) -> u64 {
        let (bytes, matches) = self.wide;
        let wide = self.hosts.saturating_mul(bytes).saturating_add(self.names.saturating_mul(2 * matches));
        let framing = self.hosts.saturating_mul(HOST_BYTES);
        let names = self.names.saturating_mul(COPIES_OF_A_NAME);
        let requests = if self.has_requests { REQUESTS_BYTES } else { 0 };
        let each = sum([WAY_BYTES, requests, framing, names, self.own, wide]);
        count(self.networks.len()).saturating_mul(each).saturating_add(self.clusters)
    }
}

impl Sizes {
    /// Adds an object. Returns whether there is room, and looks at no more of it than there is room for.
    fn add<'a>(
        &mut self,
        routes: &impl Routes,
        object: &'a Egress,
        allowance: u64,
        groups: &mut GroupSizes<'a>,
    ) -> bool {
        let size = |group| *groups.entry(group).or_insert_with(|| grants::group_size(routes, group));
        let sizes = object.matches.iter().flatten().filter(|_| requests_of(object)).map(size);
        let (bytes, matches) = sizes.fold((0_u64, 0_u64), |(bytes, matches), (more, others)| {
            (bytes.saturating_add(more), matches.saturating_add(others))
        });
        let (bytes, matches) = match object.matches {
            None => (ROUTE_BYTES, 1),
            Some(_) => (bytes.saturating_add(matches.saturating_mul(ROUTE_BYTES)), matches),
        };
        let length = |host: &EgressHost| match host {
            EgressHost::Any => 1,
            EgressHost::Under(name) | EgressHost::Named(name) => count(name.len()) + 2,
        };
        let hosts = object.hosts.as_ref().map_or(1, |hosts| count(hosts.len()));
        let names = object.hosts.as_ref().map_or(1, |hosts| sum(hosts.iter().map(length)));
        let is_named = |host: &EgressHost| matches!(host, EgressHost::Named(_));
        let is_wide = object.hosts.as_ref().is_none_or(|hosts| !hosts.iter().all(is_named));
        let networks: Vec<IpNet> = networks_of(object).collect();
        for (number, protocol) in &object.ports {
            let size = self.ports.entry(*number).or_default();
            self.total = self.total.saturating_sub(size.bytes());
            size.networks.extend(networks.iter().copied());
            size.clusters = sum([
                size.clusters,
                hosts.saturating_mul(CLUSTER_BYTES),
                names.saturating_mul(COPIES_OF_A_NAME),
            ]);
            if protocol.is_by_name() {
                size.hosts = size.hosts.saturating_add(hosts);
                size.names = size.names.saturating_add(names);
            }
            if *protocol == EgressProtocol::Http {
                size.has_requests = true;
                let own = hosts.saturating_mul(bytes).saturating_add(names.saturating_mul(2 * matches));
                size.own = size.own.saturating_add(own);
                if is_wide {
                    size.wide = (size.wide.0.saturating_add(bytes), size.wide.1.saturating_add(matches));
                }
            }
            self.total = self.total.saturating_add(size.bytes());
            if self.total > allowance {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
