//! What differs between two snapshots.
//!
//! Owns the comparison. Classes that share an outbound half share what differs by it, so that thousands of
//! classes with thousands of services in common cost one comparison of those.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::ordset::DiffItem as SetDiffItem;

use super::intern::Interner;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::Snapshot;

type Names = BTreeSet<(ResourceType, Arc<str>)>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The resources whose content differs, or that only one of the snapshots has.
    pub(super) names: Arc<Names>,
    /// Whether a resource of equal content is made of other objects.
    provenance: bool,
}

impl Differences {
    /// What differs between two snapshots, of which the first is served no more.
    pub(super) fn between(before: &Snapshot, after: &Snapshot, interner: &mut Interner) -> Self {
        let tables = [
            (ResourceType::Secret, &before.secrets, &after.secrets),
            (ResourceType::Cluster, &before.clusters, &after.clusters),
            (ResourceType::ExtensionConfig, &before.extension_configs, &after.extension_configs),
            (ResourceType::Listener, &before.listeners, &after.listeners),
            (ResourceType::Route, &before.routes, &after.routes),
        ];
        let (mut names, mut provenance) = (Names::new(), false);
        for (kind, before, after) in tables {
            for item in before.diff(after) {
                match item {
                    DiffItem::Add(name, _) | DiffItem::Remove(name, _) => {
                        names.insert((kind, Arc::clone(name)));
                    }
                    DiffItem::Update { old, new } => {
                        if old.1.version == new.1.version {
                            provenance |= old.1.made_of != new.1.made_of;
                        } else {
                            names.insert((kind, Arc::clone(new.0)));
                        }
                    }
                }
            }
        }
        for item in before.endpoints.diff(&after.endpoints) {
            match item {
                SetDiffItem::Add(name) | SetDiffItem::Remove(name) => {
                    names.insert((ResourceType::Endpoint, Arc::clone(name)));
                }
            }
        }
        Self::released(names, provenance, before, interner)
    }

    /// What differs in these resources alone.
    pub(super) fn of(names: Names, before: &Snapshot, after: &Snapshot, interner: &mut Interner) -> Self {
        let mut provenance = false;
        let differs = |(kind, name): &(ResourceType, Arc<str>)| {
            let [old, new] = [before, after].map(|snapshot| snapshot.get(*kind, name));
            provenance |= old.map(|old| &old.made_of) != new.map(|new| &new.made_of);
            old.map(|old| old.version) != new.map(|new| new.version)
        };
        let names = names.into_iter().filter(differs).collect();
        Self::released(names, provenance, before, interner)
    }

    fn released(names: Names, provenance: bool, before: &Snapshot, interner: &mut Interner) -> Self {
        let old = names.iter().filter_map(|(kind, name)| before.get(*kind, name));
        old.for_each(|resource| interner.released(resource));
        Self { names: Arc::new(names), provenance }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.provenance
    }
}
