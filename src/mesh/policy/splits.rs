//! TrafficSplit: where requests to a root service go.
//!
//! Owns the meaning of split v1alpha1 to v1alpha4: which splits of a root count, in which order, and which
//! of their backends can be used. Refuses access: a leaf stays directly reachable, and each leaf's own
//! sidecar decides who gets in.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{Catalog, ServicePort};
use crate::ids::ServiceId;
use crate::smi::{HttpMatch, TrafficSplit};

/// How traffic to one port of a root service is distributed. The arms are tried in order; the last one
/// takes everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitPlan {
    /// The arms; never empty, and only the last has no `matches`.
    pub arms: Vec<SplitArm>,
}

/// One arm: the requests it takes and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitArm {
    /// It takes requests that match any of these (sorted, not empty); `None` takes everything.
    pub matches: Option<Vec<HttpMatch>>,
    /// Existing services that have the port, with their shares, none of them zero; sorted, never empty.
    /// The root itself may be among them.
    pub weights: Vec<(ServiceId, u32)>,
}

/// How traffic to `port` of `root` is split; `None` if no split applies, so that it all goes to the root.
///
/// Splits of one root are merged in the order of their names: first those with `matches`, each an arm,
/// then the first one without takes the rest; without such a one the rest goes to the root. `matches`
/// cannot be applied to a port that is not HTTP: there such splits are left out. A split none of whose
/// backends can be used is left out: the specification leaves all-zero weights undefined, and the root is
/// where the traffic would go without the split.
pub fn split_plan(catalog: &Catalog, root: &ServiceId, port: &ServicePort) -> Option<SplitPlan> {
    let splits = catalog.splits_of(root);
    let mut arms = Vec::new();
    for split in splits.iter().filter(|split| !split.matches.is_empty() && port.protocol.is_http()) {
        let (matches, weights) = (matches(catalog, split), weights(catalog, split, port));
        if !matches.is_empty() && !weights.is_empty() {
            arms.push(SplitArm { matches: Some(matches), weights });
        }
    }
    let rest = splits
        .iter()
        .filter(|split| split.matches.is_empty())
        .map(|split| weights(catalog, split, port))
        .find(|weights| !weights.is_empty());
    match rest {
        Some(weights) => arms.push(SplitArm { matches: None, weights }),
        None if arms.is_empty() => return None,
        None => arms.push(SplitArm { matches: None, weights: vec![(root.clone(), 1)] }),
    }
    Some(SplitPlan { arms })
}

/// The matches of all groups that a split names. A group that does not exist contributes nothing, so a
/// split whose groups are all missing takes no request.
fn matches(catalog: &Catalog, split: &TrafficSplit) -> Vec<HttpMatch> {
    let groups = split.matches.iter().filter_map(|name| catalog.http_route_group(name));
    let matches: BTreeSet<HttpMatch> = groups.flat_map(|group| group.matches.values().cloned()).collect();
    matches.into_iter().collect()
}

/// The backends that can be used for `port` of the root: those that exist, have the same port, and have a
/// weight.
fn weights(catalog: &Catalog, split: &TrafficSplit, port: &ServicePort) -> Vec<(ServiceId, u32)> {
    let mut weights: BTreeMap<ServiceId, u32> = BTreeMap::new();
    for backend in split.backends.iter().filter(|backend| backend.weight > 0) {
        let service = catalog.service(&backend.service);
        if service.is_some_and(|service| service.ports.iter().any(|own| own.port == port.port)) {
            let weight = weights.entry(backend.service.clone()).or_insert(0);
            *weight = weight.saturating_add(backend.weight);
        }
    }
    weights.into_iter().collect()
}
