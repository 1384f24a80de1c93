//! The objects of a mesh, from YAML.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::ingress::Ingress;

/// A namespace and a name.
pub type Name = (String, String);

/// All objects of a mesh.
#[derive(Default)]
pub struct World {
    /// In the order of their declaration.
    pub(crate) workloads: Vec<Workload>,
    pub(crate) services: BTreeMap<Name, Service>,
    /// The namespaces whose workloads all others may reach.
    pub(crate) open: BTreeSet<String>,
    pub(crate) targets: Vec<Access>,
    pub(crate) groups: BTreeMap<Name, Vec<(String, Match)>>,
    /// The ports; empty means all.
    pub(crate) tcp: BTreeMap<Name, BTreeSet<u16>>,
    pub(crate) splits: BTreeMap<Name, Split>,
    pub(crate) ingress: Vec<Ingress>,
}

/// A pod, or a machine without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its name. It is in the namespace of its account.
    pub name: String,
    /// Its service account.
    pub account: Name,
    /// Its address.
    pub address: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Its ports that have names.
    pub(crate) ports: BTreeMap<String, u16>,
    /// The services of its namespace that a machine names. A pod names none.
    pub(crate) named: Option<BTreeSet<String>>,
    /// Whether it is no endpoint.
    pub(crate) drained: bool,
}

pub(crate) struct Service {
    /// The virtual address; `None` for a headless service.
    pub(crate) address: Option<String>,
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) ports: Vec<Port>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The port of the service.
    pub port: u16,
    /// The port of its workloads.
    pub target: Target,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// A port of the workloads of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The same of all.
    Number(u16),
    /// Each has its own number for the name, or none.
    Name(String),
}

/// What is spoken on a port. Of several on one port, the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Requests, which are authorised one by one.
    Http,
    /// Requests of HTTP/2 alone.
    Http2,
    /// Anything else, which is authorised by the connection.
    Tcp,
    /// The same, where the server speaks first.
    TcpServerFirst,
    /// The application's own TLS, in which no request can be read.
    Https,
}

/// A TrafficTarget.
pub(crate) struct Access {
    pub(crate) namespace: String,
    pub(crate) destination: Name,
    pub(crate) sources: BTreeSet<Name>,
    pub(crate) rules: Vec<Rule>,
}

pub(crate) struct Rule {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// `None` means all.
    pub(crate) matches: Option<BTreeSet<String>>,
}

/// One match of an HTTPRouteGroup.
pub struct Match {
    pub(crate) path: Option<Regex>,
    /// Whether the path was written as one of the forms for every path.
    pub(crate) every_path: bool,
    /// Empty means all.
    pub(crate) methods: BTreeSet<String>,
    pub(crate) headers: Vec<(String, Regex)>,
}

pub(crate) struct Split {
    pub(crate) root: String,
    pub(crate) backends: Vec<(String, u64)>,
    /// The groups; empty means every request.
    pub(crate) groups: Vec<String>,
}

impl World {
    /// Reads documents that `---` separates.
    ///
    /// # Errors
    ///
    /// What is no YAML, or not the shape of its kind.
    pub fn read(yaml: &str) -> Result<Self, String> {
        let mut world = Self::default();
        for document in yaml.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
            world.add(&object).ok_or_else(|| format!("cannot read {object}"))?;
        }
        Ok(world)
    }

    fn add(&mut self, object: &Value) -> Option<()> {
        let name = text(&object["metadata"]["name"])?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let (id, spec) = ((namespace.clone(), name), &object["spec"]);
        match object["kind"].as_str()? {
            "Namespace" => {
                if object["metadata"]["annotations"]["mesh.smc.dev/permissive"] == "true" {
                    self.open.insert(id.1);
                }
            }
            "Pod" => {
                let containers = list(&spec["containers"]);
                let ports = containers.flat_map(|container| list(&container["ports"]));
                let ports = ports.map(|port| Some((text(&port["name"])?, number(&port["containerPort"])?)));
                self.workloads.push(Workload {
                    name: id.1,
                    account: (namespace, text(&spec["serviceAccountName"])?),
                    address: text(&object["status"]["podIP"])?,
                    labels: strings(&object["metadata"]["labels"])?,
                    ports: ports.collect::<Option<_>>()?,
                    named: None,
                    drained: false,
                });
            }
            "MeshWorkload" => {
                let ports = list(&spec["ports"]);
                let ports = ports.map(|port| Some((text(&port["name"])?, number(&port["number"])?)));
                self.workloads.push(Workload {
                    name: id.1,
                    account: (namespace, text(&spec["serviceAccountName"])?),
                    address: text(list(&spec["addresses"]).next()?)?,
                    labels: BTreeMap::new(),
                    ports: ports.collect::<Option<_>>()?,
                    named: Some(list(&spec["services"]).map(text).collect::<Option<_>>()?),
                    drained: spec["drained"] == true,
                });
            }
            "Service" => {
                let ports = list(&spec["ports"]).map(port).collect::<Option<_>>()?;
                let address = text(&spec["clusterIP"]).filter(|address| address != "None");
                let selector = strings(&spec["selector"])?;
                self.services.insert(id, Service { address, selector, ports });
            }
            "TrafficTarget" => self.targets.push(access(namespace, spec)?),
            "HTTPRouteGroup" => {
                let matches = list(&spec["matches"]).map(|one| Some((text(&one["name"])?, matching(one)?)));
                self.groups.insert(id, matches.collect::<Option<_>>()?);
            }
            "TCPRoute" => {
                let ports = list(&spec["matches"]["ports"]).map(number).collect::<Option<_>>()?;
                self.tcp.insert(id, ports);
            }
            "TrafficSplit" => {
                let backends = list(&spec["backends"])
                    .map(|backend| Some((text(&backend["service"])?, backend["weight"].as_u64()?)));
                let split = Split {
                    root: text(&spec["service"])?,
                    backends: backends.collect::<Option<_>>()?,
                    groups: list(&spec["matches"])
                        .map(|group| text(&group["name"]))
                        .collect::<Option<_>>()?,
                };
                self.splits.insert(id, split);
            }
            "IngressBackend" => self.ingress.push(Ingress::read(&namespace, spec)?),
            // They decide neither who is let in nor where a call goes.
            "Retry" | "UpstreamTrafficSetting" => {}
            _ => return None,
        }
        Some(())
    }
}

fn access(namespace: String, spec: &Value) -> Option<Access> {
    let account = |value: &Value| {
        let named = value["namespace"].as_str().unwrap_or(&namespace).to_owned();
        Some((named, text(&value["name"])?))
    };
    let rules = list(&spec["rules"]).map(|rule| {
        let matches = match &rule["matches"] {
            Value::Null => None,
            matches => Some(list(matches).map(text).collect::<Option<_>>()?),
        };
        Some(Rule { kind: text(&rule["kind"])?, name: text(&rule["name"])?, matches })
    });
    Some(Access {
        destination: account(&spec["destination"])?,
        sources: list(&spec["sources"]).map(account).collect::<Option<_>>()?,
        rules: rules.collect::<Option<_>>()?,
        namespace,
    })
}

fn matching(value: &Value) -> Option<Match> {
    let path = value["pathRegex"].as_str().unwrap_or_default();
    let methods: BTreeSet<String> = list(&value["methods"]).map(text).collect::<Option<_>>()?;
    let any = methods.contains("*");
    // One map, which is not empty, or a list of maps.
    if value["headers"].as_object().is_some_and(Map::is_empty) {
        return None;
    }
    let mut maps: Vec<&Value> = list(&value["headers"]).collect();
    maps.extend(Some(&value["headers"]).filter(|headers| headers.is_object()));
    let mut headers = Vec::new();
    for (name, wanted) in maps.into_iter().filter_map(Value::as_object).flatten() {
        headers.push((name.to_ascii_lowercase(), expression(wanted.as_str()?)?));
    }
    Some(Match {
        // The start is anchored, the end is not.
        path: if path.is_empty() { None } else { Some(expression(&format!("(?:{path})(?s:.*)"))?) },
        every_path: ["", "/", ".*", "/.*"].contains(&path),
        methods: if any { BTreeSet::new() } else { methods },
        headers,
    })
}

/// An expression for a whole text, of bytes.
fn expression(text: &str) -> Option<Regex> {
    RegexBuilder::new(&format!(r"\A(?:{text})\z")).unicode(false).build().ok()
}

fn port(value: &Value) -> Option<Port> {
    let port = number(&value["port"])?;
    let target = match &value["targetPort"] {
        Value::Null => Target::Number(port),
        Value::String(name) => Target::Name(name.clone()),
        given => Target::Number(number(given)?),
    };
    let stated = value["appProtocol"].as_str().and_then(protocol);
    let named = value["name"].as_str().and_then(|name| protocol(name.split('-').next()?));
    let numbered = || match port {
        3306 => Protocol::TcpServerFirst,
        5432 => Protocol::Tcp,
        443 => Protocol::Https,
        _ => Protocol::Http,
    };
    Some(Port { port, target, protocol: stated.or(named).unwrap_or_else(numbered) })
}

/// By `appProtocol`, or the beginning of a name. Of the protocols that are no HTTP, those that are drawn.
fn protocol(text: &str) -> Option<Protocol> {
    Some(match text {
        "http" => Protocol::Http,
        "http2" | "grpc" | "kubernetes.io/h2c" => Protocol::Http2,
        "tcp" | "redis" => Protocol::Tcp,
        "tcp-server-first" | "mysql" => Protocol::TcpServerFirst,
        "https" => Protocol::Https,
        _ => return None,
    })
}

pub(crate) fn number(value: &Value) -> Option<u16> {
    value.as_u64()?.try_into().ok()
}

pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn strings(value: &Value) -> Option<BTreeMap<String, String>> {
    value.as_object()?.iter().map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}
