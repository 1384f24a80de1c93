//! Policy for traffic that was seen: the SMI objects that allow it and nothing else.
//!
//! Owns which calls follow from what a sidecar counted, and the objects as YAML. Equal calls make equal
//! bytes.
//!
//! Each port of a called identity has a TrafficTarget of its own. In one target for all of them, HTTP rules
//! would restrict the ports of other protocols ([`super::grants`]), and each source would get the ports of
//! all others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use smc_api::smi::traffic_target::MAX_SOURCES;
use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::text::truncated;

/// The longest note, in characters: a part of it may be an answer from outside.
const MAX_NOTE: usize = 400;

/// The longest name of a service account to which calls are allowed: the names of objects, of 253 characters
/// at most, begin with it and end like `-http-65535-99999`.
const LONGEST_NAME: usize = 236;

/// What the suggestion says of itself.
const HEADER: &str = "\
# SMI policy for all calls that sidecars have made since they started, also for those that are allowed already.
# Calls that were not made since then are missing: statistics end with their pod, and with the called Service.
# Read it before you apply it: a pod says itself what it called, and objects of the same names are replaced.
";

/// What stands beside a match of all requests.
const NARROW: &str = "\
# It matches every request. Narrow pathRegex, which is anchored at its start only, and methods.
";

/// An identity that sent requests or connections to a port of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The identity that was called.
    pub destination: ServiceAccountId,
    /// The port of its workloads, not that of the service.
    pub port: u16,
    /// Whether the mesh reads requests there.
    pub http: bool,
    /// The identity that called.
    pub source: ServiceAccountId,
}

/// Where a service port leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortServers {
    /// Whether the mesh reads requests there.
    pub http: bool,
    /// The identities behind it, each with the port of its workloads.
    pub servers: BTreeSet<(ServiceAccountId, u16)>,
}

/// Where the service ports of a mesh lead.
pub type Destinations = BTreeMap<(ServiceId, u16), PortServers>;

/// The policy for the calls that were seen, and notes on what is left out. Prints as YAML for `kubectl
/// apply`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suggestion {
    calls: BTreeSet<Call>,
    notes: BTreeSet<String>,
}

impl Suggestion {
    /// Adds the calls of a sidecar of `source`, which counted requests to the service ports `called`. A
    /// service port counts for each identity behind it: which of them answered is not known.
    pub fn add(
        &mut self,
        source: &ServiceAccountId,
        called: &BTreeSet<(ServiceId, u16)>,
        destinations: &Destinations,
    ) {
        for port in called {
            let leads = destinations.get(port).filter(|leads| !leads.servers.is_empty());
            let Some(PortServers { http, servers }) = leads else {
                let (service, port) = port;
                self.note(format!(
                    "the calls of {source} to {service} port {port}, which leads to no pod now"
                ));
                continue;
            };
            for (destination, port) in servers {
                if destination.name().len() > LONGEST_NAME {
                    self.note(format!(
                        "{destination}, whose name is too long for objects that begin with it"
                    ));
                    continue;
                }
                let (destination, source) = (destination.clone(), source.clone());
                self.calls.insert(Call { destination, port: *port, http: *http, source });
            }
        }
    }

    /// Adds a note on what is left out, and why. It may hold text from outside.
    pub fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// The calls that the policy allows.
    pub fn calls(&self) -> &BTreeSet<Call> {
        &self.calls
    }

    /// The notes, sorted, each one line of printable ASCII, since more would leave the comment or control a
    /// terminal.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let printable = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
        self.notes.iter().map(move |note| truncated(note, MAX_NOTE).chars().map(printable).collect())
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        for note in self.notes() {
            writeln!(f, "# Left out: {note}.")?;
        }
        if self.calls.is_empty() {
            f.write_str("# No call was seen.\n")?;
        }
        let mut sources: BTreeMap<_, Vec<&ServiceAccountId>> = BTreeMap::new();
        for call in &self.calls {
            sources.entry((&call.destination, call.port, call.http)).or_default().push(&call.source);
        }
        for ((destination, port, http), sources) in sources {
            port_policy(f, destination, port, http, &sources)?;
        }
        Ok(())
    }
}

/// The objects that open one port of `destination` to `sources`. The names depend on nothing else, so that
/// they stay as they are when other calls are seen.
fn port_policy(
    f: &mut fmt::Formatter<'_>,
    destination: &ServiceAccountId,
    port: u16,
    http: bool,
    sources: &[&ServiceAccountId],
) -> fmt::Result {
    let name = format!("{}-{}-{port}", destination.name(), if http { "http" } else { "tcp" });
    object(f, Kind::TcpRoute, &name, destination, "")?;
    writeln!(f, "spec:\n  matches:\n    ports: [{port}]")?;
    if http {
        object(f, Kind::HttpRouteGroup, &name, destination, NARROW)?;
        writeln!(f, "spec:\n  matches:\n  - name: all\n    pathRegex: \".*\"\n    methods: [\"*\"]")?;
    }
    for (part, sources) in (1..).zip(sources.chunks(MAX_SOURCES)) {
        let target = if part == 1 { name.clone() } else { format!("{name}-{part}") };
        object(f, Kind::TrafficTarget, &target, destination, "")?;
        writeln!(f, "spec:\n  destination:")?;
        account(f, "    ", "    ", destination)?;
        writeln!(f, "  rules:\n  - kind: {}\n    name: \"{name}\"", Kind::TcpRoute)?;
        if http {
            writeln!(f, "  - kind: {}\n    name: \"{name}\"", Kind::HttpRouteGroup)?;
        }
        writeln!(f, "  sources:")?;
        for source in sources {
            account(f, "  - ", "    ", source)?;
        }
    }
    Ok(())
}

/// The head of an object beside `account`. Names are quoted, since `1e3` and `null` are good ones.
fn object(
    f: &mut fmt::Formatter<'_>,
    kind: Kind,
    name: &str,
    account: &ServiceAccountId,
    comment: &str,
) -> fmt::Result {
    let version = kind.spec().api_versions().next().unwrap_or_default();
    writeln!(f, "---\n{comment}apiVersion: {version}\nkind: {kind}\nmetadata:")?;
    writeln!(f, "  name: \"{name}\"\n  namespace: \"{}\"", account.namespace())
}

/// A reference to a service account, whose first line begins with `first` and the others with `rest`.
fn account(f: &mut fmt::Formatter<'_>, first: &str, rest: &str, account: &ServiceAccountId) -> fmt::Result {
    writeln!(f, "{first}kind: ServiceAccount\n{rest}name: \"{}\"", account.name())?;
    writeln!(f, "{rest}namespace: \"{}\"", account.namespace())
}

#[cfg(test)]
mod tests;
