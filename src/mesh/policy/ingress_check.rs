//! Why a connection from outside of the mesh gets to a port, or does not.
//!
//! Owns the judgement of one attempt by what IngressBackends open: the chains of which the sidecar's listener
//! is made. Judges no request: what gets in is named with the requests that it is good for.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use smc_model::cidr::IpNet;
use smc_model::inbound_intent::HttpAccess;
use smc_model::ingress::{IngressChain, IngressGrant, IngressGrantees, IngressTransport};
use smc_types::ids::{NamespacedName, ServiceId};

/// A connection from outside of the mesh, as a gateway makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressAttempt {
    /// The port of the pod.
    pub port: u16,
    /// The addresses that it may come from: of each of them it is judged.
    pub from: BTreeSet<IpAddr>,
    /// What it begins with.
    pub transport: IngressTransport,
    /// The DNS names in the certificate of the mesh's CA that the client shows; `None` if it shows none.
    pub certificate: Option<BTreeSet<String>>,
    /// The name that it asks for by SNI.
    pub server_name: Option<String>,
}

/// What becomes of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressCheck {
    /// The IngressBackends that let it in, from all addresses, each with its requests.
    pub admitted: Vec<(NamespacedName, HttpAccess)>,
    /// What stands against it, at the port and at the other IngressBackends.
    pub obstacles: Vec<IngressObstacle>,
}

/// What a gateway sees where its request is denied.
pub const DENIED: &str = "403, and `rbac_access_denied` in the log of the pod's sidecar";

/// What stands against an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressObstacle {
    /// No IngressBackend names the port. These are named.
    NotOpened(BTreeSet<u16>),
    /// The port is opened in the other transport only.
    OtherTransport(IngressTransport),
    /// By the name of a Service of Kubernetes, only sidecars are served.
    AsSidecar(String),
    /// The client has to show a certificate for one of these names, and shows none.
    NoCertificate(BTreeSet<String>),
    /// The client shows a certificate, and one for one of these names is wanted.
    OtherCertificate(BTreeSet<String>),
    /// An IngressBackend opens the port to nothing: its sources have no address now, or nothing that it
    /// matches exists.
    Void,
    /// An IngressBackend has these addresses of the attempt not among its sources.
    Address(NamespacedName, BTreeSet<IpAddr>),
    /// An IngressBackend wants a certificate for one of these names.
    Principal(NamespacedName, BTreeSet<String>),
    /// An IngressBackend wants one of these names as SNI.
    ServerName(NamespacedName, BTreeSet<String>),
}

impl IngressObstacle {
    /// What the gateway sees where this alone stands against it. The words are those of the table in
    /// `docs/ingress.md`.
    pub fn seen_as(&self) -> &'static str {
        match self {
            Self::NotOpened(_) | Self::OtherTransport(_) => "the connection is closed at once",
            Self::NoCertificate(_) | Self::AsSidecar(_) => "a TLS alert `certificate required`",
            Self::OtherCertificate(_) => "a TLS alert `certificate unknown`",
            Self::Void | Self::Address(..) | Self::Principal(..) | Self::ServerName(..) => DENIED,
        }
    }
}

impl fmt::Display for IngressObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpened(ports) if ports.is_empty() => {
                f.write_str("no IngressBackend names a port of this pod")
            }
            Self::NotOpened(ports) => {
                write!(f, "no IngressBackend names this port of the pod, but {}", list(ports))
            }
            Self::OtherTransport(IngressTransport::Tls) => {
                f.write_str("the port is opened over TLS (protocol https), and not in clear text")
            }
            Self::OtherTransport(IngressTransport::ClearText) => {
                f.write_str("the port is opened in clear text (protocol http), and not over TLS")
            }
            Self::AsSidecar(name) => {
                write!(f, "by the name {name} sidecars are served: ask for another name, or for none")
            }
            Self::NoCertificate(names) => {
                write!(f, "the client has to show a certificate of the mesh's CA for one of {}", list(names))
            }
            Self::OtherCertificate(names) => {
                write!(f, "the certificate has none of the names {}", list(names))
            }
            Self::Void => f.write_str(
                "what names the port allows nothing: its sources have no address now, or its HTTPRouteGroups do not \
                 exist",
            ),
            Self::Address(backend, addresses) => {
                write!(f, "IngressBackend {backend} has {} not among its sources", list(addresses))
            }
            Self::Principal(backend, names) => {
                write!(f, "IngressBackend {backend} wants a certificate for one of {}", list(names))
            }
            Self::ServerName(backend, names) => {
                write!(f, "IngressBackend {backend} wants to be asked for by SNI as one of {}", list(names))
            }
        }
    }
}

/// The most items of a list in a sentence.
const MAX_LISTED: usize = 8;

fn list<T: fmt::Display>(items: &BTreeSet<T>) -> String {
    let mut texts: Vec<_> = items.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if items.len() > MAX_LISTED {
        texts.push(format!("{} more", items.len() - MAX_LISTED));
    }
    texts.join(", ")
}

/// Judges an attempt by the chains of a workload.
pub fn check_ingress(chains: &[IngressChain], attempt: &IngressAttempt) -> IngressCheck {
    let mut check = IngressCheck::default();
    let of_port = || chains.iter().filter(|chain| chain.port == attempt.port);
    if of_port().next().is_none() {
        let opened = chains.iter().map(|chain| chain.port).collect();
        check.obstacles.push(IngressObstacle::NotOpened(opened));
        return check;
    }
    if attempt.transport == IngressTransport::Tls
        && let Some(name) = attempt.server_name.as_ref().filter(|name| name.ends_with(ServiceId::DOMAIN))
    {
        check.obstacles.push(IngressObstacle::AsSidecar(name.clone()));
        return check;
    }
    let Some(chain) = of_port().find(|chain| chain.transport == attempt.transport) else {
        check.obstacles.extend(of_port().map(|chain| IngressObstacle::OtherTransport(chain.transport)));
        return check;
    };
    if let Some(obstacle) = handshake(chain, attempt) {
        check.obstacles.push(obstacle);
        return check;
    }
    for grant in &chain.grants {
        let obstacles = against(grant, attempt);
        if obstacles.is_empty() {
            check.admitted.push((grant.backend.clone(), grant.http.clone()));
        }
        check.obstacles.extend(obstacles);
    }
    if chain.grants.is_empty() {
        check.obstacles.push(IngressObstacle::Void);
    }
    check
}

/// What ends the attempt before a request.
fn handshake(chain: &IngressChain, attempt: &IngressAttempt) -> Option<IngressObstacle> {
    if chain.transport == IngressTransport::ClearText || chain.anonymous {
        return None;
    }
    match &attempt.certificate {
        None => Some(IngressObstacle::NoCertificate(chain.principals.clone())),
        Some(names) if names.is_disjoint(&chain.principals) => {
            Some(IngressObstacle::OtherCertificate(chain.principals.clone()))
        }
        Some(_) => None,
    }
}

/// What an IngressBackend has against the attempt.
fn against(grant: &IngressGrant, attempt: &IngressAttempt) -> Vec<IngressObstacle> {
    let mut obstacles = Vec::new();
    let (principals, addresses) = match &grant.sources {
        IngressGrantees::Addresses(addresses) => (None, Some(addresses)),
        IngressGrantees::Principals(principals, addresses) => (Some(principals), addresses.as_ref()),
    };
    if let Some(addresses) = addresses {
        let within = |address: &&IpAddr| addresses.iter().any(|range| IpNet::contains(range, *address));
        let others: BTreeSet<_> = attempt.from.iter().filter(|address| !within(address)).copied().collect();
        if !others.is_empty() {
            obstacles.push(IngressObstacle::Address(grant.backend.clone(), others));
        }
    }
    if let Some(principals) = principals
        && attempt.certificate.as_ref().is_none_or(|names| names.is_disjoint(principals))
    {
        obstacles.push(IngressObstacle::Principal(grant.backend.clone(), principals.clone()));
    }
    if let Some(names) = &grant.server_names
        && !attempt.server_name.as_ref().is_some_and(|asked| names.iter().any(|name| matches(name, asked)))
    {
        obstacles.push(IngressObstacle::ServerName(grant.backend.clone(), names.clone()));
    }
    obstacles
}

/// Whether a name of `sniHosts` stands for the name that was asked for.
fn matches(name: &str, asked: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    match name.strip_prefix('*') {
        Some(suffix) => asked.strip_suffix(suffix).is_some_and(|label| !label.is_empty()),
        None => asked == name,
    }
}

#[cfg(test)]
mod tests {
    use smc_types::proxy_class::AppProtocol;

    use super::*;
    use crate::policy::fixtures::name;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    fn grant(backend: &str, sources: IngressGrantees, server_names: Option<&[&str]>) -> IngressGrant {
        IngressGrant {
            backend: name(backend),
            sources,
            server_names: server_names.map(names),
            http: HttpAccess::Any,
            routes: BTreeSet::new(),
        }
    }

    fn addresses(range: &str) -> BTreeSet<IpNet> {
        [range.parse().unwrap()].into()
    }

    fn chain(port: u16, transport: IngressTransport, grants: Vec<IngressGrant>) -> IngressChain {
        let principals = grants.iter().flat_map(|grant| match &grant.sources {
            IngressGrantees::Principals(names, _) => names.clone(),
            IngressGrantees::Addresses(_) => BTreeSet::new(),
        });
        let principals = principals.collect();
        let anonymous = grants.iter().any(|grant| matches!(grant.sources, IngressGrantees::Addresses(_)));
        let grants = grants.into_iter().collect();
        IngressChain { port, transport, protocol: AppProtocol::Http, principals, anonymous, grants }
    }

    /// Port 80 in clear text from 10.0.0.0/8; 443 over TLS for `a.example` from 10.0.0.0/8; 444 over TLS from
    /// there for any client that asks for a name of `shop.example`; 81 in clear text for nothing.
    fn chains() -> Vec<IngressChain> {
        use IngressGrantees::{Addresses, Principals};
        use IngressTransport::{ClearText, Tls};
        let ten = || addresses("10.0.0.0/8");
        let wanted = Principals(names(&["a.example"]), Some(ten()));
        let asked = Some(&["shop.example", "*.shop.example"][..]);
        vec![
            chain(80, ClearText, vec![grant("shop/clear", Addresses(ten()), None)]),
            chain(81, ClearText, vec![]),
            chain(443, Tls, vec![grant("shop/mutual", wanted, None)]),
            chain(444, Tls, vec![grant("shop/named", Addresses(ten()), asked)]),
        ]
    }

    /// An attempt from this address; over TLS with a name that is asked for and names that are shown.
    fn attempt(port: u16, from: &str, tls: Option<(&str, &[&str])>) -> IngressAttempt {
        let transport = if tls.is_some() { IngressTransport::Tls } else { IngressTransport::ClearText };
        IngressAttempt {
            port,
            from: [from.parse().unwrap()].into(),
            transport,
            certificate: tls.map(|(_, shown)| names(shown)).filter(|shown| !shown.is_empty()),
            server_name: tls.map(|(asked, _)| asked.to_owned()).filter(|asked| !asked.is_empty()),
        }
    }

    #[test]
    fn an_attempt_gets_in_where_nothing_stands_against_it() {
        use IngressObstacle::{
            Address, AsSidecar, NoCertificate, NotOpened, OtherCertificate, OtherTransport, ServerName, Void,
        };
        let own = |text: &str| BTreeSet::from([text.parse::<IpAddr>().unwrap()]);
        let (inside, outside) = ("10.1.1.1", "192.0.2.1");
        let plain: (&str, &[&str]) = ("", &[]);
        let shows = |name: &'static [&'static str]| ("", name);
        for (sentence, attempt, expected) in [
            ("clear text from the range", attempt(80, inside, None), Ok("shop/clear")),
            (
                "clear text from elsewhere",
                attempt(80, outside, None),
                Err(Address(name("shop/clear"), own(outside))),
            ),
            (
                "TLS to clear text",
                attempt(80, inside, Some(plain)),
                Err(OtherTransport(IngressTransport::ClearText)),
            ),
            ("clear text to TLS", attempt(443, inside, None), Err(OtherTransport(IngressTransport::Tls))),
            ("another port", attempt(8080, inside, None), Err(NotOpened([80, 81, 443, 444].into()))),
            ("a port for nothing", attempt(81, inside, None), Err(Void)),
            ("its certificate", attempt(443, inside, Some(shows(&["a.example"]))), Ok("shop/mutual")),
            ("no certificate", attempt(443, inside, Some(plain)), Err(NoCertificate(names(&["a.example"])))),
            (
                "another certificate",
                attempt(443, inside, Some(shows(&["b.example"]))),
                Err(OtherCertificate(names(&["a.example"]))),
            ),
            (
                "its certificate from elsewhere",
                attempt(443, outside, Some(shows(&["a.example"]))),
                Err(Address(name("shop/mutual"), own(outside))),
            ),
            ("the name", attempt(444, inside, Some(("shop.example", &[]))), Ok("shop/named")),
            ("a name below", attempt(444, inside, Some(("A.b.shop.example", &[]))), Ok("shop/named")),
            (
                "another name",
                attempt(444, inside, Some(("xshop.example", &[]))),
                Err(ServerName(name("shop/named"), names(&["*.shop.example", "shop.example"]))),
            ),
            (
                "no name",
                attempt(444, inside, Some(plain)),
                Err(ServerName(name("shop/named"), names(&["*.shop.example", "shop.example"]))),
            ),
            (
                "the name of a Service",
                attempt(444, inside, Some(("web.shop.svc.cluster.local", &[]))),
                Err(AsSidecar("web.shop.svc.cluster.local".to_owned())),
            ),
        ] {
            let check = check_ingress(&chains(), &attempt);
            let expected = match expected {
                Ok(backend) => {
                    IngressCheck { admitted: vec![(name(backend), HttpAccess::Any)], obstacles: vec![] }
                }
                Err(obstacle) => IngressCheck { admitted: vec![], obstacles: vec![obstacle] },
            };
            assert_eq!(check, expected, "{sentence}");
        }
    }

    /// The guide's table is where its reader looks a sight up.
    #[test]
    fn what_a_gateway_sees_is_in_the_guides_table() {
        let page = include_str!("../../../docs/ingress.md");
        let table: String = page.lines().filter(|line| line.starts_with('|')).collect();
        for obstacle in [
            IngressObstacle::NotOpened(BTreeSet::new()),
            IngressObstacle::NoCertificate(BTreeSet::new()),
            IngressObstacle::OtherCertificate(BTreeSet::new()),
            IngressObstacle::Void,
        ] {
            assert!(table.contains(obstacle.seen_as()), "{}", obstacle.seen_as());
        }
    }
}
