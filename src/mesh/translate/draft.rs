//! A snapshot, or a part of one, in the making.
//!
//! Owns the rule that names are unique, and collects what the lint needs: facts about each resource, and
//! what was found wrong on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use super::endpoint::EndpointSet;
use super::intern::{Interned, Interner};
use super::names;
use crate::lint::{self, Facts};
use crate::problem::Problem;
use crate::resource::{Resource, ResourceType};
use crate::world::{ProxyClass, Snapshot};

/// The part and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The resources.
    pub(super) snapshot: Snapshot,
    /// What its EDS names stand for.
    pub(super) sets: BTreeMap<Arc<str>, EndpointSet>,
    /// Each resource with what is known of it.
    pub(super) facts: Vec<(Arc<Resource>, Arc<Facts>)>,
    /// What could not be translated as declared.
    pub(super) problems: BTreeSet<Problem>,
    /// Resources that would have replaced another of the same name: a defect of translation.
    pub(super) duplicates: Vec<Arc<Resource>>,
}

impl Part {
    /// What is wrong with the resources of this part, for proxies of `class`. They may refer to each other and to the
    /// proxy's own certificate, which every snapshot has.
    pub(super) fn lint(&self, class: &ProxyClass) -> Vec<Problem> {
        let facts = self.facts.iter().map(|(resource, facts)| (&**resource, &**facts));
        let mut problems = lint::check(class, facts, |kind, name| {
            let table = match kind {
                ResourceType::Secret if name == names::SERVICE_CERTIFICATE => return true,
                ResourceType::Secret => &self.snapshot.secrets,
                ResourceType::Cluster => &self.snapshot.clusters,
                ResourceType::Endpoint => return self.snapshot.endpoints.contains(name),
                ResourceType::Listener => &self.snapshot.listeners,
                ResourceType::Route => &self.snapshot.routes,
            };
            table.contains_key(name)
        });
        problems.extend(self.duplicates.iter().map(|resource| lint::duplicate(class, resource)));
        problems
    }

    /// The resources of this part.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.facts.iter().map(|(resource, _)| resource)
    }
}

/// Puts a resource into the table of its type. Returns whether there was none of its name.
pub(super) fn add(snapshot: &mut Snapshot, resource: &Arc<Resource>) -> bool {
    let table = match resource.kind {
        ResourceType::Secret => &mut snapshot.secrets,
        ResourceType::Cluster => &mut snapshot.clusters,
        ResourceType::Listener => &mut snapshot.listeners,
        ResourceType::Route => &mut snapshot.routes,
        // Held by the world, for all proxies.
        ResourceType::Endpoint => return true,
    };
    table.insert(Arc::clone(&resource.name), Arc::clone(resource)).is_none()
}

/// A part together with the place where resources are encoded.
pub(super) struct Draft<'a> {
    interner: &'a mut Interner,
    part: Part,
}

impl<'a> Draft<'a> {
    /// An empty draft.
    pub(super) fn new(interner: &'a mut Interner) -> Self {
        Self { interner, part: Part::default() }
    }

    /// Adds a resource.
    pub(super) fn add(&mut self, kind: ResourceType, name: &str, message: &impl Message) {
        let interned = self.interner.encode(kind, name, message);
        self.take(interned);
    }

    /// Adds a resource that holds a private key: nothing is to remember it once it is not served.
    pub(super) fn add_unshared(&mut self, kind: ResourceType, name: &str, message: &impl Message) {
        let interned = self.interner.encode_unshared(kind, name, message);
        self.take(interned);
    }

    fn take(&mut self, interned: Interned) {
        let Interned { resource, facts } = interned;
        if !add(&mut self.part.snapshot, &resource) {
            self.part.duplicates.push(Arc::clone(&resource));
        }
        self.part.facts.push((resource, facts));
    }

    /// Adds the name of an endpoint set.
    pub(super) fn add_endpoints(&mut self, name: &str, set: EndpointSet) {
        let name: Arc<str> = name.into();
        self.part.snapshot.endpoints.insert(Arc::clone(&name));
        self.part.sets.insert(name, set);
    }

    /// Notes what could not be translated as declared.
    pub(super) fn report(&mut self, problem: Problem) {
        self.part.problems.insert(problem);
    }

    /// The finished part.
    pub(super) fn finish(self) -> Part {
        self.part
    }
}
