//! The difference between what the client holds and the view: what to send and what to remove.

use std::sync::Arc;

use super::DeltaState;
use super::held::Held;
use super::stale::{Over, Sweep};
use crate::resource::Resource;
use crate::served_state::View;
use crate::session::type_state::{MAX_RETAINED, SendPolicy};

/// The removals in one response; the others go with the next ones. One response is made in one go.
const MAX_REMOVALS: usize = 4096;

impl DeltaState {
    /// Compares stale names with the view, about `limit` of them. Does nothing while an answer is
    /// outstanding, because the answer decides what the client holds. Returns how many it looked at; fewer
    /// than `limit` if none is left.
    pub(super) fn compare_stale(&mut self, view: &View, limit: usize) -> usize {
        if self.in_flight.is_some() || !self.bisecting.is_empty() {
            return 0;
        }
        let mut done = 0;
        while done < limit {
            if let Some(name) = self.stale.pop() {
                self.compare(view, &name);
                done += 1;
            } else if let Some(sweep) = self.stale.take_sweep() {
                let names = self.swept(view, &sweep, limit - done);
                for name in &names {
                    self.compare(view, name);
                }
                done += names.len();
                let whole = done < limit;
                let after = if whole { None } else { names.last().cloned() };
                let next = if whole { sweep.next_table() } else { Some(Sweep { after, ..sweep }) };
                if next.is_none() {
                    let mut to_send = std::mem::take(&mut self.to_send);
                    self.work.add(to_send.len());
                    to_send.retain(|name| self.wanted(name));
                    self.to_send = to_send;
                }
                self.stale.put_sweep(next);
            } else {
                break;
            }
        }
        self.work.add(done);
        done
    }

    /// At most `count` names that a sweep compares next; fewer if its table has no more.
    fn swept(&self, view: &View, sweep: &Sweep, count: usize) -> Vec<Arc<str>> {
        let range = sweep.range();
        match sweep.over {
            Over::Entries => self.entries.range(range).take(count).map(Arc::clone).collect(),
            Over::Removals => self.to_remove.range::<str, _>(range).take(count).cloned().collect(),
            Over::Answers => self.must_answer.range::<str, _>(range).take(count).cloned().collect(),
            Over::View if self.wildcard => view.names(self.kind, range).take(count).map(Arc::clone).collect(),
            Over::View => Vec::new(),
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
                let held = self.held(name) != Held::Nothing;
                if held && self.kind.outlasts_its_removal(name) {
                    self.must_answer.remove(name);
                } else if held || self.must_answer.contains(name) {
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

    /// What may go to a client that holds newer content than the view has: what it waits for and holds in
    /// this version or not at all. A cluster may be warming because of it.
    pub(super) fn next_harmless(&mut self, view: &View) -> Vec<Arc<Resource>> {
        self.work.add(self.must_answer.len());
        let held_back = |resource: &&Arc<Resource>| match self.held(&resource.name) {
            Held::Nothing => false,
            held => held != Held::At(resource.version),
        };
        let waited_for = self.must_answer.iter().filter(|name| self.to_send.contains(*name));
        let waited_for = waited_for.filter_map(|name| view.get(self.kind, name));
        let harmless: Vec<_> = waited_for.filter(|resource| !held_back(resource)).cloned().collect();
        for resource in &harmless {
            self.to_send.remove(&resource.name);
        }
        harmless
    }

    /// The removals that may go out now. A removal breaks nothing, and goes out at once, if the client
    /// does not hold the name or waits for an answer to it.
    pub(super) fn next_removals(&mut self, policy: SendPolicy) -> Vec<Arc<str>> {
        let all = policy.remove || self.to_remove.len() > MAX_RETAINED;
        self.work.add(self.to_remove.len().min(MAX_REMOVALS));
        let free =
            |name: &Arc<str>| all || self.must_answer.contains(name) || self.held(name) == Held::Nothing;
        let free = self.to_remove.iter().filter(|name| free(name));
        let removed: Vec<_> = free.take(MAX_REMOVALS).cloned().collect();
        for name in &removed {
            self.to_remove.remove(name);
        }
        removed
    }
}
