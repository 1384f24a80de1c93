//! The HTTPRouteGroups of which the matches can be used.
//!
//! Owns what the header expressions of a namespace may take together. Its groups get of it in the order of
//! their names, whatever order they arrive in: every replica leaves out the same matches. When a group goes,
//! those after it get what it took.

use std::collections::BTreeMap;

use smc_api::smi::{Completed, HttpRouteGroup, MAX_STEPS, RouteGroup};
use smc_model::regex::Complements;
use smc_types::ids::NamespacedName;
use smc_types::problem::Problem;

/// The most steps that the header expressions of one namespace may take: some 0.5 seconds.
pub(super) const MAX_NAMESPACE: u64 = 4 * MAX_STEPS;

/// Within these steps, each group of a namespace has all that one may take.
const FREE: u64 = MAX_NAMESPACE - MAX_STEPS;

/// The groups.
#[derive(Debug, Clone, Default)]
pub(super) struct RouteGroups {
    usable: BTreeMap<NamespacedName, RouteGroup>,
    /// By namespace; none of them without groups that have headers.
    namespaces: BTreeMap<String, Namespace>,
    complements: Complements,
}

/// What is remembered of complements changes no answer.
impl PartialEq for RouteGroups {
    fn eq(&self, other: &Self) -> bool {
        (&self.usable, &self.namespaces) == (&other.usable, &other.namespaces)
    }
}

impl Eq for RouteGroups {}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Namespace {
    /// What each group with headers takes; `None` while it is not computed.
    charges: BTreeMap<NamespacedName, Option<Charge>>,
    /// The steps that they take together.
    steps: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Charge {
    /// The most that it might take.
    most: u64,
    steps: u64,
    over_budget: bool,
    problems: Vec<Problem>,
}

/// A group that is another now; `None` if it is gone.
pub(super) type Change = (NamespacedName, Option<RouteGroup>);

impl RouteGroups {
    pub(super) fn get(&self, id: &NamespacedName) -> Option<&RouteGroup> {
        self.usable.get(id)
    }

    pub(super) fn contains(&self, id: &NamespacedName) -> bool {
        self.usable.contains_key(id)
    }

    pub(super) fn set(&mut self, (id, group): Change) {
        match group {
            Some(group) => self.usable.insert(id, group),
            None => self.usable.remove(&id),
        };
    }

    /// What completing the groups found.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        let charges = self.namespaces.values().flat_map(|namespace| namespace.charges.values().flatten());
        charges.flat_map(|charge| &charge.problems)
    }

    /// The steps that were made so far.
    #[cfg(test)]
    pub(super) fn made(&self) -> u64 {
        self.complements.made()
    }

    /// Takes note that `declared` says something else of the group `id`. Returns what is to be set: that
    /// group, and those of its namespace for which more or less is left now.
    pub(super) fn declare(
        &mut self,
        declared: &BTreeMap<NamespacedName, HttpRouteGroup>,
        id: &NamespacedName,
    ) -> Vec<Change> {
        let group = declared.get(id);
        let mut namespace = self.namespaces.remove(id.namespace()).unwrap_or_default();
        let was_free = namespace.steps <= FREE;
        let before = namespace.charges.remove(id).flatten();
        namespace.steps -= before.map_or(0, |charge| charge.steps);
        let mut changes = Vec::new();
        if let Some(group) = group.filter(|group| group.has_headers()) {
            namespace.charges.insert(id.clone(), None);
            if was_free {
                changes.push(namespace.take(MAX_STEPS, group.complete(&mut self.complements, MAX_STEPS)));
            }
        } else {
            let group = group.map(|group| group.complete(&mut self.complements, 0).group);
            changes.push((id.clone(), group));
        }
        if !was_free || namespace.steps > FREE {
            changes.extend(namespace.share(declared, id, &mut self.complements));
        }
        if !namespace.charges.is_empty() {
            self.namespaces.insert(id.namespace().to_owned(), namespace);
        }
        changes
    }
}

impl Namespace {
    /// Takes note of a group that was completed within `most` steps.
    fn take(&mut self, most: u64, completed: Completed) -> Change {
        let Completed { group, steps, over_budget, problems } = completed;
        let charge = Charge { most, steps, over_budget, problems };
        let before = self.charges.insert(group.id.clone(), Some(charge)).flatten();
        self.steps = self.steps + steps - before.map_or(0, |charge| charge.steps);
        (group.id.clone(), Some(group))
    }

    /// Gives each group what those before it leave, and completes those that this concerns. `new` may not be
    /// computed yet. Costs a pass over the groups that get anything.
    fn share(
        &mut self,
        declared: &BTreeMap<NamespacedName, HttpRouteGroup>,
        new: &NamespacedName,
        complements: &mut Complements,
    ) -> Vec<Change> {
        let (mut left, mut changed) = (MAX_NAMESPACE, Vec::new());
        for (id, charge) in &mut self.charges {
            let most = left.min(MAX_STEPS);
            match charge {
                // Nothing was left for those after it, and nothing is.
                Some(charge) if most == 0 && charge.most == 0 => break,
                Some(charge) if charge.most == most || (!charge.over_budget && charge.steps <= most) => {
                    charge.most = most;
                    left -= charge.steps;
                }
                _ => {
                    let Some(group) = declared.get(id) else { continue };
                    let completed = group.complete(complements, most);
                    left -= completed.steps;
                    changed.push((most, completed));
                }
            }
        }
        if self.charges.get(new).is_some_and(Option::is_none)
            && !changed.iter().any(|(_, completed)| completed.group.id == *new)
            && let Some(group) = declared.get(new)
        {
            changed.push((0, group.complete(complements, 0)));
        }
        changed.into_iter().map(|(most, completed)| self.take(most, completed)).collect()
    }
}

#[cfg(test)]
mod tests;
