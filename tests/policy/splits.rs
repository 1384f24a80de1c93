//! Where a request goes: TrafficSplit.

use std::collections::BTreeSet;

use crate::objects::{Split, World};
use crate::request::Request;

impl World {
    /// The services that a request to a service port may go to: the leaves of a split, or the service itself.
    pub fn goes_to(&self, service: (&str, &str), port: u16, request: &Request) -> BTreeSet<String> {
        let (namespace, root) = service;
        let ours = self.splits.iter().filter(|(name, split)| name.0 == namespace && split.root == root);
        let splits: Vec<(&Split, BTreeSet<String>)> = ours
            .map(|(_, split)| (split, self.leaves(namespace, split, port)))
            .filter(|(_, leaves)| !leaves.is_empty())
            .collect();
        // Those that are limited to some requests come first, in the order of their names.
        let limited = splits.iter().filter(|(split, _)| !split.groups.is_empty());
        let taking = limited.filter(|(split, _)| self.takes(namespace, split, request));
        let whole = splits.iter().filter(|(split, _)| split.groups.is_empty());
        let chosen = taking.chain(whole).next().map(|(_, leaves)| leaves.clone());
        chosen.unwrap_or_else(|| BTreeSet::from([root.to_owned()]))
    }

    /// The backends that get a share: they exist, have the port, and a weight. Of two entries for one
    /// service, the first counts.
    fn leaves(&self, namespace: &str, split: &Split, port: u16) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let firsts = split.backends.iter().filter(|(name, _)| seen.insert(name));
        let usable = firsts.filter(|(name, weight)| {
            *weight > 0 && self.service_ports((namespace, name)).iter().any(|other| other.port == port)
        });
        usable.map(|(name, _)| name.clone()).collect()
    }

    fn takes(&self, namespace: &str, split: &Split, request: &Request) -> bool {
        split.groups.iter().any(|group| {
            let group = self.groups.get(&(namespace.to_owned(), group.clone()));
            group.into_iter().flatten().any(|(_, wanted)| request.fulfils(request.path(), wanted))
        })
    }
}
