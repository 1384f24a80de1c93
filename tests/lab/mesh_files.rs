//! Owns the reading of the mesh directory, and the form in which it is published to the controller.
//!
//! Pure. The lab parses only the kinds that a kubelet needs. Everything else, and what cannot be
//! parsed, is passed on byte for byte, so that the controller sees it and reports it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use smc_decode::manifest::documents::split;
use smc_types::ids::{MeshNamespace, NamespacedName};

use super::{machine, workload};

/// File name → content.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Larger files are passed on unparsed: they test the controller, and declare no Pods to run.
const MAX_PARSED_BYTES: usize = 1 << 20;

/// The label that binds a Pod to its proxy's certificate; the injector sets it.
pub(super) const PROXY_UUID_LABEL: &str = "osm-proxy-uuid";

/// The declarations of the mesh directory that concern the lab.
#[derive(Debug, Default)]
pub(super) struct MeshFiles {
    files: BTreeMap<String, Vec<Part>>,
    raw: Files,
    pub(super) pods: BTreeMap<NamespacedName, Pod>,
    /// The Pods' documents, and the files that they are in.
    declared: BTreeMap<NamespacedName, Declared>,
    pub(super) services: BTreeMap<NamespacedName, Service>,
    pub(super) namespaces: BTreeMap<String, Namespace>,
    pub(super) slices: Vec<EndpointSlice>,
    /// The services that each machine names. A machine runs as a Pod of its name, and is one of `pods`.
    pub(super) machines: BTreeMap<NamespacedName, Vec<String>>,
    /// The Deployment, or another such object, that each expanded Pod comes from.
    pub(super) owners: BTreeMap<NamespacedName, String>,
    /// The only namespace whose MeshConfig counts.
    mesh_namespace: String,
    /// `spec.traffic` of the MeshConfig.
    pub(super) traffic: Value,
    /// Problems with files that the lab could not use, one line each.
    pub(super) problems: Vec<String>,
}

/// One document of a file.
#[derive(Debug)]
enum Part {
    Text(String),
    Pod(NamespacedName, Value),
    /// A MeshWorkload that the lab runs.
    Machine(NamespacedName, Value),
    Service(NamespacedName, Value),
    /// A Deployment or another such object, and the Pods that it expands to.
    Workload(String, Vec<(NamespacedName, Value)>),
}

/// The document that declares a Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    file: String,
    document: Value,
}

/// A Pod that is ending: what declared it, and its last state. The mesh directory may declare another one of
/// its name already, or none.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) declared: Declared,
    pub(super) status: PodStatus,
}

/// The kubelet's knowledge of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodStatus {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) running: bool,
    pub(super) ready: bool,
    /// The injector's label, for a Pod in the mesh.
    pub(super) proxy_uuid: Option<String>,
}

impl MeshFiles {
    /// Parses all files, for a mesh of OSM's own namespace.
    #[cfg(test)]
    pub(super) fn parse(files: &Files) -> Self {
        Self::parse_for(files, &MeshNamespace::default())
    }

    /// Parses all files. Of two objects with one name the first counts, in order of file names.
    pub(super) fn parse_for(files: &Files, mesh_namespace: &MeshNamespace) -> Self {
        let mesh_namespace = mesh_namespace.to_string();
        let mut mesh = Self { raw: files.clone(), mesh_namespace, ..Self::default() };
        for (file, bytes) in files {
            let Ok(text) = std::str::from_utf8(bytes) else {
                mesh.problems.push(format!("{file}: not UTF-8; passed on as it is"));
                continue;
            };
            if bytes.len() > MAX_PARSED_BYTES {
                mesh.problems.push(format!("{file}: larger than {MAX_PARSED_BYTES} bytes; passed on unread"));
                continue;
            }
            let parts = split(text).map(|document| mesh.part(file, document.text)).collect();
            mesh.files.insert(file.clone(), parts);
        }
        mesh
    }

    fn part(&mut self, file: &str, document: &str) -> Part {
        let text = || Part::Text(document.to_owned());
        let Ok(value) = serde_saphyr::from_str::<Value>(document) else {
            self.problems.push(format!("{file}: a document that is not YAML; passed on as it is"));
            return text();
        };
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "Pod" => match self.object::<Pod>(file, &kind, &value) {
                Some((name, pod)) if !self.pods.contains_key(&name) => {
                    self.pods.insert(name.clone(), pod);
                    let declared = Declared { file: file.to_owned(), document: value.clone() };
                    self.declared.insert(name.clone(), declared);
                    Part::Pod(name, value)
                }
                _ => text(),
            },
            "MeshWorkload" => match self.machine(file, &value) {
                Some(name) => Part::Machine(name, value),
                None => text(),
            },
            "Service" => match self.object::<Service>(file, &kind, &value) {
                Some((name, service)) if !self.services.contains_key(&name) => {
                    self.services.insert(name.clone(), service);
                    Part::Service(name, value)
                }
                _ => text(),
            },
            "Namespace" => {
                if let Ok(namespace) = serde_json::from_value::<Namespace>(value)
                    && let Some(name) = namespace.metadata.name.clone()
                {
                    self.namespaces.entry(name).or_insert(namespace);
                }
                text()
            }
            "EndpointSlice" => {
                if let Ok(slice) = serde_json::from_value(value) {
                    self.slices.push(slice);
                }
                text()
            }
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
                self.workload(file, &kind, document, &value)
            }
            "Job" | "CronJob" => {
                self.problems.push(format!("{file}: the lab runs no {kind}s"));
                text()
            }
            "MeshConfig" => {
                if self.traffic.is_null() && self.is_the_mesh_config(&value) {
                    self.traffic = value.pointer("/spec/traffic").cloned().unwrap_or_default();
                }
                text()
            }
            _ => text(),
        }
    }

    /// Whether the controller obeys this MeshConfig: it is the singleton of the mesh's own namespace.
    fn is_the_mesh_config(&self, value: &Value) -> bool {
        let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
        text("/apiVersion").is_some_and(|version| version.starts_with("config.openservicemesh.io/"))
            && text("/metadata/name") == Some("osm-mesh-config")
            && text("/metadata/namespace").unwrap_or("default") == self.mesh_namespace
    }

    /// Takes a MeshWorkload up, if the lab is to run it; `None` otherwise.
    fn machine(&mut self, file: &str, value: &Value) -> Option<NamespacedName> {
        let made = match machine::pod(value) {
            Ok(made) => made,
            Err(problem) => {
                self.problems.push(format!("{file}: MeshWorkload: {problem}; passed on as it is"));
                return None;
            }
        };
        let (name, pod) = self.object::<Pod>(file, "MeshWorkload", &made)?;
        if self.pods.contains_key(&name) {
            self.problems.push(format!("{file}: MeshWorkload {name} has the name of another Pod or machine"));
            return None;
        }
        self.pods.insert(name.clone(), pod);
        self.machines.insert(name.clone(), machine::services(value));
        let declared = Declared { file: file.to_owned(), document: value.clone() };
        self.declared.insert(name.clone(), declared);
        Some(name)
    }

    /// Expands an object with a Pod template.
    fn workload(&mut self, file: &str, kind: &str, document: &str, value: &Value) -> Part {
        let expanded = match workload::expand(kind, value) {
            Ok(expanded) => expanded,
            Err(problem) => {
                self.problems.push(format!("{file}: {kind}: {problem}; passed on as it is"));
                return Part::Text(document.to_owned());
            }
        };
        let mut pods = Vec::new();
        for pod in expanded {
            let Some((name, read)) = self.object::<Pod>(file, "Pod", &pod) else { break };
            if self.pods.contains_key(&name) {
                self.problems.push(format!("{file}: {kind}: Pod {name} is declared already"));
                continue;
            }
            self.pods.insert(name.clone(), read);
            self.declared.insert(name.clone(), Declared { file: file.to_owned(), document: pod.clone() });
            let owner = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            self.owners.insert(name.clone(), format!("{kind} {}/{owner}", name.namespace()));
            pods.push((name, pod));
        }
        Part::Workload(document.to_owned(), pods)
    }

    fn object<T: DeserializeOwned>(
        &mut self,
        file: &str,
        kind: &str,
        value: &Value,
    ) -> Option<(NamespacedName, T)> {
        let meta = |field| value.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        let namespace = meta("namespace").unwrap_or("default");
        let name = meta("name").unwrap_or_default();
        let id = match NamespacedName::new(namespace, name) {
            Ok(id) => id,
            Err(error) => {
                self.problems.push(format!("{file}: {kind}: {error}; passed on as it is"));
                return None;
            }
        };
        match serde_json::from_value(value.clone()) {
            Ok(object) => Some((id, object)),
            Err(error) => {
                self.problems.push(format!("{file}: {kind} {id}: {error}; passed on as it is"));
                None
            }
        }
    }

    /// Whether an EndpointSlice names the service.
    pub(super) fn is_sliced(&self, service: &NamespacedName) -> bool {
        self.slices.iter().any(|slice| {
            let labels = slice.metadata.labels.as_ref();
            let label = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
            label.is_some_and(|name| name == service.name())
                && slice.metadata.namespace.as_deref().unwrap_or("default") == service.namespace()
        })
    }

    /// The document that declares a Pod.
    pub(super) fn declared(&self, name: &NamespacedName) -> Option<&Declared> {
        self.declared.get(name)
    }

    /// Renders the directory that the controller reads: Pods with their status, Services with the
    /// virtual IPs of `services`, everything else unchanged. A Pod that is `ending` stands in the file that
    /// declared it, as it was and with a deletion timestamp, so that there is no moment without it.
    pub(super) fn publish(
        &self,
        pods: &BTreeMap<NamespacedName, PodStatus>,
        ending: &BTreeMap<NamespacedName, Ending>,
        services: &BTreeMap<NamespacedName, Vec<IpAddr>>,
        node: &str,
    ) -> Files {
        let mut published = self.raw.clone();
        let mut terminating: BTreeMap<&str, Vec<&Ending>> = BTreeMap::new();
        for pod in ending.values() {
            terminating.entry(&pod.declared.file).or_default().push(pod);
        }
        let no_parts = Vec::new();
        let gone = terminating.keys().filter(|file| !self.raw.contains_key(**file));
        let gone: Vec<_> = gone.map(|file| (*file, &no_parts)).collect();
        for (file, parts) in self.files.iter().map(|(file, parts)| (file.as_str(), parts)).chain(gone) {
            let terminating = terminating.get(file).map_or(&[][..], Vec::as_slice);
            if terminating.is_empty() && parts.iter().all(|part| matches!(part, Part::Text(_))) {
                continue;
            }
            let mut text = String::new();
            for pod in terminating {
                if !text.is_empty() {
                    text.push_str("---\n");
                }
                let _ = writeln!(text, "{:#}", with_end(pod, node));
            }
            for part in parts {
                if matches!(part, Part::Pod(name, _) | Part::Machine(name, _) if ending.contains_key(name)) {
                    continue;
                }
                if !text.is_empty() {
                    text.push_str("---\n");
                }
                let as_it_is = |name: &NamespacedName, value: &Value| match pods.get(name) {
                    Some(status) => with_status(value.clone(), status, node),
                    None => value.clone(),
                };
                match part {
                    Part::Text(document) => text.push_str(document),
                    Part::Pod(name, value) | Part::Machine(name, value) => {
                        let _ = write!(text, "{:#}", as_it_is(name, value));
                    }
                    Part::Workload(document, all) => {
                        text.push_str(document);
                        for (name, value) in all.iter().filter(|(name, _)| !ending.contains_key(name)) {
                            let separator = if text.ends_with('\n') { "" } else { "\n" };
                            let _ = write!(text, "{separator}---\n{:#}", as_it_is(name, value));
                        }
                    }
                    Part::Service(name, value) => {
                        let value = match services.get(name).filter(|addresses| !addresses.is_empty()) {
                            Some(addresses) => with_cluster_ips(value.clone(), addresses),
                            // A service without addresses is published as declared: it may be
                            // headless.
                            None => value.clone(),
                        };
                        let _ = write!(text, "{value:#}");
                    }
                }
                if !text.ends_with('\n') {
                    text.push('\n');
                }
            }
            published.insert(file.to_owned(), text.into_bytes());
        }
        published
    }
}

fn with_status(mut pod: Value, status: &PodStatus, node: &str) -> Value {
    if pod["kind"] == "MeshWorkload" {
        // A machine has no status: its addresses are its author's statement.
        pod["spec"]["addresses"] = json!(status.addresses);
        return pod;
    }
    if let Some(uuid) = &status.proxy_uuid {
        pod["metadata"]["labels"][PROXY_UUID_LABEL] = json!(uuid);
    }
    pod["spec"]["nodeName"] = json!(node);
    let addresses: Vec<Value> = status.addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let condition =
        |kind: &str, value: bool| json!({ "type": kind, "status": if value { "True" } else { "False" } });
    pod["status"] = json!({
        "phase": if status.running { "Running" } else { "Pending" },
        "podIP": status.addresses.first(),
        "podIPs": addresses,
        "conditions": [
            condition("PodScheduled", true),
            condition("ContainersReady", status.ready),
            condition("Ready", status.ready),
        ],
    });
    pod
}

/// A Pod that is ending. Of the time of its deletion only that there is one counts.
fn with_end(pod: &Ending, node: &str) -> Value {
    let mut document = with_status(pod.declared.document.clone(), &pod.status, node);
    document["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    document
}

fn with_cluster_ips(mut service: Value, addresses: &[IpAddr]) -> Value {
    service["spec"]["clusterIP"] = json!(addresses.first());
    service["spec"]["clusterIPs"] = json!(addresses);
    service
}

#[cfg(test)]
mod tests;
