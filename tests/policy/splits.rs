//! Which services a request is for: TrafficSplit.

use std::collections::BTreeSet;

use crate::objects::{Name, Split, World};
use crate::request::Request;

impl World {
    /// The services that take a request to a service port: the leaves of a split, or the service itself.
    /// Without a request, that is for a port that is not HTTP, splits by requests do not apply.
    pub(crate) fn split(&self, service: &Name, port: u16, request: Option<&Request>) -> BTreeSet<Name> {
        let (namespace, root) = service;
        let ours = self.splits.iter().filter(|(name, split)| name.0 == *namespace && split.root == *root);
        let splits: Vec<(&Split, BTreeSet<Name>)> = ours
            .map(|(_, split)| (split, self.leaves(namespace, split, port)))
            .filter(|(_, leaves)| !leaves.is_empty())
            .collect();
        // Those that are limited to some requests come first, in the order of their names.
        let limited = splits.iter().filter(|(split, _)| !split.groups.is_empty());
        let taking = limited.filter(|(split, _)| request.is_some_and(|r| self.takes(namespace, split, r)));
        let whole = splits.iter().filter(|(split, _)| split.groups.is_empty());
        let chosen = taking.chain(whole).next().map(|(_, leaves)| leaves.clone());
        chosen.unwrap_or_else(|| BTreeSet::from([service.clone()]))
    }

    /// The backends that get a share: they exist, have the port, and a weight. Of two entries for one
    /// service, the first counts.
    fn leaves(&self, namespace: &str, split: &Split, port: u16) -> BTreeSet<Name> {
        let mut seen = BTreeSet::new();
        let firsts = split.backends.iter().filter(|(name, _)| seen.insert(name));
        let weighted = firsts.filter(|(_, weight)| *weight > 0);
        let leaves = weighted.map(|(name, _)| (namespace.to_owned(), name.clone()));
        leaves.filter(|name| self.service_ports(name).iter().any(|other| other.port == port)).collect()
    }

    fn takes(&self, namespace: &str, split: &Split, request: &Request) -> bool {
        split.groups.iter().any(|group| {
            let group = self.groups.get(&(namespace.to_owned(), group.clone()));
            group.into_iter().flatten().any(|(_, wanted)| request.fulfils(request.path(), wanted))
        })
    }
}
