//! Which objects are held where there are more than there is room for: the largest namespace pays.
//!
//! Owns the bound on all objects of the mesh, and the rule by which objects have no effect beyond it. Pure.
//!
//! The rule is max-min fair share, twice: over the namespaces, and in a namespace over the kinds. As long as
//! there is too much, the namespace that holds the most gives up an object: of the kind that holds the most
//! there, the heaviest, and of equally heavy ones the last by name. So a namespace that has no more than its
//! fair share gives up nothing, and what is held follows from the objects alone, whatever order they come in:
//!
//! - An object's place is by weight and name in its kind and namespace. Its level in the namespace is what it
//!   and all before it of its kind weigh. Its level in the mesh is what it and all of a lower level in its
//!   namespace weigh. In the order of their levels, objects are held up to the first one that does not fit.
//!
//! Of an object that is not held, its name and weight are remembered, of so many in each kind and namespace.
//! The caller has the content of those that are held: it drops what is given up, and reads again what is
//! taken in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_types::ids::{MeshNamespace, NamespacedName};
use smc_types::object_ref::{Kind, ObjectRef};

/// What an object weighs: KiB of memory, at least one.
pub(super) type Weight = u32;

/// Where an object stands in its kind and namespace.
type Place = (Weight, NamespacedName);

/// Objects of a kind and namespace that are remembered and not held, some 100 bytes each. Of what stands
/// behind them nothing is known: when they are used up, the namespace has to be read again.
const MAX_OUT: usize = 4096;

/// What is held, and what is not.
#[derive(Debug)]
pub(super) struct Share {
    limit: u64,
    max_out: usize,
    /// The control plane's namespace, which gives up nothing.
    own: Box<str>,
    /// What all objects weigh that are held.
    total: u64,
    members: BTreeMap<Arc<str>, Member>,
    /// The namespaces that can give something up, by what they hold. The last one is the next to do so.
    most: BTreeSet<(u64, Arc<str>)>,
    /// The namespaces with objects that are not held, by the level of the first. The first one is the next to
    /// have it.
    next: BTreeSet<(u64, Arc<str>)>,
    /// The namespace whose next object may be held, and is not known.
    unknown: Option<Arc<str>>,
    /// The namespaces in which an unknown object may come before one that is held.
    blind: BTreeSet<Arc<str>>,
}

/// What is known of a namespace.
#[derive(Debug, Default)]
struct Member {
    /// What the Namespace itself weighs. It is never given up: with it, its policy would go.
    itself: Weight,
    held: u64,
    groups: BTreeMap<Kind, Group>,
}

/// The objects of one kind in a namespace.
#[derive(Debug, Default)]
struct Group {
    weights: BTreeMap<NamespacedName, Weight>,
    held: BTreeSet<Place>,
    /// What those weigh.
    weight: u64,
    /// They stand behind those that are held.
    out: BTreeSet<Place>,
    /// The first of those that are not remembered, which stand behind all others.
    forgotten: Option<Place>,
    /// Whether that one changed or is gone, so that another is the first.
    stale: bool,
}

/// What a change means for objects, beside the one that it is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// They are not held any more.
    pub(super) given_up: BTreeSet<ObjectRef>,
    /// They are held from now on, and their content is not here.
    pub(super) taken_in: BTreeSet<ObjectRef>,
}

/// A namespace with objects that are not held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shortage<'a> {
    pub(super) namespace: &'a str,
    /// What its objects weigh that are held.
    pub(super) held: u64,
    /// How many they are.
    pub(super) count: usize,
    /// Of each kind, how many are not held at least.
    pub(super) out: Vec<(Kind, usize)>,
}

impl Share {
    /// Nothing is held yet, and up to `limit` may be. The objects of the namespace `own` are never given up.
    pub(super) fn new(limit: u64, own: &MeshNamespace) -> Self {
        Self {
            limit,
            max_out: MAX_OUT,
            own: own.as_str().into(),
            total: 0,
            members: BTreeMap::new(),
            most: BTreeSet::new(),
            next: BTreeSet::new(),
            unknown: None,
            blind: BTreeSet::new(),
        }
    }

    /// Takes note that an object is there, and what it weighs.
    pub(super) fn set(&mut self, reference: &ObjectRef, weight: Weight) -> Moves {
        match reference {
            ObjectRef::Namespace(name) => self.change(name, |member| member.itself = weight),
            ObjectRef::Namespaced(kind, name) => self.change(name.namespace(), |member| {
                member.groups.entry(*kind).or_default().set(name, weight);
            }),
        }
        self.settle(reference.namespace())
    }

    /// Takes note that an object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) -> Moves {
        match reference {
            ObjectRef::Namespace(name) => self.change(name, |member| member.itself = 0),
            ObjectRef::Namespaced(kind, name) => self.change(name.namespace(), |member| {
                if let Some(group) = member.groups.get_mut(kind) {
                    group.take(name);
                }
            }),
        }
        self.settle(reference.namespace())
    }

    /// Forgets all objects of a namespace.
    pub(super) fn forget(&mut self, namespace: &str) -> Moves {
        self.change(namespace, |member| member.groups.clear());
        self.settle(namespace)
    }

    /// A list of a kind begins, of all namespaces or of one: it names what is not remembered, too.
    pub(super) fn begin(&mut self, kind: Kind, namespace: Option<&str>) {
        let listed: Vec<Arc<str>> = match namespace {
            Some(namespace) => vec![namespace.into()],
            None => self.members.keys().cloned().collect(),
        };
        for namespace in listed {
            self.change(&namespace, |member| {
                if let Some(group) = member.groups.get_mut(&kind) {
                    (group.forgotten, group.stale) = (None, false);
                }
            });
        }
    }

    /// A list has ended: what it did not name is not there. No change says so of what was not remembered.
    pub(super) fn end(&mut self) -> Moves {
        self.settle_all(Moves::default())
    }

    /// Whether an object is held.
    pub(super) fn holds(&self, reference: &ObjectRef) -> bool {
        let ObjectRef::Namespaced(kind, name) = reference else { return true };
        let group = self.members.get(name.namespace()).and_then(|member| member.groups.get(kind));
        group.is_some_and(|group| group.holds(name))
    }

    /// Whether an object is remembered, held or not.
    pub(super) fn remembers(&self, kind: Kind, name: &NamespacedName) -> bool {
        let group = self.members.get(name.namespace()).and_then(|member| member.groups.get(&kind));
        group.is_some_and(|group| group.weights.contains_key(name))
    }

    /// The objects of a kind that are remembered and not held.
    pub(super) fn out(&self, kind: Kind) -> impl Iterator<Item = &NamespacedName> {
        let groups = self.members.values().filter_map(move |member| member.groups.get(&kind));
        groups.flat_map(|group| group.out.iter().map(|(_, name)| name))
    }

    /// The namespace that has to be read again to know what is held next, if there is one.
    pub(super) fn unknown(&self) -> Option<&Arc<str>> {
        self.unknown.as_ref().or(self.blind.first())
    }

    /// The namespaces with objects that are not held.
    pub(super) fn shortages(&self) -> impl Iterator<Item = Shortage<'_>> {
        self.members.iter().filter_map(|(namespace, member)| {
            let out = |group: &Group| group.out.len() + usize::from(group.forgotten.is_some());
            let out = member.groups.iter().map(|(kind, group)| (*kind, out(group)));
            let out: Vec<_> = out.filter(|(_, count)| *count > 0).collect();
            let count = member.groups.values().map(|group| group.held.len()).sum();
            (!out.is_empty()).then_some(Shortage { namespace, held: member.held, count, out })
        })
    }

    /// From now on there is room for no more than what is held.
    #[cfg(test)]
    pub(super) fn close(&mut self) {
        self.limit = self.total;
    }

    /// Makes the rule hold again after a change of a namespace.
    fn settle(&mut self, changed: &str) -> Moves {
        let mut moves = Moves::default();
        while self.members.get(changed).is_some_and(Member::is_unfair) {
            let given_up = self.change(changed, Member::give_up);
            moves.give_up(given_up);
        }
        self.settle_all(moves)
    }

    /// Makes the rule hold between namespaces, each of which is fair and stays it.
    fn settle_all(&mut self, mut moves: Moves) -> Moves {
        loop {
            let largest = self.most.last().cloned();
            if let Some((_, largest)) = &largest
                && self.total > self.limit
            {
                let given_up = self.change(largest, Member::give_up);
                moves.give_up(given_up);
                continue;
            }
            let Some((level, next)) = self.next.first().cloned() else { break };
            let Some(member) = self.members.get(&next) else { break };
            let fits = self.total.saturating_add(level - member.held) <= self.limit;
            let comes_before =
                largest.as_ref().is_some_and(|largest| (level, &next) < (largest.0, &largest.1));
            if !fits && !comes_before {
                break;
            }
            if member.next().is_some_and(|next| next.place.is_none()) {
                self.unknown = Some(next);
                return moves;
            }
            if fits {
                let taken_in = self.change(&next, Member::take_in);
                moves.take_in(taken_in);
            } else if let Some((_, largest)) = largest {
                let given_up = self.change(&largest, Member::give_up);
                moves.give_up(given_up);
            }
        }
        self.unknown = None;
        moves
    }

    /// Changes what is known of a namespace.
    fn change<T>(&mut self, namespace: &str, change: impl FnOnce(&mut Member) -> T) -> T {
        let known = self.members.remove_entry(namespace);
        let (name, mut member) = known.unwrap_or_else(|| (namespace.into(), Member::default()));
        if member.largest().is_some() {
            self.most.remove(&(member.held, Arc::clone(&name)));
        }
        if let Some(next) = member.next() {
            self.next.remove(&(next.level, Arc::clone(&name)));
        }
        self.blind.remove(&name);
        self.total -= member.held;
        let changed = change(&mut member);
        member.count(self.max_out);
        self.total += member.held;
        if *name != *self.own && member.largest().is_some() {
            self.most.insert((member.held, Arc::clone(&name)));
        }
        if let Some(next) = member.next() {
            self.next.insert((next.level, Arc::clone(&name)));
        }
        if *name != *self.own && member.is_blind() {
            self.blind.insert(Arc::clone(&name));
        }
        if member.itself > 0 || !member.groups.is_empty() {
            self.members.insert(name, member);
        }
        changed
    }
}

impl Moves {
    fn give_up(&mut self, reference: Option<ObjectRef>) {
        let Some(reference) = reference else { return };
        if !self.taken_in.remove(&reference) {
            self.given_up.insert(reference);
        }
    }

    fn take_in(&mut self, reference: Option<ObjectRef>) {
        let Some(reference) = reference else { return };
        if !self.given_up.remove(&reference) {
            self.taken_in.insert(reference);
        }
    }
}

/// The first object of a namespace that is not held.
struct Next<'a> {
    kind: Kind,
    /// Its level in the namespace.
    within: u64,
    /// Its level in the mesh.
    level: u64,
    /// `None` if it is not known; its level is not lower than this.
    place: Option<&'a Place>,
}

impl Member {
    /// Counts after a change, and forgets what is too much to be remembered.
    fn count(&mut self, max_out: usize) {
        for group in self.groups.values_mut() {
            group.trim(max_out);
        }
        self.groups.retain(|_, group| !group.is_empty());
        self.held = u64::from(self.itself) + self.groups.values().map(|group| group.weight).sum::<u64>();
    }

    /// The kind that holds the most.
    fn largest(&self) -> Option<(u64, Kind)> {
        let groups = self.groups.iter().filter(|(_, group)| !group.held.is_empty());
        groups.map(|(kind, group)| (group.weight, *kind)).max()
    }

    fn next(&self) -> Option<Next<'_>> {
        let firsts = self.groups.iter().filter_map(|(kind, group)| {
            let place = group.out.first();
            let first = place.or(group.forgotten.as_ref())?;
            Some((group.weight + u64::from(first.0), *kind, first.0, place))
        });
        let (within, kind, weight, place) = firsts.min_by_key(|(level, kind, ..)| (*level, *kind))?;
        Some(Next { kind, within, level: self.held + u64::from(weight), place })
    }

    /// Whether an object that is known and not held comes before one that is held. To give up the last object
    /// of a fair namespace, or to take in its first, keeps it fair.
    fn is_unfair(&self) -> bool {
        let known = self.groups.iter().filter_map(|(kind, group)| {
            let first = group.out.first()?;
            Some((group.weight + u64::from(first.0), *kind))
        });
        known.min().zip(self.largest()).is_some_and(|(next, largest)| next < largest)
    }

    /// Whether an object that is not known may come before one that is held, or before one that is next.
    fn is_blind(&self) -> bool {
        let may_come_first = |next: Next<'_>| {
            let largest = self.largest();
            next.place.is_none() && largest.is_some_and(|largest| (next.within, next.kind) < largest)
        };
        self.groups.values().any(|group| group.stale) || self.next().is_some_and(may_come_first)
    }

    /// Gives up the last object of the kind that holds the most.
    fn give_up(&mut self) -> Option<ObjectRef> {
        let (_, kind) = self.largest()?;
        let group = self.groups.get_mut(&kind)?;
        let last = group.held.pop_last()?;
        let name = last.1.clone();
        group.weight -= u64::from(last.0);
        group.out.insert(last);
        Some(ObjectRef::Namespaced(kind, name))
    }

    /// Takes in the first object that is not held.
    fn take_in(&mut self) -> Option<ObjectRef> {
        let kind = self.next()?.kind;
        let group = self.groups.get_mut(&kind)?;
        let first = group.out.pop_first()?;
        let name = first.1.clone();
        group.weight += u64::from(first.0);
        group.held.insert(first);
        Some(ObjectRef::Namespaced(kind, name))
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.forgotten.is_none()
    }

    fn holds(&self, name: &NamespacedName) -> bool {
        self.weights.get(name).is_some_and(|weight| self.held.contains(&(*weight, name.clone())))
    }

    fn set(&mut self, name: &NamespacedName, weight: Weight) {
        let place = (weight, name.clone());
        if self.forgotten.as_ref() == Some(&place) && !self.weights.contains_key(name) {
            return;
        }
        self.take(name);
        if self.forgotten.as_ref().is_some_and(|first| *first <= place) {
            return;
        }
        self.weights.insert(name.clone(), weight);
        if self.out.first().is_some_and(|first| *first < place) {
            self.out.insert(place);
        } else {
            self.weight += u64::from(weight);
            self.held.insert(place);
        }
    }

    fn trim(&mut self, max_out: usize) {
        while self.out.len() > max_out
            && let Some(last) = self.out.pop_last()
        {
            self.weights.remove(&last.1);
            (self.forgotten, self.stale) = (Some(last), false);
        }
    }

    /// Takes an object out of what is known.
    fn take(&mut self, name: &NamespacedName) {
        let Some(weight) = self.weights.remove(name) else {
            self.stale |= self.forgotten.as_ref().is_some_and(|(_, first)| first == name);
            return;
        };
        let place = (weight, name.clone());
        if self.held.remove(&place) {
            self.weight -= u64::from(weight);
        } else {
            self.out.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests;
