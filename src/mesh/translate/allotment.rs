//! How many bytes of policy each class may be served.
//!
//! Owns the shares: of an identity, of a namespace, and of the mesh. Who wants less than an equal share of
//! the whole gets all of it, and what is left over is shared equally by the others (max-min fairness). Thus
//! the largest are cut first, and a namespace is never cut for what another one declares while it stays
//! below its share itself.
//!
//! The shares are a function of what the classes demand now, whatever came before: replicas agree on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::policy::{MAX_IDENTITY, MAX_MESH, MAX_NAMESPACE};
use smc_types::proxy_class::ProxyClass;

/// The demands, and the shares that follow.
#[derive(Debug)]
pub(super) struct Allotments {
    namespaces: BTreeMap<String, Namespace>,
    /// The sum of what namespaces want, each at most its own bound.
    total: u64,
    /// The most that a namespace gets for the sake of the mesh.
    level: u64,
    /// Namespaces with other demands than when the shares were settled.
    touched: BTreeSet<String>,
}

#[derive(Debug)]
struct Namespace {
    demands: BTreeMap<Arc<ProxyClass>, u64>,
    /// Their sum.
    total: u64,
    /// The most that a class gets.
    level: u64,
}

impl Default for Namespace {
    fn default() -> Self {
        Self { demands: BTreeMap::new(), total: 0, level: MAX_IDENTITY }
    }
}

impl Namespace {
    /// What the namespace wants of the mesh.
    fn wanted(&self) -> u64 {
        self.total.min(MAX_NAMESPACE)
    }
}

impl Default for Allotments {
    fn default() -> Self {
        Self { namespaces: BTreeMap::new(), total: 0, level: MAX_NAMESPACE, touched: BTreeSet::new() }
    }
}

impl Allotments {
    /// Sets the demand of a class; `None` if the class is gone. It counts once the shares are settled.
    pub(super) fn set(&mut self, class: &Arc<ProxyClass>, demand: Option<u64>) {
        let name = class.account.namespace();
        let demand = demand.map(|demand| demand.min(MAX_IDENTITY));
        let held = self.namespaces.get(name).and_then(|namespace| namespace.demands.get(class));
        if held.copied() == demand {
            return;
        }
        let namespace = self.namespaces.entry(name.to_owned()).or_default();
        let wanted = namespace.wanted();
        let old = match demand {
            Some(demand) => namespace.demands.insert(Arc::clone(class), demand),
            None => namespace.demands.remove(class),
        };
        namespace.total = namespace.total - old.unwrap_or(0) + demand.unwrap_or(0);
        self.total = self.total - wanted + namespace.wanted();
        self.touched.insert(name.to_owned());
    }

    /// The share of a class, in bytes.
    pub(super) fn share(&self, class: &ProxyClass) -> u64 {
        self.namespaces.get(class.account.namespace()).map_or(0, |namespace| namespace.level)
    }

    /// Brings the shares up to date. Returns the classes that can be served more or less than before.
    pub(super) fn settle(&mut self) -> Vec<Arc<ProxyClass>> {
        let wanted = || self.namespaces.values().map(Namespace::wanted);
        let level = if self.total > MAX_MESH { level(wanted(), MAX_MESH) } else { MAX_NAMESPACE };
        let mut touched = std::mem::take(&mut self.touched);
        let before = std::mem::replace(&mut self.level, level);
        if before != level {
            let least = before.min(level);
            let cut = self.namespaces.iter().filter(|(_, namespace)| namespace.wanted() > least);
            touched.extend(cut.map(|(name, _)| name.clone()));
        }
        let mut moved = Vec::new();
        for name in touched {
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            let bound = MAX_NAMESPACE.min(self.level);
            let level = if namespace.total > bound {
                level_of_classes(&namespace.demands, bound)
            } else {
                MAX_IDENTITY
            };
            let before = std::mem::replace(&mut namespace.level, level);
            if before != level {
                let least = before.min(level);
                let cut = namespace.demands.iter().filter(|(_, demand)| **demand > least);
                moved.extend(cut.map(|(class, _)| Arc::clone(class)));
            }
            if namespace.demands.is_empty() {
                self.namespaces.remove(&name);
            }
        }
        moved
    }
}

fn level_of_classes(demands: &BTreeMap<Arc<ProxyClass>, u64>, bound: u64) -> u64 {
    level(demands.values().copied(), bound)
}

/// The largest level at which the demands, each cut to the level, fit into `bound`. They do not fit uncut.
fn level(demands: impl Iterator<Item = u64>, bound: u64) -> u64 {
    let mut demands: Vec<u64> = demands.collect();
    demands.sort_unstable();
    let mut left = bound;
    let mut others = u64::try_from(demands.len()).unwrap_or(u64::MAX);
    for demand in demands {
        let share = left / others;
        if demand > share {
            return share;
        }
        left -= demand;
        others -= 1;
    }
    bound
}

#[cfg(test)]
mod tests;
