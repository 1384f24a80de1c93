//! The compiler: takes events and certificates, keeps the world of snapshots up to date.
//!
//! Owns what has to be recomputed when: only the classes that the catalog names, and of endpoints only
//! those of the services that it names. What fails the lint is not served, and the fault is reported: the half
//! of the snapshot that it is in stays as it was last good, and holds up neither the other half nor a new
//! certificate. A class of which a half was never good is not served anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::draft::{self, Draft, Part};
use super::endpoints::EndpointTable;
use super::intern::Interner;
use super::outbound::{self, Reach};
use super::proto::Families;
use super::settings::Settings;
use super::{inbound, names, secret};
use crate::catalog::{Catalog, Impact, SourceEvent};
use crate::ids::{ProxyName, ServiceAccountId};
use crate::lint;
use crate::pki::{ServiceCertificate, TrustBundle};
use crate::policy;
use crate::problem::Problem;
use crate::resource::{Resource, ResourceType};
use crate::world::{Changes, KnownProxy, ProxyClass, Snapshot, World};

/// Something that the world depends on.
#[derive(Debug, Clone)]
pub enum Input {
    /// What a source told.
    Source(SourceEvent),
    /// The roots that are trusted from now on.
    Bundle(TrustBundle),
    /// The certificate of an identity from now on.
    Certificate(ServiceAccountId, ServiceCertificate),
    /// The identity has no certificate from now on, since nobody needs one. If it has proxies all the same, they keep
    /// what they are served until there is another.
    NoCertificate(ServiceAccountId),
}

/// Keeps a [`World`] up to date with its inputs. Equal last inputs, in whatever order and however they are
/// grouped, give equal snapshots, endpoints and proxies.
#[derive(Debug)]
pub struct Compiler {
    settings: Settings,
    catalog: Catalog,
    bundle: Option<TrustBundle>,
    /// How many bundles there were before this one.
    bundle_number: u64,
    certificates: BTreeMap<ServiceAccountId, ServiceCertificate>,
    classes: BTreeMap<Arc<ProxyClass>, Class>,
    endpoints: EndpointTable,
    /// How many classes are served with each outbound half, by its number.
    halves: BTreeMap<u64, usize>,
    next_half: u64,
    interner: Interner,
    world: Arc<World>,
}

/// What is kept of a class.
#[derive(Debug, Default)]
struct Class {
    /// Its proxies.
    members: BTreeSet<ProxyName>,
    /// The outbound half that was last good.
    outbound: Option<Arc<OutboundHalf>>,
    /// The inbound half that was last good.
    inbound: Option<InboundHalf>,
    /// What could not be translated as declared in its inbound half.
    problems: BTreeSet<Problem>,
    /// Why the newest of what it could be served is not.
    faults: Vec<Problem>,
}

/// An inbound half of a class.
#[derive(Debug, Clone)]
struct InboundHalf {
    /// The number of the bundle in it.
    bundle: u64,
    resources: Vec<Arc<Resource>>,
}

/// An outbound half that classes share.
#[derive(Debug)]
struct OutboundHalf {
    number: u64,
    /// The number of the bundle in it.
    bundle: u64,
    part: Part,
    /// What the lint found in it.
    faults: Vec<Problem>,
}

/// The outbound halves made in one round. In permissive mode all identities reach the same, so the reach
/// is neither worked out nor compared for each of them: `None` stands for it.
type Round = BTreeMap<(Option<Reach>, Families), Arc<OutboundHalf>>;

impl Compiler {
    /// A compiler of an empty mesh.
    pub fn new(settings: Settings) -> Self {
        Self {
            catalog: Catalog::new(settings.mesh_namespace.clone()),
            settings,
            bundle: None,
            bundle_number: 0,
            certificates: BTreeMap::new(),
            classes: BTreeMap::new(),
            endpoints: EndpointTable::default(),
            halves: BTreeMap::new(),
            next_half: 0,
            interner: Interner::default(),
            world: Arc::new(World::default()),
        }
    }

    /// Takes inputs and brings the world up to date with all of them at once. Returns whether what is
    /// served changed; then the world has a new generation.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> bool {
        let mut impact = Impact::default();
        let mut certified = BTreeSet::new();
        for input in inputs {
            match input {
                Input::Source(event) => impact.merge(self.catalog.apply(event)),
                Input::Bundle(bundle) => {
                    if self.bundle.as_ref() != Some(&bundle) {
                        impact.everything = true;
                        self.bundle_number += 1;
                        self.bundle = Some(bundle);
                    }
                }
                Input::Certificate(account, certificate) => {
                    if self.certificates.get(&account) != Some(&certificate) {
                        certified.insert(account.clone());
                        self.certificates.insert(account, certificate);
                    }
                }
                Input::NoCertificate(account) => {
                    self.certificates.remove(&account);
                }
            }
        }
        (!impact.is_empty() || !certified.is_empty()) && self.recompute(&impact, &certified)
    }

    /// What is served now.
    pub fn world(&self) -> Arc<World> {
        Arc::clone(&self.world)
    }

    /// Whether everybody is served this bundle. Not so where what a class is served is not the newest, because that has
    /// faults. Looks at every class.
    pub fn serves(&self, bundle: &TrustBundle) -> bool {
        let newest = |class: &Class| {
            let outbound = class.outbound.as_ref().map_or(self.bundle_number, |half| half.bundle);
            let inbound = class.inbound.as_ref().map_or(self.bundle_number, |half| half.bundle);
            outbound == self.bundle_number && inbound == self.bundle_number
        };
        self.bundle.as_ref() == Some(bundle) && self.classes.values().all(newest)
    }

    /// The mesh as it was declared.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// All that is wrong with the declared mesh, sorted.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: BTreeSet<Problem> = self.catalog.problems().into_iter().collect();
        for class in self.classes.values() {
            problems.extend(class.problems.iter().chain(&class.faults).cloned());
        }
        problems.into_iter().collect()
    }

    /// Brings the world up to date. `certified` have a new certificate, which their outbound halves do not
    /// depend on.
    fn recompute(&mut self, impact: &Impact, certified: &BTreeSet<ServiceAccountId>) -> bool {
        // The reader of an old world keeps it: cloning shares everything.
        let mut world = World::clone(&self.world);
        let mut changes = Changes::default();
        let mut touched = self.place_proxies(impact, &mut world, &mut changes);
        if impact.everything {
            touched.extend(self.classes.keys().cloned());
        }
        touched.extend(self.classes_of(&impact.accounts));
        // A class that was never compiled has no outbound half to keep, one that failed has an old one.
        let (kept, fresh): (Vec<_>, Vec<_>) =
            self.classes_of(certified).into_iter().filter(|class| !touched.contains(class)).partition(
                |class| {
                    self.classes
                        .get(class)
                        .is_some_and(|state| state.outbound.is_some() && state.faults.is_empty())
                },
            );
        touched.extend(fresh);
        let keeping = kept.into_iter().map(|class| (class, true));
        let mut round = Round::new();
        for (class, keep) in touched.into_iter().map(|class| (class, false)).chain(keeping) {
            let Some(snapshot) = self.compile(&class, &mut round, keep) else { continue };
            let Some(before) = world.snapshots.get(&class) else {
                changes.whole.insert(Arc::clone(&class));
                world.snapshots.insert(class, Arc::new(snapshot));
                continue;
            };
            let names = differences(before, &snapshot);
            if !names.is_empty() {
                world.snapshots.insert(Arc::clone(&class), Arc::new(snapshot));
                changes.classes.insert(class, names);
            }
        }
        if impact.everything {
            self.endpoints.touch_all();
        }
        impact.endpoints.iter().for_each(|service| self.endpoints.touch(service));
        changes.endpoints = self.endpoints.refresh(&self.catalog, &mut world);
        self.interner.sweep();
        if changes.is_empty() {
            return false;
        }
        world.record(changes);
        self.world = Arc::new(world);
        true
    }

    /// The classes of these identities that have proxies.
    fn classes_of(&self, accounts: &BTreeSet<ServiceAccountId>) -> Vec<Arc<ProxyClass>> {
        let classes = accounts.iter().flat_map(|account| self.catalog.classes(account));
        classes.filter(|class| self.classes.contains_key(*class)).cloned().collect()
    }

    /// Puts the touched proxies into their classes; returns the classes that are new, and drops those that
    /// lost their last proxy.
    fn place_proxies(
        &mut self,
        impact: &Impact,
        world: &mut World,
        changes: &mut Changes,
    ) -> BTreeSet<Arc<ProxyClass>> {
        let mut fresh = BTreeSet::new();
        let mut left = BTreeSet::new();
        for proxy in &impact.proxies {
            let now = self.known(proxy);
            let before = world.proxies.get(proxy).cloned();
            if now == before {
                continue;
            }
            changes.proxies.insert(proxy.clone());
            if let Some(before) = before {
                if let Some(class) = self.classes.get_mut(&before.class) {
                    class.members.remove(proxy);
                }
                left.insert(before.class);
            }
            match now {
                Some(now) => {
                    let class = self.classes.entry(Arc::clone(&now.class)).or_insert_with(|| {
                        fresh.insert(Arc::clone(&now.class));
                        Class::default()
                    });
                    class.members.insert(proxy.clone());
                    world.proxies.insert(proxy.clone(), now);
                }
                None => {
                    world.proxies.remove(proxy);
                }
            }
        }
        for class in left {
            if self.classes.get(&class).is_some_and(|class| class.members.is_empty()) {
                fresh.remove(&class);
                let gone = self.classes.remove(&class);
                self.release(gone.and_then(|gone| gone.outbound));
                if world.snapshots.remove(&class).is_some() {
                    changes.whole.insert(class);
                }
            }
        }
        fresh
    }

    /// The proxy as the catalog knows it now.
    fn known(&self, proxy: &ProxyName) -> Option<KnownProxy> {
        let workload = self.catalog.workload_by_proxy(proxy)?;
        let class = self.catalog.class(&workload.id)?;
        Some(KnownProxy { workload: workload.id.clone(), class: Arc::clone(class) })
    }

    /// Makes the snapshot of a class anew, from the newest halves that pass the lint. `None` if it cannot be made:
    /// then what is served stays. With `keep`, the outbound half is as it was.
    fn compile(&mut self, class: &Arc<ProxyClass>, round: &mut Round, keep: bool) -> Option<Snapshot> {
        let certificate = self.certificate(class)?;
        let kept = self.classes.get(class).and_then(|state| state.outbound.clone()).filter(|_| keep);
        let outbound = match kept {
            Some(half) => half,
            None => self.outbound_half(class, round)?,
        };
        let inbound = self.inbound_half(class)?;

        let (certificate_faults, inbound_faults) = (certificate.lint(class), inbound.lint(class));
        let state = self.classes.get_mut(class)?;
        state.faults = [&*certificate_faults, &*outbound.faults, &*inbound_faults].concat();
        let newest =
            InboundHalf { bundle: self.bundle_number, resources: inbound.resources().cloned().collect() };
        state.problems = inbound.problems;
        if !certificate_faults.is_empty() {
            return None;
        }
        let outbound = if outbound.faults.is_empty() { outbound } else { state.outbound.clone()? };
        let inbound = if inbound_faults.is_empty() { newest } else { state.inbound.clone()? };

        let mut snapshot = outbound.part.snapshot.clone();
        let clash =
            certificate.resources().chain(&inbound.resources).find(|&one| !draft::add(&mut snapshot, one));
        if let Some(clash) = clash {
            state.faults.push(lint::duplicate(class, clash));
            return None;
        }
        state.inbound = Some(inbound);
        let old = state.outbound.replace(Arc::clone(&outbound));
        // Acquired before the old half is released, so that what both name is not encoded anew.
        self.acquire(&outbound);
        self.release(old);
        Some(snapshot)
    }

    /// The certificate of a class, which both halves refer to.
    fn certificate(&mut self, class: &ProxyClass) -> Option<Part> {
        let message = secret::service_certificate(self.certificates.get(&class.account)?);
        let mut draft = Draft::new(&mut self.interner);
        draft.add_unshared(ResourceType::Secret, names::SERVICE_CERTIFICATE, &message);
        Some(draft.finish())
    }

    /// The outbound half of a class, made once in a round for all that reach the same.
    fn outbound_half(&mut self, class: &ProxyClass, round: &mut Round) -> Option<Arc<OutboundHalf>> {
        let bundle = self.bundle.as_ref()?;
        let families = Families::new(class.ipv4, class.ipv6);
        let reach = || policy::outbound_services(&self.catalog, &class.account);
        let key = ((!self.catalog.mesh_config().permissive).then(reach), families);
        if let Some(half) = round.get(&key) {
            return Some(Arc::clone(half));
        }
        let everyones = if key.0.is_none() { reach() } else { Reach::new() };
        let reach = key.0.as_ref().unwrap_or(&everyones);
        let part =
            outbound::translate(&self.catalog, &self.settings, bundle, reach, families, &mut self.interner);
        let faults = part.lint(class);
        let half =
            Arc::new(OutboundHalf { number: self.next_half, bundle: self.bundle_number, part, faults });
        self.next_half += 1;
        round.insert(key, Arc::clone(&half));
        Some(half)
    }

    fn inbound_half(&mut self, class: &ProxyClass) -> Option<Part> {
        let bundle = self.bundle.as_ref()?;
        Some(inbound::translate(&self.catalog, &self.settings, bundle, class, &mut self.interner))
    }

    fn acquire(&mut self, half: &OutboundHalf) {
        let users = self.halves.entry(half.number).or_insert(0);
        *users += 1;
        if *users == 1 {
            self.endpoints.acquire(&half.part.sets);
        }
    }

    fn release(&mut self, half: Option<Arc<OutboundHalf>>) {
        let Some(half) = half else { return };
        let Some(users) = self.halves.get_mut(&half.number) else { return };
        *users -= 1;
        if *users == 0 {
            self.halves.remove(&half.number);
            self.endpoints.release(&half.part.sets);
        }
    }
}

/// The names of what differs between two snapshots.
fn differences(before: &Snapshot, after: &Snapshot) -> BTreeSet<(ResourceType, Arc<str>)> {
    use imbl::ordmap::DiffItem;
    let tables = [
        (ResourceType::Secret, &before.secrets, &after.secrets),
        (ResourceType::Cluster, &before.clusters, &after.clusters),
        (ResourceType::Listener, &before.listeners, &after.listeners),
        (ResourceType::Route, &before.routes, &after.routes),
    ];
    let mut names = BTreeSet::new();
    for (kind, before, after) in tables {
        for item in before.diff(after) {
            match item {
                DiffItem::Add(name, _) | DiffItem::Remove(name, _) => {
                    names.insert((kind, Arc::clone(name)));
                }
                DiffItem::Update { old, new } => {
                    if old.1.version != new.1.version {
                        names.insert((kind, Arc::clone(new.0)));
                    }
                }
            }
        }
    }
    for item in before.endpoints.diff(&after.endpoints) {
        match item {
            imbl::ordset::DiffItem::Add(name) | imbl::ordset::DiffItem::Remove(name) => {
                names.insert((ResourceType::Endpoint, Arc::clone(name)));
            }
        }
    }
    names
}

#[cfg(test)]
#[path = "compiler_tests.rs"]
mod tests;
