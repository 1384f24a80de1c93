//! Objects that a story writes itself, beside those that a seed draws.
//!
//! Owns their names and contents. The history knows both by numbers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::Kind;

use super::history::{Form, Held, Key, OWN};
use super::objects;
use super::resources::Resource;
use super::server::Server;

/// What was written so far.
#[derive(Debug)]
pub(super) struct Written {
    contents: Vec<Value>,
    /// By name; the control plane's is the first.
    namespaces: BTreeMap<String, u16>,
    /// By namespace and name.
    names: BTreeMap<(String, String), u16>,
}

impl Written {
    pub(super) fn new() -> Self {
        let own = MeshNamespace::default().as_str().to_owned();
        Self { contents: Vec::new(), namespaces: BTreeMap::from([(own, OWN)]), names: BTreeMap::new() }
    }

    /// The kind and the key of an object, new if its name is.
    fn key(&mut self, object: &Value) -> (Kind, Key) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let kind = Kind::of_name(text("/kind")).expect("an object of a kind that the mesh reads");
        let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        let mut number = |namespace: &str| {
            let next = next(self.namespaces.len());
            *self.namespaces.entry(namespace.to_owned()).or_insert(next)
        };
        if kind == Kind::Namespace {
            return (kind, (number(name), 0));
        }
        let namespace_number = number(namespace);
        let next = next(self.names.len() + 1);
        let object = *self.names.entry((namespace.to_owned(), name.to_owned())).or_insert(next);
        (kind, (namespace_number, object))
    }
}

fn next(count: usize) -> u16 {
    u16::try_from(count).expect("a story of some thousand objects")
}

fn documents(text: &str) -> impl Iterator<Item = Value> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).expect("an object as YAML"))
}

impl Server {
    /// Creates or replaces the objects in a sequence of YAML documents, in their order. What is there already
    /// does not change.
    ///
    /// # Panics
    ///
    /// If a document is no object of a kind that the mesh reads.
    pub fn apply(&self, text: &str) {
        for object in documents(text) {
            let mut written = self.written();
            let (kind, key) = written.key(&object);
            let held = self.state().history.objects(kind).get(&key).map(|held| held.form);
            if let Some(Form::Written(number)) = held
                && written.contents[number as usize] == object
            {
                continue;
            }
            let number = u32::from(next(written.contents.len()));
            written.contents.push(object);
            drop(written);
            self.put(kind, key, Form::Written(number));
        }
    }

    /// Deletes the objects of these kinds and names.
    ///
    /// # Panics
    ///
    /// If a document is no object of a kind that the mesh reads.
    pub fn remove(&self, text: &str) {
        for object in documents(text) {
            let (kind, key) = self.written().key(&object);
            self.delete(kind, key);
        }
    }

    /// An object as JSON. Drawn items of a list of Kubernetes' own kinds do not say what they are, unless
    /// `whole`.
    pub(super) fn json(&self, resource: &Resource, key: Key, held: Held, whole: bool) -> String {
        let Form::Written(number) = held.form else {
            return objects::json(resource.kind, resource.api_version, key, held, whole);
        };
        let mut object = self.written().contents[number as usize].clone();
        object["metadata"]["resourceVersion"] = json!(held.version.to_string());
        object.to_string()
    }

    /// The number of a namespace.
    pub(super) fn namespace_number(&self, name: &str) -> Option<u16> {
        self.written().namespaces.get(name).copied().or_else(|| objects::namespace_number(name))
    }
}
