//! What events have changed and [`Catalog::settle`] has not worked out yet.
//!
//! Owns how the backends of a service come up to date, and what of it has to be known from before a change.
//! A hundred events about one service are settled by one look at it: what a batch costs follows from what it
//! leaves behind, and not from the states in between, which are never served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::backends::{Backends, Source};
use super::index::Label;
use super::mentions::Mentions;
use super::{Affected, Catalog};
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};

/// Up to so many sources of a service, the difference that they make is worked out, also where nothing stands
/// behind the service yet.
const FEW: usize = 64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pending {
    /// What the events affect, as far as it is known already.
    pub(super) affected: Affected,
    /// The services whose backends may differ.
    pub(super) backends: BTreeMap<ServiceId, Change>,
    /// The workloads whose sidecar may differ, beside those behind these services.
    pub(super) workloads: BTreeSet<WorkloadId>,
    /// The services whose selector differs, and the workloads that others may select.
    pub(super) reselecting: BTreeSet<ServiceId>,
    pub(super) relabelled: BTreeSet<WorkloadId>,
    /// The labels of selectors that more, or fewer, workloads may have.
    pub(super) labels: BTreeSet<Label>,
    /// The addresses whose pods differ, in each namespace: what the slices that hold one contribute is noted.
    pub(super) moved: BTreeSet<(String, IpAddr)>,
    /// The services whose callers may have another configuration.
    pub(super) rewired: BTreeSet<ServiceId>,
    /// The IngressBackends that may open other ports than before, or to others.
    pub(super) reopened: BTreeSet<NamespacedName>,
    /// The services whose addresses as a source may differ, beside those whose backends may.
    pub(super) sources: BTreeSet<ServiceId>,
    /// The identities whose Egresses, or the share of what these may take, may differ.
    pub(super) egress: BTreeSet<ServiceAccountId>,
    /// The Telemetries that differ.
    pub(super) telemetries: BTreeSet<NamespacedName>,
    /// The addresses that a service began, or ceased, to claim.
    pub(super) disputed: BTreeSet<IpAddr>,
    /// The namespaces that began, or ceased, to accept every identity.
    pub(super) opened: BTreeSet<String>,
    /// The accounts that mentioned the rewired services before, as far as they were looked for.
    pub(super) before: Mentions,
}

/// How the backends of a service are brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// From nothing.
    Anew,
    /// By the difference of what these sources contribute; `before` is what they did.
    By { sources: BTreeSet<Source>, before: Box<Backends> },
}

impl Catalog {
    /// Notes that the configuration of those that mention these services is about to change. Those that
    /// mention them now are found here, as the events before this one left them, and those that do in the end
    /// by [`Self::settle`].
    pub(super) fn rewire(&mut self, services: impl IntoIterator<Item = ServiceId>) {
        let mut before = std::mem::take(&mut self.pending.before);
        let services: BTreeSet<_> = services.into_iter().collect();
        before.visit_all(self, &services);
        self.pending.before = before;
        self.pending.rewired.extend(services);
    }

    /// Notes that this is about to change what `sources` contribute to a service. Each event notes every
    /// source on which it has an effect, so that the first note of one finds it as it was when the last
    /// events were settled.
    pub(super) fn touch(&mut self, service: &ServiceId, sources: BTreeSet<Source>) {
        let mut change = self
            .pending
            .backends
            .remove(service)
            .unwrap_or_else(|| Change::By { sources: BTreeSet::new(), before: Box::default() });
        if let Change::By { sources: known, before } = &mut change {
            let is_new = |source: &Source| {
                !known.contains(source) && source.whole().is_none_or(|whole| !known.contains(&whole))
            };
            let new: BTreeSet<_> = sources.into_iter().filter(is_new).collect();
            // A slice whose addresses were noted one by one would be counted twice.
            let is_begun = |source: &Source| {
                let next = known.range(source..).next().and_then(Source::whole);
                next.is_some_and(|whole| whole == *source)
            };
            let begun = new.iter().any(is_begun);
            before.add(Backends::from(self, service, &new));
            known.extend(new);
            // What takes as many differences as there are workloads is no cheaper than from nothing, and the
            // differences would be kept until they are settled.
            let behind = self.index.backends.get(service).map_or(0, Backends::len);
            if begun || known.len() > behind.max(FEW) {
                change = Change::Anew;
            }
        }
        self.pending.backends.insert(service.clone(), change);
    }

    /// Notes that services, which changed or whose sources all may contribute something else, are brought up
    /// to date from nothing.
    pub(super) fn touch_all(&mut self, services: impl IntoIterator<Item = ServiceId>) {
        self.pending.backends.extend(services.into_iter().map(|id| (id, Change::Anew)));
    }
}
