//! The objects of the API server that are of the mesh, and what was sent of them.
//!
//! Owns what each change means. Pure: changes go in, batches come out. The rules (docs/design/sources.md has
//! the words):
//!
//! - Nothing is sent before the mesh was read whole: all namespaces, and every kind in all of them;
//!   unless the last known mesh was restored, of which nothing is taken away that was not seen to be
//!   gone.
//! - A list is the truth, and takes effect as one: what it does not name is gone. An event is news only
//!   if its version is later than everything that is known of its kind, since a server may repeat
//!   itself.
//! - A namespace enters the mesh as one: it is withheld until every kind has been read in it. When it
//!   leaves, its objects leave with it. Objects of other namespaces are not kept, but for those in the
//!   control plane's own that mean the whole mesh: they neither enter nor leave with it.
//! - Of each kind, the highest version of a change that concerns the mesh is the revision of what is
//!   sent: the same on every replica that has seen the change.
//! - Versions that go back mean that the API server went back to an older state. Everything is listed
//!   again.
//! - Where there is more than there is room for, the largest namespace pays ([`share`]).
//! - What the API server does not say does not change: without an answer, everything stays as it was.
//! - What it says of a custom object beside its content is for the writer of statuses, and is no news.

mod collection;
mod custom;
mod history;
mod listing;
mod namespaces;
mod problems;
mod restore;
mod room;
mod share;
mod version;
mod weight;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use smc_api::object::{Object, SourceEvent};
use smc_types::ids::MeshNamespace;
use smc_types::kind::{Extent, Kind};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_xds::revision::{Revision, Versions};

use self::collection::{Collection, Known, Look, Read};
use self::history::History;
pub(super) use self::history::WentBack;
use self::namespaces::Namespaces;
pub(super) use self::namespaces::Scope;
use self::problems::Findings;
use self::room::Missing;
use self::share::Share;
pub(super) use self::version::Version;
use self::weight::{MAX_OBJECT_BYTES, held_bytes};
use super::failure::Trouble;
use super::kept::Unreadable;
use super::last_known::MeshCopy;
use crate::custom_objects::{CustomObjects, Marks};
use smc_decode::Rules;
use smc_decode::kinds::{self, Meaning};
use smc_decode::manifest::canonical;
use smc_server::source::Batch;

/// KiB of memory that all objects of the mesh may take as they are held, by an estimate from above: a quarter
/// of a replica's memory. 40,000 pods take that, four times as many as the catalog is designed for. An object
/// takes 2 KiB or more, so that there are 131,072 at most. The last known mesh is less than half as long as
/// this, which is what its file may be.
const MAX_HELD: u64 = 256 * 1024;

/// An object as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrived {
    /// Which object it is.
    pub(super) reference: ObjectRef,
    pub(super) version: Version,
    /// What is kept of it.
    pub(super) content: Result<Value, Unreadable>,
    /// What the API server says of a custom object beside it.
    pub(super) marks: Option<Box<Marks>>,
}

/// What was learnt about one kind.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A list begins: of all objects, or of those of one namespace.
    ListBegun(Option<String>),
    /// The list names this object.
    Listed(Arrived),
    /// The list does not name this object, although it did.
    Unlisted(ObjectRef),
    /// The list ends. It was of all objects, which were in these namespaces of the mesh.
    ListEnded(Ended, Arc<Scope>),
    /// The list ends. It was of one namespace, which entered the mesh with this number, and of the version up
    /// to which the kind is known.
    NamespaceEnded(Ended, String, u64),
    /// An object is new, or is another now.
    Applied(Arrived),
    /// An object is gone since this version.
    Deleted(ObjectRef, Version),
    /// Up to this version, nothing else of the mesh has changed.
    Passed(Version),
    /// The API server is at this version by its own word, and was further.
    WentBack(Version),
    /// The API server does not serve the kind in a version that is read, but in these.
    Missing(BTreeSet<String>),
    /// The kind cannot be read now; `None` if it can be again.
    Trouble(Option<Trouble>),
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
struct Completeness {
    /// The mesh was read whole since the start.
    whole: bool,
    /// The last known mesh was restored; how far it went.
    restored: Option<Box<Versions>>,
}

/// The objects, and what was sent of them.
#[derive(Debug)]
pub(super) struct Store {
    rules: Rules,
    mesh_namespace: MeshNamespace,
    kinds: BTreeMap<Kind, Collection>,
    namespaces: Namespaces,
    history: History,
    /// What differs from what was sent; `None` for an object without effect.
    fresh: BTreeMap<ObjectRef, Option<Object>>,
    /// The objects that were sent and are in effect.
    sent: BTreeSet<ObjectRef>,
    /// Of custom objects, what the API server says beside their content.
    custom: CustomObjects,
    findings: Findings,
    /// Which objects are held.
    share: Share,
    missing: Missing,
    completeness: Completeness,
    /// Whether the API server does not answer.
    silent: bool,
    /// Of each kind, the highest version of a change of what is of the mesh.
    latest: Versions,
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
        let share = Share::new(MAX_HELD, &mesh_namespace);
        Self {
            rules,
            mesh_namespace,
            kinds: kinds.map(|kind| (kind, Collection::new())).collect(),
            namespaces: Namespaces::default(),
            history: History::default(),
            fresh: BTreeMap::new(),
            sent: BTreeSet::new(),
            custom: CustomObjects::new(),
            findings: Findings::default(),
            share,
            missing: Missing::default(),
            completeness: Completeness::default(),
            silent: false,
            latest: Versions::default(),
            said: None,
            changed: false,
        }
    }

    /// The namespaces of the mesh, once a list of this run has named them to their end.
    pub(super) fn scope(&self) -> Option<&Arc<Scope>> {
        self.namespaces.are_listed().then(|| self.namespaces.scope())
    }

    /// The number of the order to list everything. When it grows, what was read before it is ignored.
    pub(super) fn epoch(&self) -> u64 {
        self.history.epoch()
    }

    /// Whether the mesh was read whole since the start.
    pub(super) fn is_synced(&self) -> bool {
        self.completeness.whole
    }

    /// Whether the mesh may be another than what is sent.
    pub(super) fn is_stale(&self) -> bool {
        let is_stale = |kind: &Collection| {
            kind.trouble.is_some() || (kind.look == Look::Listed && self.history.has_left(kind.epoch))
        };
        !self.is_synced() || self.silent || self.kinds.values().any(is_stale)
    }

    /// Whether there may be something to send.
    pub(super) fn has_news(&self) -> bool {
        self.changed && (self.completeness.restored.is_some() || self.is_synced())
    }

    /// Takes note of whether the API server does not answer.
    pub(super) fn set_silent(&mut self, silent: bool) {
        self.changed |= self.silent != silent;
        self.silent = silent;
    }

    /// Takes note that other problems are to be reported.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }

    /// Takes note of what was learnt about a kind by a reader that began at this epoch.
    pub(super) fn apply(&mut self, kind: Kind, epoch: u64, change: Change) {
        match change {
            // They are not of one state of the API server.
            Change::Missing(others) => self.set_missing(kind, others),
            Change::Trouble(trouble) => self.set_trouble(kind, trouble),
            _ if epoch != self.epoch() => return,
            Change::ListBegun(namespace) => self.begin_list(kind, namespace.as_deref()),
            Change::Listed(object) => self.list(kind, object),
            Change::Unlisted(reference) => self.unlist(kind, &reference),
            Change::ListEnded(ended, scope) => self.end_list(kind, ended, &scope),
            Change::NamespaceEnded(ended, namespace, entry) => {
                self.end_namespace(kind, ended, &namespace, entry);
            }
            Change::Applied(object) => {
                if self.reach(kind, object.version) && self.is_ours(kind, &object.reference) {
                    self.take_event(kind, object);
                }
            }
            Change::Deleted(reference, version) => {
                if self.reach(kind, version) && self.remove(kind, &reference) {
                    self.latest.raise(kind, version.number());
                }
            }
            Change::Passed(version) => _ = self.reach(kind, version),
            Change::WentBack(version) => self.go_back(version),
        }
        self.completeness.whole = self.completeness.whole || self.is_whole();
    }

    /// Whether everything has been read: all namespaces, and every kind in all of them.
    fn is_whole(&self) -> bool {
        self.namespaces.are_listed()
            && !self.namespaces.withholds_any()
            && self.kinds.values().all(|kind| kind.look != Look::None)
    }

    fn set_trouble(&mut self, kind: Kind, trouble: Option<Trouble>) {
        if trouble.is_some() {
            // What was listed half holds room.
            self.abandon_list(kind);
            self.missing.listed(kind, |_| true);
        }
        if let Some(collection) = self.kinds.get_mut(&kind)
            && collection.trouble != trouble
        {
            collection.trouble = trouble;
            self.changed = true;
        }
    }

    /// How far the API server has come with what is of the mesh, as far as it is known here.
    fn revision(&self) -> Revision {
        let known = |(kind, collection): (&Kind, &Collection)| (*kind, collection.known());
        let mut known: Versions = self.kinds.iter().map(known).collect();
        // Of a kind that is not served there is no change to miss; proxies may hold versions from when
        // it was.
        let furthest = known.each().map(|(_, version)| version).max().unwrap_or_default();
        for (kind, _) in self.kinds.iter().filter(|(_, of)| matches!(of.look, Look::Missing(_))) {
            known.raise(*kind, furthest);
        }
        let copy = self.completeness.restored.as_ref().filter(|_| !self.is_synced()).cloned();
        Revision { changed: self.latest.clone(), known, copy }
    }

    /// Takes in an object that is new, or another now.
    fn take_event(&mut self, kind: Kind, arrived: Arrived) {
        let Arrived { reference, version, content, marks } = arrived;
        let is_unreadable = content.is_err();
        match self.read(kind, &reference, version, content) {
            // It is known for this very reason. Otherwise each status that is written of it would be news.
            Some(read) if is_unreadable && self.findings.are(&reference, &read.problems) => {
                self.mark_known(kind, &reference, marks, Some(&read.problems));
            }
            Some(read) if !read.is_of_the_mesh(kind) => self.put(kind, reference, read),
            Some(read) => {
                if self.find_room(kind, &reference, read.bytes, marks.as_deref()) {
                    self.put(kind, reference, Read { marks, ..read });
                } else {
                    self.latest.raise(kind, version.number());
                }
            }
            None => self.mark_known(kind, &reference, marks, None),
        }
    }

    /// Takes note of what the API server says beside the content of an object that is held.
    fn mark_known(
        &mut self,
        kind: Kind,
        reference: &ObjectRef,
        marks: Option<Box<Marks>>,
        unreadable: Option<&[Problem]>,
    ) {
        let known = self.kinds.get(&kind).and_then(|collection| collection.objects.get(reference));
        let bytes = known.map_or(0, |known| known.bytes);
        if self.find_room(kind, reference, bytes, marks.as_deref()) {
            self.mark(kind, reference, marks, unreadable);
        }
    }

    /// What an object says, without its marks; `None` if that is what is known of it.
    fn read(
        &self,
        kind: Kind,
        reference: &ObjectRef,
        version: Version,
        content: Result<Value, Unreadable>,
    ) -> Option<Read> {
        let without_effect = |problems: Vec<Problem>| {
            let bytes = held_bytes(None, None, &problems);
            Read { version, json: None, object: None, problems, marks: None, bytes }
        };
        let mut value = match content {
            Ok(value) => value,
            Err(unreadable) => {
                return Some(without_effect(vec![Problem::error(reference, "", unreadable.to_string())]));
            }
        };
        let Some(reader) = reader(&value) else { return Some(without_effect(Vec::new())) };
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("generation");
        }
        let json = canonical::write(&value, MAX_OBJECT_BYTES);
        let known = self.kinds.get(&kind).and_then(|collection| collection.objects.get(reference));
        if json.is_some() && known.is_some_and(|known| known.json == json) {
            return None;
        }
        let (object, problems) = kinds::convert(reader, reference, &value, &self.rules);
        let bytes = held_bytes(json.as_deref(), object.as_ref(), &problems);
        Some(Read { version, json, object, problems, marks: None, bytes })
    }

    /// Brings an object into effect, or out of it.
    fn put(&mut self, kind: Kind, reference: ObjectRef, read: Read) {
        if !read.is_of_the_mesh(kind) {
            if self.remove(kind, &reference) {
                self.latest.raise(kind, read.version.number());
            }
            return;
        }
        let Read { version, json, object, problems, marks, bytes } = read;
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let list = collection.list;
        if let Some(known) = collection.objects.get_mut(&reference) {
            let same = known.json.is_some() && known.json == json;
            *known = Known { list, json, bytes };
            if same {
                // It was restored while the list was read.
                return self.mark(kind, &reference, marks, None);
            }
        } else {
            collection.objects.insert(reference.clone(), Known { list, json, bytes });
        }
        self.latest.raise(kind, version.number());
        if let ObjectRef::Namespace(name) = &reference {
            self.enter(name);
        }
        self.mark(kind, &reference, marks, object.is_none().then_some(&problems));
        self.findings.set(&reference, problems);
        self.fresh.insert(reference, object);
        self.changed = true;
    }

    /// Whether objects of this name are of the mesh. Of a Namespace, its labels decide.
    fn is_ours(&self, kind: Kind, reference: &ObjectRef) -> bool {
        let (extent, namespace) = (kind.spec().extent, reference.namespace());
        match reference {
            ObjectRef::Namespace(_) => extent == Extent::Cluster,
            ObjectRef::Namespaced(..) => {
                extent.reads(self.is_own(namespace), self.namespaces.contains(namespace))
            }
        }
    }

    /// Whether a namespace is the control plane's own.
    fn is_own(&self, namespace: &str) -> bool {
        namespace == self.mesh_namespace.as_str()
    }

    /// Whether objects of this kind enter the mesh, and leave it, with this namespace.
    fn moves_with(&self, kind: Kind, namespace: &str) -> bool {
        kind.spec().extent.moves(self.is_own(namespace))
    }

    /// An object is gone. Returns whether it was held.
    fn remove(&mut self, kind: Kind, reference: &ObjectRef) -> bool {
        self.leave_room(reference);
        self.take_out(kind, reference)
    }

    /// Takes an object out of effect. Returns whether there was one.
    fn take_out(&mut self, kind: Kind, reference: &ObjectRef) -> bool {
        let Some(collection) = self.kinds.get_mut(&kind) else { return false };
        if collection.objects.remove(reference).is_none() {
            return false;
        }
        self.unmark(kind, reference);
        self.findings.set(reference, Vec::new());
        self.fresh.insert(reference.clone(), None);
        self.changed = true;
        if let ObjectRef::Namespace(name) = reference {
            self.leave(name);
        }
        true
    }

    fn enter(&mut self, namespace: &str) {
        let unread = |(kind, collection): (&Kind, &Collection)| {
            let reads = self.moves_with(*kind, namespace) && !matches!(collection.look, Look::Missing(_));
            reads.then_some(*kind)
        };
        let unread = self.kinds.iter().filter_map(unread).collect();
        self.namespaces.enter(namespace, unread);
    }

    fn leave(&mut self, namespace: &str) {
        if !self.namespaces.leave(namespace) {
            return;
        }
        // The control plane's own has no objects but those that are held.
        if !self.is_own(namespace) {
            self.missing.leave(namespace);
            let moves = self.share.forget(namespace);
            self.follow(moves);
        }
        let leaving = self.kinds.keys().copied().filter(|kind| self.moves_with(*kind, namespace));
        for kind in leaving.collect::<Vec<_>>() {
            self.remove_where(kind, |of| of == namespace);
        }
    }

    /// Removes the objects of a kind in the namespaces of which `gone` holds.
    fn remove_where(&mut self, kind: Kind, gone: impl Fn(&str) -> bool) {
        let objects = self.kinds.get(&kind).into_iter().flat_map(|collection| collection.objects.keys());
        let gone: Vec<ObjectRef> = objects.filter(|of| gone(of.namespace())).cloned().collect();
        for reference in gone {
            self.remove(kind, &reference);
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
        self.abandon_list(kind);
        self.missing.listed(kind, |_| true);
        self.changed = true;
        self.remove_where(kind, |_| true);
        self.namespaces.admit_everywhere(kind);
    }

    /// What is in effect, as JSON.
    pub(super) fn kept(&self) -> MeshCopy<Arc<str>> {
        let objects = self.kinds.values().flat_map(|collection| &collection.objects);
        let objects = objects
            .filter(|(reference, _)| !self.is_withheld(reference))
            .filter_map(|(_, known)| known.json.clone())
            .collect();
        MeshCopy { objects, known: self.revision().known }
    }

    fn is_withheld(&self, reference: &ObjectRef) -> bool {
        let namespace = reference.namespace();
        let of_mesh = match reference {
            ObjectRef::Namespace(_) => true,
            ObjectRef::Namespaced(kind, _) => self.moves_with(*kind, namespace),
        };
        of_mesh && self.namespaces.withholds(namespace)
    }

    /// What leads from what was sent to what is known; `None` if that is no news, or too little is known.
    pub(super) fn batch(&mut self, more: &[Problem]) -> Option<Batch> {
        if self.completeness.restored.is_none() && !self.is_synced() {
            return None;
        }
        self.changed = false;
        let (mut events, mut upserts) = (Vec::new(), Vec::new());
        for (reference, object) in std::mem::take(&mut self.fresh) {
            let withheld = self.is_withheld(&reference);
            match object {
                Some(object) if !withheld => {
                    self.sent.insert(reference);
                    upserts.push(SourceEvent::Upsert(object));
                }
                object => {
                    // A namespace that is withheld is not of the mesh yet, also if it was before.
                    if self.sent.remove(&reference) {
                        events.push(SourceEvent::Remove(reference.clone()));
                    }
                    if withheld && object.is_some() {
                        self.fresh.insert(reference, object);
                    }
                }
            }
        }
        events.extend(upserts);
        let news = self.collect_problems(more);
        let revision = self.revision();
        if events.is_empty() && !news && self.said.as_ref() == Some(&revision) {
            return None;
        }
        self.said = Some(revision.clone());
        Some(Batch {
            events,
            problems: self.findings.list().to_vec(),
            synced: true,
            revision: Some(revision),
        })
    }
}

/// The reader of an object.
fn reader(object: &Value) -> Option<kinds::Reader> {
    let text = |key| object.get(key).and_then(Value::as_str);
    match kinds::meaning(text("apiVersion")?, text("kind")?) {
        Meaning::Object(reader) => Some(reader),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
