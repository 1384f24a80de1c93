//! The objects of the API server that are of the mesh, and what was sent of them.
//!
//! Owns what each event means. Pure: changes go in, batches come out. The rules:
//!
//! - Nothing is sent before every kind has been listed once, unless the last known mesh was restored.
//! - A list is the truth: what it does not name is gone. An event is news only if its version is later than
//!   everything that is known of its kind, since a server may repeat itself.
//! - A namespace enters the mesh as one: its objects are held back until every kind has been listed in it.
//!   When it leaves, its objects leave with it. Objects of other namespaces are not kept.
//! - The highest version of a change that concerns the mesh is the revision of what is sent: the same on
//!   every replica that has seen the change. A list is known up to its own version. The whole is known no
//!   further than a kind whose changes do not arrive now.
//! - What the API server does not say does not change: without an answer, everything stays as it was.

mod collection;
mod problems;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::revision::Revision;
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Subject};

use self::collection::{Collection, Known, Look};
use self::problems::Findings;
pub(super) use self::version::Version;
use super::failure::Trouble;
use super::kept::Unreadable;
use super::resources::{Extent, extent};
use crate::decode::Rules;
use crate::decode::kinds::{self, Meaning};
use crate::decode::manifest::{Declaration, canonical};
use crate::sources::Batch;

/// Objects that are held. The catalog is designed for a tenth of this.
const MAX_OBJECTS: usize = 100_000;

/// Bytes of what is kept of one object, as JSON: the most that an API server takes.
const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// The namespaces of the mesh. The number differs each time that a namespace enters.
pub(super) type Scope = BTreeMap<String, u64>;

/// An object; of one that cannot be read, its name and version, and the reason.
pub(super) type Content = Result<Value, (Value, Unreadable)>;

/// What was learnt about one kind.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A list begins.
    ListBegun,
    /// The list names this object.
    Listed(Content),
    /// The list ends. It was of all objects, which were in these namespaces of the mesh.
    ListEnded(Ended, Arc<Scope>),
    /// The list ends. It was of one namespace, which entered the mesh with this number.
    NamespaceEnded(Ended, String, u64),
    /// An object is new, or is another now.
    Applied(Content),
    /// An object is gone.
    Deleted(Content),
    /// The API server does not serve the kind in a version that is read, but in these.
    Missing(BTreeSet<String>),
    /// The kind cannot be read now; `None` if it can be again.
    Trouble(Option<Trouble>),
    /// Whether its changes arrive as they happen. Not so before the first watch has said what there was, and
    /// after a watch was lost, until the next one has.
    Followed(bool),
}

/// The end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// The version that the list is of.
    pub(super) version: Version,
    /// Whether every object could be read as far as its name.
    pub(super) complete: bool,
}

/// What holds for the whole.
#[derive(Debug, Default)]
struct Standing {
    /// Objects were left out because there were too many.
    overflowed: bool,
    /// The last known mesh was restored.
    restored: bool,
    /// The API server does not even say what it serves.
    silent: bool,
}

/// The objects, and what was sent of them.
#[derive(Debug)]
pub(super) struct Store {
    rules: Rules,
    mesh_namespace: MeshNamespace,
    kinds: BTreeMap<Kind, Collection>,
    /// The namespaces of the mesh; `None` before they are known.
    scope: Option<Arc<Scope>>,
    /// The number of the latest namespace that entered.
    entered: u64,
    /// Namespaces that are held back, with the kinds that have not been listed in them.
    held_back: BTreeMap<String, BTreeSet<Kind>>,
    /// What differs from what was sent; `None` for an object without effect.
    fresh: BTreeMap<ObjectRef, Option<Object>>,
    /// The objects that were sent and are in effect.
    sent: BTreeSet<ObjectRef>,
    findings: Findings,
    /// The number of held objects.
    count: usize,
    limit: usize,
    standing: Standing,
    /// The highest version of a change of what is of the mesh.
    latest: u64,
    /// The revision that was sent last; `None` before the first batch.
    said: Option<Revision>,
    /// Whether anything changed since the last batch.
    changed: bool,
}

impl Store {
    /// No objects yet, of these kinds.
    pub(super) fn new(
        rules: Rules,
        mesh_namespace: MeshNamespace,
        kinds: impl Iterator<Item = Kind>,
    ) -> Self {
        Self {
            rules,
            mesh_namespace,
            kinds: kinds.map(|kind| (kind, Collection::new())).collect(),
            scope: None,
            entered: 0,
            held_back: BTreeMap::new(),
            fresh: BTreeMap::new(),
            sent: BTreeSet::new(),
            findings: Findings::default(),
            count: 0,
            limit: MAX_OBJECTS,
            standing: Standing::default(),
            latest: 0,
            said: None,
            changed: false,
        }
    }

    /// The namespaces of the mesh, once they are known.
    pub(super) fn scope(&self) -> Option<&Arc<Scope>> {
        self.scope.as_ref()
    }

    /// Whether the API server has been asked for everything since the start.
    pub(super) fn is_synced(&self) -> bool {
        self.scope.is_some() && self.kinds.values().all(|kind| kind.look != Look::None)
    }

    /// Whether the mesh may be another than what is sent.
    pub(super) fn is_stale(&self) -> bool {
        !self.is_synced() || self.standing.silent || self.kinds.values().any(|kind| kind.trouble.is_some())
    }

    /// Whether there may be something to send.
    pub(super) fn has_news(&self) -> bool {
        self.changed && (self.standing.restored || self.is_synced())
    }

    /// Takes note of whether the API server does not answer.
    pub(super) fn set_silent(&mut self, silent: bool) {
        self.changed |= self.standing.silent != silent;
        self.standing.silent = silent;
    }

    /// Takes note that other problems are to be reported.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }

    /// Takes note of what was learnt about a kind.
    pub(super) fn apply(&mut self, kind: Kind, change: Change) {
        match change {
            Change::ListBegun => {
                if let Some(collection) = self.kinds.get_mut(&kind) {
                    collection.list += 1;
                }
            }
            Change::Listed(object) => self.upsert(kind, object),
            Change::ListEnded(ended, scope) => self.end_list(kind, ended, &scope),
            Change::NamespaceEnded(ended, namespace, entry) => {
                self.end_namespace(kind, ended, &namespace, entry);
            }
            Change::Applied(object) => {
                if self.is_news(kind, value(&object)) {
                    self.upsert(kind, object);
                }
            }
            Change::Deleted(object) => {
                let object = value(&object);
                if self.is_news(kind, object)
                    && let Some(reference) = reference(object)
                {
                    if self.holds(kind, &reference) {
                        self.latest = self.latest.max(Version::of(object).number());
                    }
                    self.remove(kind, &reference);
                }
            }
            Change::Missing(others) => self.set_missing(kind, others),
            Change::Trouble(trouble) => {
                if let Some(collection) = self.kinds.get_mut(&kind)
                    && collection.trouble != trouble
                {
                    collection.trouble = trouble;
                    self.changed = true;
                }
            }
            Change::Followed(followed) => {
                if let Some(collection) = self.kinds.get_mut(&kind) {
                    collection.followed = followed;
                    self.changed = true;
                }
            }
        }
    }

    /// How far the API server has come with what is of the mesh, as far as it is known here.
    fn revision(&self) -> Revision {
        Revision { changed: self.latest, known: collection::known(&self.kinds, self.latest) }
    }

    /// Takes note of an event's version. Events of one kind come in the order of versions, so an earlier
    /// one is a repetition.
    fn is_news(&mut self, kind: Kind, object: &Value) -> bool {
        let Some(collection) = self.kinds.get_mut(&kind) else { return false };
        let version = Version::of(object);
        let news = collection.is_news(version, namespace(object));
        collection.version = collection.version.max(version);
        news
    }

    fn upsert(&mut self, kind: Kind, content: Content) {
        let (mut object, unreadable) = match content {
            Ok(object) => (object, None),
            Err((object, unreadable)) => (object, Some(unreadable)),
        };
        let Some((reader, reference)) = named(&object) else {
            // An API server accepts no such name.
            return;
        };
        if !self.is_ours(kind, &reference) {
            return;
        }
        let version = Version::of(&object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("generation");
        }
        // What cannot be read is not kept: the last known mesh is what was in effect.
        let json = unreadable.is_none().then(|| canonical::write(&object, MAX_OBJECT_BYTES)).flatten();
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let list = collection.list;
        if let Some(known) = collection.objects.get_mut(&reference) {
            known.list = list;
            if known.json.is_some() && known.json == json {
                return;
            }
            known.json = json;
        } else if kind != Kind::Namespace && self.count >= self.limit {
            self.standing.overflowed = true;
            self.changed = true;
            return;
        } else {
            self.count += 1;
            collection.objects.insert(reference.clone(), Known { list, json });
        }
        self.latest = self.latest.max(version.number());
        let (object, problems) = match unreadable {
            None => kinds::convert(reader, &reference, &object, &self.rules),
            Some(why) => {
                let subject = Subject::Object(reference.clone());
                (None, vec![Problem::error(subject, "", why.to_string())])
            }
        };
        match &object {
            Some(Object::Namespace(namespace)) if namespace.monitored => self.enter(&namespace.name.clone()),
            _ if kind == Kind::Namespace => return self.remove(kind, &reference),
            _ => {}
        }
        self.findings.set(&reference, problems);
        self.fresh.insert(reference, object);
        self.changed = true;
    }

    /// Whether objects of this name are of the mesh. Of a Namespace, its labels decide.
    fn is_ours(&self, kind: Kind, reference: &ObjectRef) -> bool {
        match (extent(kind), reference) {
            (Extent::Cluster, _) => true,
            (Extent::Own, ObjectRef::Namespaced(_, id)) => id.namespace() == self.mesh_namespace.as_str(),
            (Extent::Mesh, ObjectRef::Namespaced(_, id)) => {
                self.scope.as_ref().is_some_and(|scope| scope.contains_key(id.namespace()))
            }
            (_, ObjectRef::Namespace(_)) => false,
        }
    }

    fn holds(&self, kind: Kind, reference: &ObjectRef) -> bool {
        self.kinds.get(&kind).is_some_and(|collection| collection.objects.contains_key(reference))
    }

    fn remove(&mut self, kind: Kind, reference: &ObjectRef) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        if collection.objects.remove(reference).is_none() {
            return;
        }
        self.count -= 1;
        self.findings.set(reference, Vec::new());
        self.fresh.insert(reference.clone(), None);
        self.changed = true;
        if let ObjectRef::Namespace(name) = reference {
            self.leave(name);
        }
        self.take_more();
    }

    /// When there is room again for what was left out, every namespace is listed again.
    fn take_more(&mut self) {
        if self.standing.overflowed && self.count < self.limit - self.limit / 100 {
            self.standing.overflowed = false;
            let scope = Arc::make_mut(self.scope.get_or_insert_default());
            for entry in scope.values_mut() {
                self.entered += 1;
                *entry = self.entered;
            }
        }
    }

    fn enter(&mut self, namespace: &str) {
        let scope = Arc::make_mut(self.scope.get_or_insert_default());
        if scope.contains_key(namespace) {
            return;
        }
        self.entered += 1;
        scope.insert(namespace.to_owned(), self.entered);
        let lacking = |(kind, collection): (&Kind, &Collection)| {
            let lacks = extent(*kind) == Extent::Mesh && !matches!(collection.look, Look::Missing(_));
            lacks.then_some(*kind)
        };
        let lacking: BTreeSet<Kind> = self.kinds.iter().filter_map(lacking).collect();
        if !lacking.is_empty() {
            self.held_back.insert(namespace.to_owned(), lacking);
        }
    }

    fn leave(&mut self, namespace: &str) {
        let scope = Arc::make_mut(self.scope.get_or_insert_default());
        if scope.remove(namespace).is_none() {
            return;
        }
        self.held_back.remove(namespace);
        for kind in self.kinds_of_the_mesh() {
            self.remove_where(kind, |of, _| of == namespace);
        }
    }

    fn kinds_of_the_mesh(&self) -> Vec<Kind> {
        self.kinds.keys().copied().filter(|kind| extent(*kind) == Extent::Mesh).collect()
    }

    /// Removes the objects of a kind of which `gone` holds, by their namespace.
    fn remove_where(&mut self, kind: Kind, gone: impl Fn(&str, &Known) -> bool) {
        let objects = self.kinds.get(&kind).into_iter().flat_map(|collection| &collection.objects);
        let gone: Vec<ObjectRef> = objects
            .filter(|(reference, known)| gone(namespace_of(reference), known))
            .map(|(reference, _)| reference.clone())
            .collect();
        for reference in gone {
            self.remove(kind, &reference);
        }
    }

    fn end_list(&mut self, kind: Kind, ended: Ended, scope: &Scope) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let list = collection.list;
        collection.version = ended.version;
        collection.later.clear();
        collection.look = Look::Listed;
        self.changed = true;
        if kind == Kind::Namespace {
            self.scope.get_or_insert_default();
        }
        // A namespace that entered since the list began is listed by itself.
        let now = self.scope.clone().unwrap_or_default();
        let listed = |namespace: &str| match extent(kind) {
            Extent::Cluster | Extent::Own => true,
            Extent::Mesh => scope.get(namespace).is_some_and(|entry| now.get(namespace) == Some(entry)),
        };
        if ended.complete {
            self.remove_where(kind, |namespace, known| known.list != list && listed(namespace));
        }
        if extent(kind) == Extent::Mesh {
            for namespace in scope.keys().filter(|namespace| listed(namespace)) {
                self.admit(kind, namespace);
            }
        }
    }

    fn end_namespace(&mut self, kind: Kind, ended: Ended, namespace: &str, entry: u64) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let list = collection.list;
        if self.scope.as_ref().and_then(|scope| scope.get(namespace)) != Some(&entry) {
            return;
        }
        collection.later.insert(namespace.to_owned(), ended.version);
        if ended.complete {
            self.remove_where(kind, |of, known| known.list != list && of == namespace);
        }
        self.admit(kind, namespace);
    }

    /// Takes note that a kind was listed in a namespace.
    fn admit(&mut self, kind: Kind, namespace: &str) {
        if let Some(lacking) = self.held_back.get_mut(namespace) {
            lacking.remove(&kind);
            if lacking.is_empty() {
                self.held_back.remove(namespace);
                self.changed = true;
            }
        }
    }

    fn set_missing(&mut self, kind: Kind, others: BTreeSet<String>) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let missing = Look::Missing(others);
        if collection.look == missing {
            return;
        }
        collection.look = missing;
        collection.trouble = None;
        self.changed = true;
        self.remove_where(kind, |_, _| true);
        let waiting: Vec<String> = self.held_back.keys().cloned().collect();
        for namespace in waiting {
            self.admit(kind, &namespace);
        }
    }

    /// Takes the last known mesh for what the API server has not said yet.
    pub(super) fn restore(&mut self, declarations: Vec<Declaration>) {
        self.standing.restored = true;
        self.changed = true;
        let namespaces_known = self.kinds.get(&Kind::Namespace).is_some_and(|kind| kind.look != Look::None);
        let (namespaces, others): (Vec<_>, Vec<_>) =
            declarations.into_iter().partition(|kept| matches!(kept.reference, ObjectRef::Namespace(_)));
        let mut whole = BTreeSet::new();
        for kept in namespaces {
            let name = namespace_of(&kept.reference).to_owned();
            if !namespaces_known
                && matches!(&kept.object, Some(Object::Namespace(namespace)) if namespace.monitored)
            {
                self.enter(&name);
                self.take(Kind::Namespace, kept);
            }
            whole.insert(name);
        }
        for kept in others {
            let ObjectRef::Namespaced(kind, _) = &kept.reference else { continue };
            let kind = *kind;
            let unknown = self.kinds.get(&kind).is_some_and(|collection| collection.look == Look::None);
            if unknown && self.is_ours(kind, &kept.reference) {
                self.take(kind, kept);
            }
        }
        self.held_back.retain(|namespace, _| !whole.contains(namespace));
        self.scope.get_or_insert_default();
    }

    fn take(&mut self, kind: Kind, kept: Declaration) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        if collection.objects.contains_key(&kept.reference) {
            return;
        }
        self.count += 1;
        collection.objects.insert(kept.reference.clone(), Known { list: 0, json: kept.json });
        self.fresh.insert(kept.reference, kept.object);
    }

    /// The JSON of every object that is in effect.
    pub(super) fn kept(&self) -> Vec<Arc<str>> {
        let objects = self.kinds.values().flat_map(|collection| &collection.objects);
        objects
            .filter(|(reference, _)| !self.is_held_back(reference))
            .filter_map(|(_, known)| known.json.clone())
            .collect()
    }

    fn is_held_back(&self, reference: &ObjectRef) -> bool {
        if let ObjectRef::Namespaced(kind, _) = reference
            && extent(*kind) != Extent::Mesh
        {
            return false;
        }
        self.held_back.contains_key(namespace_of(reference))
    }

    /// What leads from what was sent to what is known; `None` if that is no news, or too little is known.
    pub(super) fn batch(&mut self, more: &[Problem]) -> Option<Batch> {
        if !self.standing.restored && !self.is_synced() {
            return None;
        }
        self.changed = false;
        let mut events = Vec::new();
        let mut upserts = Vec::new();
        for (reference, object) in std::mem::take(&mut self.fresh) {
            if self.is_held_back(&reference) {
                self.fresh.insert(reference, object);
                continue;
            }
            match object {
                Some(object) => {
                    self.sent.insert(reference);
                    upserts.push(SourceEvent::Upsert(object));
                }
                None if self.sent.remove(&reference) => events.push(SourceEvent::Remove(reference)),
                None => {}
            }
        }
        events.extend(upserts);
        let news = self.collect_problems(more);
        let revision = self.revision();
        let said = self.said.replace(revision);
        if events.is_empty() && !news && said == Some(revision) {
            return None;
        }
        Some(Batch {
            events,
            problems: self.findings.list().to_vec(),
            synced: true,
            revision: Some(revision),
        })
    }
}

fn value(content: &Content) -> &Value {
    match content {
        Ok(object) | Err((object, _)) => object,
    }
}

/// The reader of an object, and the object's name.
fn named(object: &Value) -> Option<(kinds::Reader, ObjectRef)> {
    let text = |key| object.get(key).and_then(Value::as_str);
    let Meaning::Object(reader) = kinds::meaning(text("apiVersion")?, text("kind")?) else { return None };
    let reference = kinds::reference(reader, object).ok()?;
    Some((reader, reference))
}

fn reference(object: &Value) -> Option<ObjectRef> {
    named(object).map(|(_, reference)| reference)
}

/// The namespace of an object; empty for one without.
fn namespace(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

/// The namespace that an object belongs to; of a Namespace, itself.
fn namespace_of(reference: &ObjectRef) -> &str {
    match reference {
        ObjectRef::Namespace(name) => name,
        ObjectRef::Namespaced(_, id) => id.namespace(),
    }
}

#[cfg(test)]
mod tests;
