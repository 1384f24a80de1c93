//! The objects of a mesh, from YAML.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

/// A namespace and a name.
pub(crate) type Name = (String, String);

/// All objects of a mesh.
#[derive(Default)]
pub struct World {
    /// The labels and the service account of each pod.
    pub(crate) pods: Vec<Pod>,
    pub(crate) services: BTreeMap<Name, Service>,
    pub(crate) targets: Vec<Target>,
    pub(crate) groups: BTreeMap<Name, Vec<(String, Match)>>,
    /// The ports; empty means all.
    pub(crate) tcp: BTreeMap<Name, BTreeSet<u16>>,
    pub(crate) splits: BTreeMap<Name, Split>,
}

pub(crate) struct Pod {
    pub(crate) account: Name,
    pub(crate) labels: BTreeMap<String, String>,
}

pub(crate) struct Service {
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) ports: Vec<Port>,
}

/// A port of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The port of the service.
    pub port: u16,
    /// The port of its pods.
    pub target: u16,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// What is spoken on a port, as far as policy tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Requests, which are authorised one by one.
    Http,
    /// Anything else, which is authorised by the connection.
    Tcp,
}

pub(crate) struct Target {
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
            "Namespace" => {}
            "Pod" => {
                let account = (namespace, text(&spec["serviceAccountName"])?);
                self.pods.push(Pod { account, labels: strings(&object["metadata"]["labels"])? });
            }
            "Service" => {
                let ports = list(&spec["ports"]).map(port).collect::<Option<_>>()?;
                self.services.insert(id, Service { selector: strings(&spec["selector"])?, ports });
            }
            "TrafficTarget" => self.targets.push(target(namespace, spec)?),
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
            _ => return None,
        }
        Some(())
    }
}

fn target(namespace: String, spec: &Value) -> Option<Target> {
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
    Some(Target {
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
    // One map, or a list of maps.
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
    let target = if value["targetPort"].is_null() { port } else { number(&value["targetPort"])? };
    let name = value["name"].as_str().unwrap_or_default();
    let protocol = match name.split('-').next()? {
        "tcp" => Protocol::Tcp,
        _ => Protocol::Http,
    };
    Some(Port { port, target, protocol })
}

fn number(value: &Value) -> Option<u16> {
    value.as_u64()?.try_into().ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn strings(value: &Value) -> Option<BTreeMap<String, String>> {
    value.as_object()?.iter().map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}
