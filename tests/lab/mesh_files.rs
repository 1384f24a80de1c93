//! Owns the reading of the mesh directory, and the form in which it is published to the controller.
//!
//! Pure. The lab parses only the kinds that a kubelet needs. Everything else, and what cannot be
//! parsed, is passed on byte for byte, so that the controller sees it and reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use smc::decode::manifest::documents::split;
use smc_types::ids::NamespacedName;

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
    pub(super) services: BTreeMap<NamespacedName, Service>,
    pub(super) namespaces: BTreeMap<String, Namespace>,
    pub(super) slices: Vec<EndpointSlice>,
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
    Service(NamespacedName, Value),
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
    /// Parses all files. Of two objects with one name the first counts, in order of file names.
    pub(super) fn parse(files: &Files) -> Self {
        let mut mesh = Self { raw: files.clone(), ..Self::default() };
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
                    Part::Pod(name, value)
                }
                _ => text(),
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
            "MeshConfig" => {
                if self.traffic.is_null() {
                    self.traffic = value.pointer("/spec/traffic").cloned().unwrap_or_default();
                }
                text()
            }
            _ => text(),
        }
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

    /// Renders the directory that the controller reads: Pods with their status, Services with the
    /// virtual IPs of `services`, everything else unchanged. Pods in `absent` are left out.
    pub(super) fn publish(
        &self,
        pods: &BTreeMap<NamespacedName, PodStatus>,
        absent: &BTreeSet<NamespacedName>,
        services: &BTreeMap<NamespacedName, Vec<IpAddr>>,
        node: &str,
    ) -> Files {
        let mut published = self.raw.clone();
        for (file, parts) in &self.files {
            if parts.iter().all(|part| matches!(part, Part::Text(_))) {
                continue;
            }
            let mut text = String::new();
            for part in parts {
                if matches!(part, Part::Pod(name, _) if absent.contains(name)) {
                    continue;
                }
                if !text.is_empty() {
                    text.push_str("---\n");
                }
                match part {
                    Part::Text(document) => text.push_str(document),
                    Part::Pod(name, value) => {
                        let value = match pods.get(name) {
                            Some(status) => with_status(value.clone(), status, node),
                            None => value.clone(),
                        };
                        let _ = write!(text, "{value:#}");
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
            published.insert(file.clone(), text.into_bytes());
        }
        published
    }
}

fn with_status(mut pod: Value, status: &PodStatus, node: &str) -> Value {
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

fn with_cluster_ips(mut service: Value, addresses: &[IpAddr]) -> Value {
    service["spec"]["clusterIP"] = json!(addresses.first());
    service["spec"]["clusterIPs"] = json!(addresses);
    service
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec: {containers: []}\n";

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    fn documents(yaml: &[u8]) -> Vec<&str> {
        split(std::str::from_utf8(yaml).unwrap()).map(|document| document.text).collect()
    }

    fn status(ready: bool) -> BTreeMap<NamespacedName, PodStatus> {
        BTreeMap::from([(
            NamespacedName::new("shop", "a").unwrap(),
            PodStatus {
                addresses: vec!["10.244.0.2".parse().unwrap()],
                running: ready,
                ready,
                proxy_uuid: Some("u-1".to_owned()),
            },
        )])
    }

    #[test]
    fn a_pod_gets_its_status_and_other_documents_stay_unchanged() {
        let broken = "kind: [unclosed\n";
        let input = files(&[("a.yaml", &format!("# top\n---\n{POD}---\n{broken}"))]);
        let published =
            MeshFiles::parse(&input).publish(&status(true), &BTreeSet::new(), &BTreeMap::new(), "node");
        let documents = documents(&published["a.yaml"]);
        assert_eq!(documents.len(), 2, "{documents:?}");
        let pod: Value = serde_saphyr::from_str(documents[0]).unwrap();
        assert_eq!(pod["status"]["podIP"], "10.244.0.2");
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(pod["metadata"]["labels"]["osm-proxy-uuid"], "u-1");
        assert_eq!(documents[1], format!("---\n{broken}"));
    }

    #[test]
    fn a_service_gets_its_addresses_and_a_headless_one_stays_headless() {
        let service = |name: &str, ip: &str| {
            let spec = format!("spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}");
            format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n{spec}\n")
        };
        let text = format!("{}---\n{}", service("a", "''"), service("b", "None"));
        let assigned = [("a", vec!["10.96.0.10".parse().unwrap()]), ("b", Vec::new())];
        let assigned = assigned.map(|(name, ips)| (NamespacedName::new("shop", name).unwrap(), ips)).into();
        let mesh = MeshFiles::parse(&files(&[("s.yaml", &text)]));
        let published = mesh.publish(&BTreeMap::new(), &BTreeSet::new(), &assigned, "node");
        let services: Vec<Value> = documents(&published["s.yaml"])
            .into_iter()
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        assert_eq!(services[0]["spec"]["clusterIP"], "10.96.0.10");
        assert_eq!(services[1]["spec"]["clusterIP"], "None");
    }

    #[test]
    fn files_without_pods_and_services_are_passed_on_byte_for_byte() {
        let input = files(&[
            ("split.yaml", "# c\nkind: TrafficSplit\n---\n\n---\nx: y   \n"),
            ("broken.yaml", "\t{{{\n"),
            ("notes.txt", "hello"),
        ]);
        assert_eq!(
            MeshFiles::parse(&input).publish(&status(true), &BTreeSet::new(), &BTreeMap::new(), "node"),
            input
        );
    }

    #[test]
    fn a_service_gets_its_virtual_ips_and_a_headless_one_stays_headless() {
        let service = |name: &str, spec: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n"
            )
        };
        let text = service("peers", "{clusterIP: None, selector: {app: web}}")
            + &service("web", "{selector: {app: web}}");
        let name = |name: &str| NamespacedName::new("shop", name).unwrap();
        let ips =
            BTreeMap::from([(name("peers"), vec![]), (name("web"), vec!["10.96.0.10".parse().unwrap()])]);
        let mesh = MeshFiles::parse(&files(&[("a.yaml", &text)]));
        let published = mesh.publish(&BTreeMap::new(), &BTreeSet::new(), &ips, "node");
        let specs: Vec<Value> = documents(&published["a.yaml"])
            .into_iter()
            .map(|document| serde_saphyr::from_str::<Value>(document).unwrap()["spec"].clone())
            .collect();
        assert_eq!(specs[0], json!({"clusterIP": "None", "selector": {"app": "web"}}));
        assert_eq!(specs[1]["clusterIPs"], json!(["10.96.0.10"]));
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_passed_on_and_named() {
        let input = files(&[("a.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: ../x}\n")]);
        let mesh = MeshFiles::parse(&input);
        assert!(mesh.pods.is_empty());
        assert_eq!(mesh.problems.len(), 1);
        assert_eq!(mesh.publish(&BTreeMap::new(), &BTreeSet::new(), &BTreeMap::new(), "node"), input);
    }

    #[test]
    fn a_duplicate_pod_is_passed_on_but_only_the_first_runs() {
        let input = files(&[("a.yaml", POD), ("b.yaml", POD)]);
        let mesh = MeshFiles::parse(&input);
        let published = mesh.publish(&status(true), &BTreeSet::new(), &BTreeMap::new(), "node");
        assert_eq!(mesh.pods.len(), 1);
        assert_ne!(published["a.yaml"], input["a.yaml"]);
        assert_eq!(published["b.yaml"], input["b.yaml"]);
    }

    #[test]
    fn a_pod_that_is_ending_is_left_out_and_other_documents_stay() {
        let input = files(&[("a.yaml", &format!("x: y\n---\n{POD}"))]);
        let absent = status(true).into_keys().collect();
        let published = MeshFiles::parse(&input).publish(&BTreeMap::new(), &absent, &BTreeMap::new(), "node");
        assert_eq!(documents(&published["a.yaml"]), ["x: y\n"]);
    }

    #[test]
    fn a_marker_with_content_on_its_line_starts_a_document() {
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {containers: []}}";
        let input = files(&[("a.yaml", &format!("a: 1\n--- {pod}\n---\n# only a comment\n"))]);
        let mesh = MeshFiles::parse(&input);
        assert_eq!(mesh.problems, Vec::<String>::new());
        let published = mesh.publish(&status(true), &BTreeSet::new(), &BTreeMap::new(), "node");
        let documents = documents(&published["a.yaml"]);
        assert_eq!((documents.len(), documents[0]), (2, "a: 1\n"), "{documents:?}");
        assert!(documents[1].contains("10.244.0.2"), "{documents:?}");
    }
}
