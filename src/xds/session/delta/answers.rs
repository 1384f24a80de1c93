//! What an ACK or a NACK says about the resources at the client.
//!
//! Owns the bisection of a rejected response.

use std::sync::Arc;

use super::entries::Entry;
use super::held::Held;
use super::{DeltaState, InFlight};
use crate::session::Verdict;
use crate::session::rejection::{self, Rejection};
use crate::session::request::Request;

impl DeltaState {
    pub(super) fn on_answer(&mut self, request: &Request) -> Option<Verdict> {
        // Any other nonce than that of the unanswered response is stale, or from another stream.
        let nonce: u64 = request.response_nonce().parse().ok()?;
        let answered = self.in_flight.take_if(|in_flight| in_flight.nonce == nonce)?;
        self.work.add(answered.sent.len() + answered.removed.len());
        Some(match request.error() {
            None => self.on_ack(answered),
            Some(error) => self.on_nack(answered, rejection::message(error)),
        })
    }

    fn on_ack(&mut self, answered: InFlight) -> Verdict {
        let verdict = Verdict::Acked {
            nonce: answered.nonce,
            resources: answered.sent.len(),
            removed: answered.removed.len(),
        };
        for (name, version) in answered.sent {
            self.rejected.remove(&name);
            self.set_held(name, Held::At(version));
        }
        self.forget(&answered.removed);
        verdict
    }

    fn on_nack(&mut self, answered: InFlight, message: Arc<str>) -> Verdict {
        let InFlight { nonce, mut sent, removed, .. } = answered;
        let names: Vec<_> = sent.iter().map(|(name, _)| Arc::clone(name)).collect();
        let conclusive = sent.len() <= 1 && (sent.is_empty() || removed.is_empty());
        if conclusive {
            // A single resource is at fault by itself; the client keeps the version it held. A rejected
            // removal is not repeated.
            for (name, version) in sent {
                if self.wanted(&name) {
                    self.set_held(Arc::clone(&name), self.held(&name).after_nack(version));
                    let rejection = Rejection::new(version, &message, self.rejected.len());
                    self.rejected.insert(name, rejection);
                }
            }
            self.forget(&removed);
        } else {
            for (name, version) in &sent {
                self.set_held(Arc::clone(name), self.held(name).after_partial_nack(*version));
            }
            let second = sent.split_off(sent.len().div_ceil(2));
            for half in [second, sent] {
                if !half.is_empty() {
                    self.bisecting.push_front(half.into_iter().map(|(name, _)| name).collect());
                }
            }
            for name in removed.into_iter().filter(|name| self.entries.contains(name)) {
                self.stale.add(name);
            }
        }
        Verdict::Rejected { nonce, names, message, conclusive }
    }

    fn set_held(&mut self, name: Arc<str>, held: Held) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.held = held;
        } else if self.wildcard {
            self.entries.insert(name, Entry { subscribed: false, held });
        }
    }

    /// Records that the client no longer holds these names.
    fn forget(&mut self, names: &[Arc<str>]) {
        for name in names {
            match self.entries.get_mut(name) {
                Some(entry) if entry.subscribed => entry.held = Held::Nothing,
                _ => {
                    self.entries.remove(name);
                }
            }
        }
    }
}
