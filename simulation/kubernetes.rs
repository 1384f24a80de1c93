//! A model of the objects of a Kubernetes cluster: what etcd holds, as all API servers see it.
//!
//! Owns versions and the log of changes, as the documentation of the API describes them
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/>). It shares no code with the source that
//! reads it. [`crate::api_server`] serves the objects.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use smc::crds::definitions;
use smc_host::sync::lock;
use smc_types::ids::MeshNamespace;
use tokio::sync::watch;

/// A kind of object, as the API serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Such as `discovery.k8s.io/v1`.
    pub api_version: String,
    /// Such as `EndpointSlice`.
    pub kind: String,
    /// Such as `endpointslices`.
    pub plural: String,
}

/// Kubernetes' own kinds.
const BUILT_IN: [(&str, &str, &str); 5] = [
    ("v1", "Namespace", "namespaces"),
    ("v1", "Pod", "pods"),
    ("v1", "Service", "services"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
];

/// Kind, namespace and name.
type Key = (String, String, String);

/// A change of an object.
#[derive(Debug, Clone)]
pub struct Change {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub event: &'static str,
    /// The object, with the version of the change.
    pub object: Value,
}

/// The objects. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Objects(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The version of the latest change.
    version: watch::Sender<u64>,
    resources: Vec<Resource>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    /// By version.
    log: BTreeMap<u64, Change>,
    /// The changes up to this version are forgotten.
    compacted: u64,
}

impl Default for Objects {
    /// No objects; Kubernetes' kinds and the custom resources of SMC can be made.
    fn default() -> Self {
        let built_in = BUILT_IN.map(|(api_version, kind, plural)| Resource {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        });
        let resources = built_in.into_iter().chain(custom()).collect();
        let shared = Shared { state: Mutex::default(), version: watch::Sender::new(0), resources };
        Self(Arc::new(shared))
    }
}

impl Objects {
    /// Creates or replaces the objects in a sequence of YAML documents, in their order.
    ///
    /// # Panics
    ///
    /// If a document is no object.
    pub fn apply(&self, text: &str) {
        for object in documents(text) {
            let mut state = self.state();
            let (key, old) = (key(&object), state.objects.get(&key(&object)));
            if old.is_some_and(|old| without_version(old) == object) {
                continue;
            }
            let event = if old.is_some() { "MODIFIED" } else { "ADDED" };
            let object = self.log(&mut state, event, object);
            state.objects.insert(key, object);
        }
    }

    /// Deletes the objects of these kinds and names.
    ///
    /// # Panics
    ///
    /// If a document is no object.
    pub fn delete(&self, text: &str) {
        for object in documents(text) {
            let mut state = self.state();
            if let Some(object) = state.objects.remove(&key(&object)) {
                self.log(&mut state, "DELETED", without_version(&object));
            }
        }
    }

    /// Forgets all changes, so that no watch can go on from an earlier version.
    pub fn compact(&self) {
        let mut state = self.state();
        state.compacted = *self.0.version.borrow();
        state.log.clear();
    }

    /// The version of the latest change.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// The kinds that are served.
    pub fn resources(&self) -> &[Resource] {
        &self.0.resources
    }

    /// The version of the latest change, and all objects of a resource, or those in one namespace.
    pub fn list(&self, resource: &Resource, namespace: Option<&str>) -> (u64, Vec<Value>) {
        let state = self.state();
        let of = state.objects.values().filter(|object| is_of(object, resource, namespace));
        (*self.0.version.borrow(), of.cloned().collect())
    }

    /// The changes of a resource after one version and up to another; `None` if some of them are forgotten.
    pub fn changes(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        after: u64,
        up_to: u64,
    ) -> Option<Vec<Change>> {
        let state = self.state();
        if after < state.compacted {
            return None;
        }
        let range = (Bound::Excluded(after), Bound::Included(up_to.max(after)));
        let of = state.log.range(range).filter(|(_, change)| is_of(&change.object, resource, namespace));
        Some(of.map(|(_, change)| change.clone()).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Logs a change, and returns the object with its version.
    fn log(&self, state: &mut State, event: &'static str, mut object: Value) -> Value {
        let version = *self.0.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.log.insert(version, Change { event, object: object.clone() });
        self.0.version.send_replace(version);
        object
    }
}

/// The custom resources of SMC.
fn custom() -> impl Iterator<Item = Resource> {
    let definitions = definitions(&MeshNamespace::default()).expect("valid definitions");
    definitions.into_iter().flat_map(|definition| {
        let spec = definition.as_json()["spec"].clone();
        let versions = spec["versions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let served = versions.into_iter().filter(|version| version["served"] == true);
        let resources = served.map(move |version| Resource {
            api_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
        });
        resources.collect::<Vec<_>>()
    })
}

fn documents(text: &str) -> impl Iterator<Item = Value> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).expect("an object as YAML"))
}

fn key(object: &Value) -> Key {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn is_of(object: &Value, resource: &Resource, namespace: Option<&str>) -> bool {
    object["kind"] == resource.kind.as_str()
        && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    object
}
