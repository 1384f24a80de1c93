//! The difference between what the client holds and the view: what to send and what to remove.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::DeltaState;
use super::held::Held;
use super::stale::Stale;
use crate::resource::Resource;
use crate::served_state::View;
use crate::session::type_state::{MAX_RETAINED, SendPolicy};

impl DeltaState {
    /// Compares the stale names with the view. Does nothing while an answer is outstanding, because the
    /// answer decides what the client holds.
    pub(super) fn compare_stale(&mut self, view: &View) {
        if self.in_flight.is_some() || !self.bisecting.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.stale, Stale::Names(BTreeSet::new())) {
            Stale::Names(names) => names.iter().for_each(|name| self.compare(view, name)),
            Stale::Everything => {
                let names = self.entries.iter().map(|(name, _)| name);
                let own: Vec<_> =
                    names.chain(&self.to_remove).chain(&self.must_answer).map(Arc::clone).collect();
                for name in &own {
                    self.compare(view, name);
                }
                if self.wildcard {
                    view.all(self.kind).for_each(|resource| self.compare(view, &resource.name));
                }
                let mut to_send = std::mem::take(&mut self.to_send);
                to_send.retain(|name| self.wanted(name));
                self.to_send = to_send;
            }
        }
    }

    fn compare(&mut self, view: &View, name: &Arc<str>) {
        let resource = view.get(self.kind, name);
        let wanted = self.wanted(name);
        if resource.is_none() || !wanted {
            self.to_send.remove(name);
        }
        if resource.is_some() || !wanted {
            self.to_remove.remove(name);
        }
        match resource {
            // An EDS name may be in `must_answer` before the subscription: its cluster has just been sent.
            None if !wanted => {
                self.must_answer.remove(name);
            }
            Some(_) if !wanted => {}
            None => {
                self.rejected.remove(name);
                if self.held(name) != Held::Nothing || self.must_answer.contains(name) {
                    self.to_remove.insert(Arc::clone(name));
                } else if !self.entries.get(name).is_some_and(|entry| entry.subscribed) {
                    self.entries.remove(name);
                }
            }
            Some(resource) if self.needs(resource) => {
                self.to_send.insert(Arc::clone(&resource.name));
            }
            Some(resource) => {
                self.to_send.remove(name);
                if self.held(name) == Held::At(resource.version) {
                    self.rejected.remove(name);
                }
            }
        }
    }

    /// Returns true if this resource, which the client subscribed to, is to be sent.
    fn needs(&self, resource: &Resource) -> bool {
        let rejected = || self.rejected.get(&resource.name).is_some_and(|r| r.version == resource.version);
        self.must_answer.contains(&resource.name)
            || (self.held(&resource.name) != Held::At(resource.version) && !rejected())
    }

    /// The next group of a rejected response that is still to be sent.
    pub(super) fn next_bisected(&mut self, view: &View) -> Vec<Arc<Resource>> {
        while let Some(group) = self.bisecting.pop_front() {
            let current =
                group.iter().filter(|name| self.wanted(name)).filter_map(|n| view.get(self.kind, n));
            let group: Vec<_> = current.filter(|resource| self.needs(resource)).map(Arc::clone).collect();
            if !group.is_empty() {
                return group;
            }
        }
        Vec::new()
    }

    /// The removals that may go out now. A removal breaks nothing, and goes out at once, if the client
    /// does not hold the name or waits for an answer to it.
    pub(super) fn next_removals(&mut self, policy: SendPolicy) -> Vec<Arc<str>> {
        let all = policy.remove || self.to_remove.len() > MAX_RETAINED;
        let free =
            |name: &Arc<str>| all || self.must_answer.contains(name) || self.held(name) == Held::Nothing;
        let removed: Vec<_> = self.to_remove.iter().filter(|name| free(name)).cloned().collect();
        for name in &removed {
            self.to_remove.remove(name);
        }
        removed
    }
}
