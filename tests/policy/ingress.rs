//! Who of outside the mesh may do what: IngressBackend.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::access::granted;
use crate::objects::{Name, Workload, World, list, number, text};
use crate::request::Request;

/// A client outside of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outsider {
    /// The address from which it connects.
    pub address: Ipv4Addr,
    /// Its handshake; `None` in clear text.
    pub tls: Option<Handshake>,
}

/// What a client says in a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// The name of the server for which it asks.
    pub server_name: Option<String>,
    /// The DNS names in its certificate; empty without one, and in one of a workload.
    pub names: BTreeSet<String>,
}

/// An IngressBackend.
pub(crate) struct Ingress {
    namespace: String,
    backends: Vec<Backend>,
    /// The services whose pods may connect.
    services: Vec<Name>,
    /// The networks, each with the length of its prefix.
    ranges: Vec<(Ipv4Addr, u32)>,
    /// The names that certificates of clients may have.
    principals: BTreeSet<String>,
    /// `None` means all requests.
    groups: Option<Vec<String>>,
}

struct Backend {
    service: String,
    port: u16,
    tls: Option<Tls>,
}

struct Tls {
    checks_client: bool,
    /// `None` means any, and none.
    names: Option<Vec<String>>,
}

impl Ingress {
    pub(crate) fn read(namespace: &str, spec: &Value) -> Option<Self> {
        let mut read = Self {
            namespace: namespace.to_owned(),
            backends: Vec::new(),
            services: Vec::new(),
            ranges: Vec::new(),
            principals: BTreeSet::new(),
            groups: None,
        };
        for source in list(&spec["sources"]) {
            let name = text(&source["name"])?;
            match source["kind"].as_str()? {
                "Service" => read.services.push((text(&source["namespace"])?, name)),
                "IPRange" => {
                    let (address, length) = name.split_once('/')?;
                    read.ranges.push((address.parse().ok()?, length.parse().ok()?));
                }
                "AuthenticatedPrincipal" => {
                    read.principals.insert(name);
                }
                _ => return None,
            }
        }
        for backend in list(&spec["backends"]) {
            let tls = match backend["port"]["protocol"].as_str()? {
                "http" => None,
                "https" => Some(Tls {
                    checks_client: backend["tls"]["skipClientCertValidation"] != true,
                    names: match &backend["tls"]["sniHosts"] {
                        Value::Null => None,
                        names => Some(list(names).map(text).collect::<Option<_>>()?),
                    },
                }),
                _ => return None,
            };
            let (service, port) = (text(&backend["name"])?, number(&backend["port"]["number"])?);
            read.backends.push(Backend { service, port, tls });
        }
        if spec["matches"].is_array() {
            read.groups =
                Some(list(&spec["matches"]).map(|group| text(&group["name"])).collect::<Option<_>>()?);
        }
        Some(read)
    }

    fn names_addresses(&self) -> bool {
        !self.services.is_empty() || !self.ranges.is_empty()
    }
}

impl World {
    /// Whether a client outside of the mesh may send this request to a port of a workload, by what any
    /// IngressBackend says for itself.
    pub fn lets_in(&self, workload: &Workload, port: u16, from: &Outsider, request: &Request) -> bool {
        request.is_decided_on()
            && self.ingress.iter().any(|ingress| {
                let mut backends = ingress.backends.iter();
                backends.any(|backend| {
                    backend.port == port
                        && self.is_reached(
                            workload,
                            port,
                            &(ingress.namespace.clone(), backend.service.clone()),
                        )
                        && self.is_from(ingress, backend, from)
                        && !self.is_call(workload, port, from)
                }) && self.is_matched(ingress, request)
            })
    }

    /// Whether the workloads of a namespace accept every certificate of the mesh.
    pub fn is_open(&self, namespace: &str) -> bool {
        self.open.contains(namespace)
    }

    /// Whether an ingress reaches a workload's port by a service: in the first protocol over HTTP that any
    /// service declares there, which has to be the service's own.
    fn is_reached(&self, workload: &Workload, port: u16, service: &Name) -> bool {
        let of = |name: &Name| self.said(workload, port, name);
        let first = self.services.keys().flat_map(of).filter(|protocol| protocol.is_http()).min();
        first.is_some_and(|first| of(service).contains(&first))
    }

    fn is_from(&self, ingress: &Ingress, backend: &Backend, from: &Outsider) -> bool {
        let address = self.is_at_a_source(ingress, from.address);
        match (&backend.tls, &from.tls) {
            (None, None) => address,
            (Some(tls), Some(handshake)) => {
                let asked = handshake.server_name.as_deref().unwrap_or_default();
                let named =
                    tls.names.as_ref().is_none_or(|names| names.iter().any(|name| is_named(name, asked)));
                let shown = handshake.names.iter().any(|name| ingress.principals.contains(name));
                let client = if tls.checks_client {
                    shown && (address || !ingress.names_addresses())
                } else {
                    address
                };
                named && client
            }
            _ => false,
        }
    }

    /// Whether a client asks by a name that leads to calls of the mesh: any in the domain of services, but
    /// for ports of which services say different things. There it is the name of one of these.
    fn is_call(&self, workload: &Workload, port: u16, from: &Outsider) -> bool {
        let asked = from.tls.as_ref().and_then(|tls| tls.server_name.as_deref()).unwrap_or_default();
        let Some(service) = asked.strip_suffix(".svc.cluster.local") else { return false };
        let served = self.served(workload).remove(&port).unwrap_or_default();
        let is_own = served.iter().any(|(namespace, name)| *service == format!("{name}.{namespace}"));
        is_own || self.speaks(workload, port, None).is_some()
    }

    fn is_at_a_source(&self, ingress: &Ingress, address: Ipv4Addr) -> bool {
        let in_range = |(network, length): &(Ipv4Addr, u32)| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or_default();
            u32::from(*network) & mask == u32::from(address) & mask
        };
        let behind = |service: &Name| {
            let mut pods = self.behind(service).filter(|workload| !workload.is_machine());
            pods.any(|pod| pod.address == address.to_string())
        };
        ingress.ranges.iter().any(in_range) || ingress.services.iter().any(behind)
    }

    fn is_matched(&self, ingress: &Ingress, request: &Request) -> bool {
        let Some(groups) = &ingress.groups else { return true };
        let groups =
            groups.iter().filter_map(|name| self.groups.get(&(ingress.namespace.clone(), name.clone())));
        groups.flatten().any(|(_, wanted)| granted(request, wanted))
    }
}

/// Whether a name of `sniHosts` stands for this one: `*.example.com` for any below.
fn is_named(name: &str, asked: &str) -> bool {
    match name.strip_prefix('*') {
        Some(end) => asked.ends_with(end),
        None => asked == name,
    }
}
