//! The compiler: keeps the [`ServedState`] up to date with source events and certificates.
//!
//! Owns what is recomputed: the classes of the accounts that the catalog names as affected, and the
//! endpoints of the services that it names. A half of a snapshot that fails the lint is not served,
//! and its faults are reported. The last good half stays in its place, and delays neither the other
//! half nor a new certificate. A class that never had two good halves is served nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::allotment::Allotments;
use super::differences::Differences;
use super::draft::{self, Draft, Part};
use super::endpoint::EndpointSet;
use super::endpoints::EndpointTable;
use super::intern::{Interned, Interner};
use super::proto::Families;
use super::settings::Settings;
use super::{inbound, outbound, secret};
use crate::catalog::{Affected, Catalog, OutboundIntents, SourceEvent};
use crate::lint;
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_model::outbound_intent::OutboundIntent;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::problem::Problem;
use smc_types::proxy_class::ProxyClass;
use smc_xds::resource::{Resource, ResourceType};
use smc_xds::revision::Revision;
use smc_xds::served_state::{ChangedNames, Changes, KnownProxy, ServedState, Snapshot};

/// An input of the compiler.
#[derive(Debug, Clone)]
pub enum Input {
    /// An event of a source.
    Source(SourceEvent),
    /// The trusted roots, from now on.
    Bundle(TrustBundle),
    /// The certificate of an identity from now on.
    Certificate(ServiceAccountId, ServiceCertificate),
    /// The identity has no certificate from now on, because it has no workloads. If it has proxies
    /// all the same, they keep their configuration until there is another certificate.
    NoCertificate(ServiceAccountId),
    /// The source has come this far with its events before this one and with it. Changes nothing by itself.
    Revision(Arc<Revision>),
}

/// Keeps a [`ServedState`] up to date with its inputs. Equal last inputs give equal snapshots,
/// endpoints and proxies, whatever their order and grouping.
#[derive(Debug)]
pub struct Compiler {
    settings: Settings,
    catalog: Catalog,
    bundle: Option<TrustBundle>,
    /// How many bundles there were before this one.
    bundle_number: u64,
    /// The encoded certificate of each identity. The interner does not keep it, so that a key is gone once
    /// it is served no more.
    certificates: BTreeMap<ServiceAccountId, Interned>,
    classes: BTreeMap<Arc<ProxyClass>, Class>,
    endpoints: EndpointTable,
    /// How much policy each class may be served.
    allotments: Allotments,
    /// How many classes are served with each outbound half, by its number.
    halves: BTreeMap<u64, usize>,
    next_half: u64,
    interner: Interner,
    served: Arc<ServedState>,
}

/// The state of a class.
#[derive(Debug, Default)]
struct Class {
    /// The number of its proxies.
    members: usize,
    /// The last good outbound half.
    outbound: Option<Arc<OutboundHalf>>,
    /// The last good inbound half.
    inbound: Option<InboundHalf>,
    /// The problems of declared objects that the translation of the inbound half found.
    problems: BTreeSet<Problem>,
    /// The faults that keep the newest snapshot from being served.
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
    snapshot: Snapshot,
    /// The endpoints that its EDS names stand for.
    sets: Box<[(Arc<str>, EndpointSet)]>,
    /// The faults that the lint found.
    faults: Vec<Problem>,
}

/// The outbound halves made in one round, in which the bundle and the topology stay as they are, by all else
/// that they are made of.
#[derive(Debug, Default)]
struct Round {
    intents: OutboundIntents,
    halves: BTreeMap<(OutboundIntent, Families), Arc<OutboundHalf>>,
    /// What differs between two of them, by their numbers: classes that share them share this as well.
    differences: BTreeMap<(u64, u64), Differences>,
}

/// What a class is served from now on.
struct Compiled {
    snapshot: Snapshot,
    /// The resources that are the class's own, now and before.
    own: BTreeSet<(ResourceType, Arc<str>)>,
    /// The outbound halves, before and now.
    replaced: Option<Arc<OutboundHalf>>,
    outbound: Arc<OutboundHalf>,
}

impl Compiler {
    /// A compiler of an empty mesh.
    pub fn new(settings: Settings) -> Self {
        Self {
            catalog: Catalog::new(settings.mesh_namespace.clone(), settings.trust_domain.clone()),
            settings,
            bundle: None,
            bundle_number: 0,
            certificates: BTreeMap::new(),
            classes: BTreeMap::new(),
            endpoints: EndpointTable::default(),
            allotments: Allotments::default(),
            halves: BTreeMap::new(),
            next_half: 0,
            interner: Interner::default(),
            served: Arc::new(ServedState::default()),
        }
    }

    /// Applies all inputs at once. Returns whether the served state changed; if so, it has a new generation.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> bool {
        let mut affected = Affected::default();
        let mut certified = BTreeSet::new();
        for input in inputs {
            match input {
                Input::Source(event) => self.catalog.change(event),
                Input::Bundle(bundle) => {
                    if self.bundle.as_ref() != Some(&bundle) {
                        affected.everything = true;
                        self.bundle_number += 1;
                        self.bundle = Some(bundle);
                    }
                }
                Input::Certificate(account, certificate) => {
                    let new = Interned::of(secret::service_certificate(&certificate));
                    let version = |held: &Interned| held.resource.version;
                    if self.certificates.get(&account).map(version) != Some(version(&new)) {
                        certified.insert(account.clone());
                        self.certificates.insert(account, new);
                    }
                }
                Input::NoCertificate(account) => {
                    self.certificates.remove(&account);
                }
                // Streams keep the old state. The clone shares everything with it.
                Input::Revision(revision) => {
                    Arc::make_mut(&mut self.served).revision = Some(revision);
                }
            }
        }
        affected.merge(self.catalog.settle());
        (!affected.is_empty() || !certified.is_empty()) && self.recompute(&affected, &certified)
    }

    /// The present served state.
    pub fn served_state(&self) -> Arc<ServedState> {
        Arc::clone(&self.served)
    }

    /// Whether all proxies are served this bundle. A class whose newest snapshot has faults is
    /// served an older one. Looks at every class.
    pub fn serves(&self, bundle: &TrustBundle) -> bool {
        let newest = |class: &Class| {
            let outbound = class.outbound.as_ref().map_or(self.bundle_number, |half| half.bundle);
            let inbound = class.inbound.as_ref().map_or(self.bundle_number, |half| half.bundle);
            outbound == self.bundle_number && inbound == self.bundle_number
        };
        self.bundle.as_ref() == Some(bundle) && self.classes.values().all(newest)
    }

    /// The declared mesh.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Looks for the problems of what has changed, so that the next [`Self::problems`] costs no search.
    pub fn recheck(&mut self) {
        self.catalog.recheck();
    }

    /// All problems of the declared mesh, sorted.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: BTreeSet<Problem> = self.catalog.problems().into_iter().collect();
        for class in self.classes.values() {
            problems.extend(class.problems.iter().chain(&class.faults).cloned());
        }
        problems.into_iter().collect()
    }

    /// Brings the served state up to date. The accounts in `certified` have a new certificate;
    /// outbound halves do not depend on it.
    fn recompute(&mut self, affected: &Affected, certified: &BTreeSet<ServiceAccountId>) -> bool {
        // Streams keep the old state. The clone shares everything with it.
        let mut served = ServedState::clone(&self.served);
        let mut changes = Changes::default();
        let mut classes = self.place_proxies(affected, &mut served, &mut changes);
        if affected.everything {
            classes.extend(self.classes.keys().cloned());
        }
        classes.extend(self.classes_of(&affected.accounts));
        let reached: BTreeSet<_> = self.classes_of(&affected.inbound).into_iter().collect();
        let mut inbound: BTreeSet<_> = self.classes_of(certified).into_iter().collect();
        inbound.extend(self.allot(classes.union(&reached)));
        inbound.extend(reached);
        // The outbound half is kept, unless the class was never compiled or has faults.
        let (kept, fresh): (Vec<_>, Vec<_>) =
            inbound.into_iter().filter(|class| !classes.contains(class)).partition(|class| {
                let state = self.classes.get(class);
                state.is_some_and(|state| state.outbound.is_some() && state.faults.is_empty())
            });
        classes.extend(fresh);
        let keeping = kept.into_iter().map(|class| (class, true));
        let mut round = Round::default();
        for (class, keep) in classes.into_iter().map(|class| (class, false)).chain(keeping) {
            let Some(compiled) = self.compile(&class, &mut round, keep) else { continue };
            let Some(before) = served.snapshots.get(&class) else {
                changes.whole.insert(Arc::clone(&class));
                served.snapshots.insert(class, Arc::new(compiled.snapshot));
                continue;
            };
            let Compiled { snapshot, own, replaced, outbound } = compiled;
            let numbers = (replaced.as_ref().map_or(u64::MAX, |half| half.number), outbound.number);
            let shared = round.differences.entry(numbers).or_insert_with(|| {
                let before = replaced.map(|half| half.snapshot.clone()).unwrap_or_default();
                Differences::between(&before, &outbound.snapshot, &mut self.interner)
            });
            let own = Differences::of(own, before, &snapshot, &mut self.interner);
            if !shared.is_empty() || !own.is_empty() {
                served.snapshots.insert(Arc::clone(&class), Arc::new(snapshot));
                changes
                    .classes
                    .insert(class, ChangedNames { shared: Arc::clone(&shared.names), own: own.names });
            }
        }
        if affected.everything {
            self.endpoints.mark_all();
        }
        affected.endpoints.iter().for_each(|service| self.endpoints.mark(service));
        changes.endpoints = self.endpoints.refresh(self.catalog.topology(), &mut served, &mut self.interner);
        let changed = !changes.is_empty();
        if changed {
            served.record(changes);
            self.served = Arc::new(served);
        }
        // Once nothing here refers to the old state.
        self.interner.sweep();
        changed
    }

    /// Sets the demands of classes that may have others than before. Returns the classes whose share differs.
    fn allot<'a>(&mut self, classes: impl Iterator<Item = &'a Arc<ProxyClass>>) -> Vec<Arc<ProxyClass>> {
        for class in classes {
            self.allotments.set(class, Some(self.catalog.inbound_estimate(class).demand()));
        }
        self.allotments.settle()
    }

    /// The classes of these identities that have proxies.
    fn classes_of(&self, accounts: &BTreeSet<ServiceAccountId>) -> Vec<Arc<ProxyClass>> {
        let classes = accounts.iter().flat_map(|account| self.catalog.classes(account));
        classes.filter(|class| self.classes.contains_key(*class)).cloned().collect()
    }

    /// Puts the affected proxies into their classes. Returns the new classes, and drops those that
    /// lost their last proxy.
    fn place_proxies(
        &mut self,
        affected: &Affected,
        served: &mut ServedState,
        changes: &mut Changes,
    ) -> BTreeSet<Arc<ProxyClass>> {
        let mut fresh = BTreeSet::new();
        let mut left = BTreeSet::new();
        for proxy in &affected.proxies {
            let now = self.known(proxy);
            let before = served.proxies.get(proxy).cloned();
            if now == before {
                continue;
            }
            changes.proxies.insert(proxy.clone());
            if let Some(before) = before {
                if let Some(class) = self.classes.get_mut(&before.class) {
                    class.members -= 1;
                }
                left.insert(before.class);
            }
            match now {
                Some(now) => {
                    let class = self.classes.entry(Arc::clone(&now.class)).or_insert_with(|| {
                        fresh.insert(Arc::clone(&now.class));
                        Class::default()
                    });
                    class.members += 1;
                    served.proxies.insert(proxy.clone(), now);
                }
                None => {
                    served.proxies.remove(proxy);
                }
            }
        }
        for class in left {
            if self.classes.get(&class).is_some_and(|class| class.members == 0) {
                fresh.remove(&class);
                let gone = self.classes.remove(&class).unwrap_or_default();
                let own = gone.inbound.iter().flat_map(|half| &half.resources);
                own.for_each(|resource| self.interner.released(resource));
                if let Some(unused) = self.release(gone.outbound) {
                    unused.snapshot.resources().for_each(|resource| self.interner.released(resource));
                }
                self.allotments.set(&class, None);
                if served.snapshots.remove(&class).is_some() {
                    changes.whole.insert(class);
                }
            }
        }
        fresh
    }

    /// The proxy, if the catalog has it in the mesh.
    fn known(&self, proxy: &ProxyName) -> Option<KnownProxy> {
        let workload = self.catalog.workload_by_proxy(proxy)?;
        let class = self.catalog.class(&workload.id)?;
        Some(KnownProxy { workload: workload.id.clone(), class: Arc::clone(class) })
    }

    /// Makes the snapshot of a class from the newest halves that pass the lint. `None` if it cannot
    /// be made; then the old snapshot stays. With `keep`, the outbound half is not made again.
    fn compile(&mut self, class: &Arc<ProxyClass>, round: &mut Round, keep: bool) -> Option<Compiled> {
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

        let mut snapshot = outbound.snapshot.clone();
        let clash =
            certificate.resources().chain(&inbound.resources).find(|&one| !draft::add(&mut snapshot, one));
        if let Some(clash) = clash {
            state.faults.push(lint::duplicate(class, clash));
            return None;
        }
        let key = |resource: &Arc<Resource>| (resource.kind, Arc::clone(&resource.name));
        let replaced = state.inbound.replace(inbound);
        let inbound = state.inbound.iter().chain(&replaced).flat_map(|half| &half.resources);
        let own = inbound.chain(certificate.resources()).map(key).collect();
        let replaced = state.outbound.replace(Arc::clone(&outbound));
        // Acquired before the old half is released, so that endpoints of both are not encoded again.
        self.acquire(&outbound);
        self.release(replaced.clone());
        Some(Compiled { snapshot, own, replaced, outbound })
    }

    /// The certificate of a class, to which both halves refer.
    fn certificate(&mut self, class: &ProxyClass) -> Option<Part> {
        let certificate = self.certificates.get(&class.account)?.clone();
        let mut draft = Draft::new(&mut self.interner);
        draft.take(certificate);
        Some(draft.finish())
    }

    /// The outbound half of a class, made once in a round for all classes of equal intents.
    fn outbound_half(&mut self, class: &ProxyClass, round: &mut Round) -> Option<Arc<OutboundHalf>> {
        let bundle = self.bundle.as_ref()?;
        let intent = round.intents.of(&self.catalog, class);
        let key = (intent, Families::new(class.ipv4, class.ipv6));
        if let Some(half) = round.halves.get(&key) {
            return Some(Arc::clone(half));
        }
        let (intent, families) = &key;
        let topology = self.catalog.topology();
        let part =
            outbound::translate(intent, topology, &self.settings, bundle, *families, &mut self.interner);
        let faults = part.lint(class);
        let Part { snapshot, sets, .. } = part;
        let (number, bundle, sets) = (self.next_half, self.bundle_number, sets.into_iter().collect());
        let half = Arc::new(OutboundHalf { number, bundle, snapshot, sets, faults });
        self.next_half += 1;
        round.halves.insert(key, Arc::clone(&half));
        Some(half)
    }

    fn inbound_half(&mut self, class: &ProxyClass) -> Option<Part> {
        let bundle = self.bundle.as_ref()?;
        let share = self.allotments.share(class);
        let intent = self.catalog.inbound_intent(class, share);
        Some(inbound::translate(&intent, &self.settings, bundle, class, share, &mut self.interner))
    }

    fn acquire(&mut self, half: &OutboundHalf) {
        let users = self.halves.entry(half.number).or_insert(0);
        *users += 1;
        if *users == 1 {
            self.endpoints.acquire(&half.sets);
        }
    }

    /// Returns the half if no other class is served with it.
    fn release(&mut self, half: Option<Arc<OutboundHalf>>) -> Option<Arc<OutboundHalf>> {
        let half = half?;
        let users = self.halves.get_mut(&half.number)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.halves.remove(&half.number);
        self.endpoints.release(&half.sets);
        Some(half)
    }
}

#[cfg(test)]
mod sizes;
#[cfg(test)]
mod tests;
