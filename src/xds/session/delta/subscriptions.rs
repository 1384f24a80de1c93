//! Changes of a Delta subscription: names added and removed.

use std::sync::Arc;

use super::entries::Entry;
use super::held::Held;
use super::{DeltaState, WILDCARD};
use crate::session::type_state::Context;

impl DeltaState {
    /// Subscribes to a name in the stream's first request, where `*` has been seen already.
    pub(super) fn subscribe_first(&mut self, name: &str, context: &Context<'_>) {
        if name == WILDCARD {
            return;
        }
        match self.entries.get_mut(name) {
            Some(entry) => entry.subscribed = true,
            None => self.subscribe(name, context),
        }
        if context.warming {
            self.must_answer.insert(self.intern(name, context));
        }
    }

    pub(super) fn subscribe(&mut self, name: &str, context: &Context<'_>) {
        if name == WILDCARD {
            if !self.wildcard {
                self.response_due = true;
                self.wildcard = true;
                // What the client subscribed to by name was wanted before.
                self.stale.add_view();
            }
            return;
        }
        let name = self.intern(name, context);
        match self.entries.get_mut(&name) {
            Some(entry) => entry.subscribed = true,
            None => self.entries.insert(Arc::clone(&name), Entry { subscribed: true, held: Held::Nothing }),
        }
        self.must_answer.insert(Arc::clone(&name));
        self.stale.add(name);
    }

    pub(super) fn unsubscribe(&mut self, name: &str) {
        if name == WILDCARD {
            if !std::mem::take(&mut self.wildcard) {
                return;
            }
            let kept = self.entries.len() + self.must_answer.len() + self.to_send.len();
            self.work.add(kept + self.to_remove.len() + self.rejected.len() + self.stale.names().len());
            self.entries.retain_subscribed();
            self.must_answer.retain(|name| self.entries.contains(name));
            self.to_send.retain(|name| self.entries.contains(name));
            self.to_remove.retain(|name| self.entries.contains(name));
            self.rejected.retain(|name, _| self.entries.contains(name));
            self.stale.retain(|name| self.entries.contains(name));
            return;
        }
        let Some((name, mut entry)) = self.entries.remove(name) else { return };
        if self.wildcard {
            // Envoy cannot tell whether the wildcard still covers the resource: answer with it, or with
            // a removal.
            entry.subscribed = false;
            self.entries.insert(Arc::clone(&name), entry);
            self.must_answer.insert(Arc::clone(&name));
            self.stale.add(name);
        } else {
            // Dropped everywhere at once, not at the next comparison: a client that leaves a response
            // unanswered delays that, and could meanwhile fill memory with names that no bound counts.
            self.must_answer.remove(&name);
            self.to_send.remove(&name);
            self.to_remove.remove(&name);
            self.rejected.remove(&name);
            self.stale.remove(&name);
        }
    }

    /// The name as shared with the view, or a copy.
    pub(super) fn intern(&self, name: &str, context: &Context<'_>) -> Arc<str> {
        let resource = context.view.and_then(|view| view.get(self.kind, name));
        resource.map_or_else(|| name.into(), |resource| Arc::clone(&resource.name))
    }
}
