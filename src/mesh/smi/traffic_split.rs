//! `split.smi-spec.io` TrafficSplit, v1alpha1 to v1alpha4: traffic to a root service goes to leaves by weight.

use crate::ids::{NamespacedName, ServiceId};

/// A split of a root service's traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficSplit {
    /// Its name.
    pub id: NamespacedName,
    /// The service that clients speak to, in the split's namespace.
    pub root: ServiceId,
    /// Where the traffic goes, in declared order; names are unique.
    pub backends: Vec<Backend>,
    /// HTTPRouteGroups in the split's namespace: only requests that match any of their matches are split,
    /// the rest goes to the root itself. Empty: everything is split.
    pub matches: Vec<NamespacedName>,
}

/// One leaf of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The leaf service, in the split's namespace. It may not exist (yet), and may be the root itself.
    pub service: ServiceId,
    /// Its share, relative to the sum of all. Zero is legal.
    pub weight: u32,
}

/// The API version a split was written in: its weights differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SplitVersion {
    /// Weights are Kubernetes quantities (`500m`, `1`).
    V1Alpha1,
    /// Weights are whole numbers.
    V1Alpha2,
    /// Weights are whole numbers; `matches` appears.
    V1Alpha3,
    /// As v1alpha3.
    V1Alpha4,
}
