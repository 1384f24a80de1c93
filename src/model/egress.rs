//! What of outside the mesh an identity may reach.
//!
//! Owns the value that all its Egresses come to together: for each port and each network that a connection
//! may be dialled to, one way out. Networks do not overlap in effect: the most specific one that holds an
//! address decides, as Envoy has it, and what it does not allow is not looked for in a wider one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use smc_types::object_ref::ObjectRef;

use crate::cidr::IpNet;
use crate::http_match::HttpMatch;

/// What an identity may reach, by the port that it dials.
pub type EgressPorts = BTreeMap<u16, EgressPort>;

/// What an identity may reach on one port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EgressPort {
    /// The way out, by the network that a connection was dialled to: the most specific one decides.
    pub networks: BTreeMap<IpNet, EgressWay>,
    /// The objects that say so.
    pub declared_by: BTreeSet<ObjectRef>,
}

/// Where a connection out of the mesh goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressWay {
    /// To the address that it was dialled to, whatever it carries.
    Anything,
    /// By the name that it asks for: TLS by its server name, and HTTP in clear text by its host. What asks
    /// for another name, or for none, goes nowhere.
    ByName {
        /// TLS.
        tls: BTreeMap<EgressHost, EgressTarget>,
        /// HTTP in clear text; the first route that takes a request decides.
        http: BTreeMap<EgressHost, Vec<EgressRoute>>,
    },
}

impl EgressWay {
    /// No connection goes anywhere.
    pub const fn closed() -> Self {
        Self::ByName { tls: BTreeMap::new(), http: BTreeMap::new() }
    }
}

/// Requests out of the mesh, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EgressRoute {
    /// Where they go.
    pub target: EgressTarget,
    /// The requests; `None` takes everything.
    pub matched: Option<HttpMatch>,
}

/// Which address a connection out of the mesh goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressTarget {
    /// The one that it was dialled to, which a person allowed.
    Dialled,
    /// One that the sidecar resolves the name to, whatever was dialled. Only of [`EgressHost::Named`].
    Resolved,
}

/// The names of hosts outside of the mesh, in lower case. The order is from the most general.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressHost {
    /// Any name, and none.
    Any,
    /// Those that end in a dot and this name.
    Under(String),
    /// This one.
    Named(String),
}

impl EgressHost {
    /// Itself, and then the more general ones that hold every name that it holds, from the nearest.
    pub fn and_wider(&self) -> impl Iterator<Item = Self> + '_ {
        let name = match self {
            Self::Any => "",
            Self::Under(name) | Self::Named(name) => name,
        };
        let parents = name.match_indices('.').filter_map(|(dot, _)| name.get(dot + 1..));
        let parents = parents.map(|parent| Self::Under(parent.to_owned()));
        let any = (*self != Self::Any).then_some(Self::Any);
        std::iter::once(self.clone()).chain(parents).chain(any)
    }
}

/// As Envoy's server names and domains have it.
impl fmt::Display for EgressHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Under(name) => write!(f, "*.{name}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_names_hold_all_that_a_name_holds_from_the_nearest_on() {
        let named = |name: &str| EgressHost::Named(name.to_owned());
        let under = |name: &str| EgressHost::Under(name.to_owned());
        for (host, expected) in [
            (EgressHost::Any, "*"),
            (under("example.com"), "*.example.com *.com *"),
            (named("a.example.com"), "a.example.com *.example.com *.com *"),
            (named("localhost"), "localhost *"),
        ] {
            let all: Vec<_> = host.and_wider().map(|host| host.to_string()).collect();
            assert_eq!(all.join(" "), expected);
        }
    }
}
