//! A part of a snapshot, while it is made.
//!
//! Owns the rule that names are unique. Collects the facts about each resource for the lint, and
//! the problems that the translation found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::Message;

use super::endpoint::EndpointSet;
use super::intern::{Interned, Interner};
use super::ordered_struct::DescribedCluster;
use super::provenance::Objects;
use crate::lint::{self, Facts};
use smc_types::problem::Problem;
use smc_types::proxy_class::ProxyClass;
use smc_xds::names;
use smc_xds::resource::{Resource, ResourceType};
use smc_xds::served_state::Snapshot;

/// A part of a snapshot, with the facts about it.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The resources.
    pub(super) snapshot: Snapshot,
    /// The endpoints that its EDS names stand for.
    pub(super) sets: BTreeMap<Arc<str>, EndpointSet>,
    /// Each resource with the facts about it.
    pub(super) facts: Vec<(Arc<Resource>, Arc<Facts>)>,
    /// Declared objects that could not be translated as declared.
    pub(super) problems: BTreeSet<Problem>,
    /// Resources with the name of another one: a defect of the translation.
    pub(super) duplicates: Vec<Arc<Resource>>,
}

impl Part {
    /// Lints the resources of this part, for proxies of `class`. They may refer to each other and
    /// to the proxy's own certificate, which is in every snapshot.
    pub(super) fn lint(&self, class: &ProxyClass) -> Vec<Problem> {
        let facts = self.facts.iter().map(|(resource, facts)| (&**resource, &**facts));
        let mut problems = lint::check(class, facts, |kind, name| {
            let table = match kind {
                ResourceType::Secret if name == names::SERVICE_CERTIFICATE => return true,
                ResourceType::Secret => &self.snapshot.secrets,
                ResourceType::Cluster => &self.snapshot.clusters,
                ResourceType::Endpoint => return self.snapshot.endpoints.contains(name),
                ResourceType::ExtensionConfig => &self.snapshot.extension_configs,
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

/// Puts a resource into the table of its type. Returns false if there was one of its name.
pub(super) fn add(snapshot: &mut Snapshot, resource: &Arc<Resource>) -> bool {
    let table = match resource.kind {
        ResourceType::Secret => &mut snapshot.secrets,
        ResourceType::Cluster => &mut snapshot.clusters,
        ResourceType::ExtensionConfig => &mut snapshot.extension_configs,
        ResourceType::Listener => &mut snapshot.listeners,
        ResourceType::Route => &mut snapshot.routes,
        // The served state holds these, for all proxies.
        ResourceType::Endpoint => return true,
    };
    table.insert(Arc::clone(&resource.name), Arc::clone(resource)).is_none()
}

/// A part, with the interner for its resources.
pub(super) struct Draft<'a> {
    interner: &'a mut Interner,
    part: Part,
}

impl<'a> Draft<'a> {
    /// An empty draft.
    pub(super) fn new(interner: &'a mut Interner) -> Self {
        Self { interner, part: Part::default() }
    }

    /// Adds a resource that is made of `objects`.
    pub(super) fn add(&mut self, kind: ResourceType, name: &str, message: &impl Message, objects: &Objects) {
        let objects = self.interner.objects(objects);
        let interned = self.interner.share(Resource::encode(kind, name, message).made_of(objects));
        self.take(interned);
    }

    /// Adds a secret that holds no private key. It is made of no object.
    pub(super) fn add_secret(&mut self, secret: &Secret) {
        self.add(ResourceType::Secret, &secret.name, secret, &Objects::new());
    }

    /// Adds a cluster that takes its endpoints from the EDS resource `endpoints`, and names that resource. It
    /// is made of `objects`.
    pub(super) fn add_eds_cluster(
        &mut self,
        cluster: &DescribedCluster,
        endpoints: &str,
        set: EndpointSet,
        objects: &Objects,
    ) {
        let objects = self.interner.objects(objects);
        let resource = Resource::encode(ResourceType::Cluster, cluster.name(), cluster);
        let interned = self.interner.share(resource.warming_on(endpoints).made_of(objects));
        self.take(interned);
        self.add_endpoints(endpoints, set);
    }

    /// Adds a resource that is encoded already.
    pub(super) fn take(&mut self, interned: Interned) {
        let Interned { resource, facts } = interned;
        if !add(&mut self.part.snapshot, &resource) {
            self.part.duplicates.push(Arc::clone(&resource));
        }
        self.part.facts.push((resource, facts));
    }

    fn add_endpoints(&mut self, name: &str, set: EndpointSet) {
        let name: Arc<str> = name.into();
        self.part.snapshot.endpoints.insert(Arc::clone(&name));
        self.part.sets.insert(name, set);
    }

    /// Reports an object that cannot be translated as declared.
    pub(super) fn report(&mut self, problem: Problem) {
        self.part.problems.insert(problem);
    }

    pub(super) fn finish(self) -> Part {
        self.part
    }
}
