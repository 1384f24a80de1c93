//! The room for objects: what the share of their namespace leaves out is not held, and comes when there is
//! room.
//!
//! Owns what the store does about it. Of an object that is left out there is no content. When there is room
//! for it, its namespace is read again, as it is when it enters the mesh, and stays of the mesh meanwhile.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use smc_types::kind::Kind;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;

use super::share::{Moves, Shortage};
use super::weight::weight;
use super::{Look, MAX_HELD, Store};
use crate::custom_objects::Marks;

/// Namespaces that are read again at a time: of more, everything would be listed.
const AT_A_TIME: usize = 4;

/// What is missing of the objects that there is room for.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Objects that are held, and of which there is no content yet.
    objects: BTreeSet<ObjectRef>,
    /// The lists that are to bring them.
    lists: BTreeSet<(Kind, Arc<str>)>,
    /// The namespace that was read again last.
    last: Option<Arc<str>>,
}

impl Missing {
    /// A namespace has left.
    pub(super) fn leave(&mut self, namespace: &str) {
        self.objects.retain(|reference| reference.namespace() != namespace);
        self.lists.retain(|(_, listed)| &**listed != namespace);
    }

    /// A kind was read in the namespaces for which this holds.
    pub(super) fn listed(&mut self, kind: Kind, is_read: impl Fn(&str) -> bool) {
        self.lists.retain(|(of, namespace)| *of != kind || !is_read(namespace));
    }
}

impl Store {
    /// Takes note of how many bytes an object takes, of which there is the content. Returns whether it may be
    /// held; one that may not, and was, is taken out of effect.
    pub(super) fn find_room(
        &mut self,
        kind: Kind,
        reference: &ObjectRef,
        bytes: usize,
        marks: Option<&Marks>,
    ) -> bool {
        let moves = self.share.set(reference, weight(bytes, marks));
        self.follow(moves);
        let has_room = self.share.holds(reference);
        if has_room {
            self.missing.objects.remove(reference);
        } else {
            self.take_out(kind, reference);
            self.changed = true;
        }
        has_room
    }

    /// An object is gone, so that there may be room for others.
    pub(super) fn leave_room(&mut self, reference: &ObjectRef) {
        self.missing.objects.remove(reference);
        let moves = self.share.remove(reference);
        self.follow(moves);
    }

    /// Takes out of effect what there is no room for, and waits for what there is room for.
    pub(super) fn follow(&mut self, Moves { given_up, taken_in }: Moves) {
        for reference in given_up {
            let ObjectRef::Namespaced(kind, name) = &reference else { continue };
            let kind = *kind;
            self.missing.objects.remove(&reference);
            if let Some(collection) = self.kinds.get_mut(&kind)
                && let Some(listing) = &mut collection.listing
            {
                let known = collection.objects.get(&reference);
                let mut is_named = known.is_some_and(|known| known.list == collection.list);
                if let Some(read) = listing.remove(&reference) {
                    collection.skipped = collection.skipped.max(read.version.number());
                    is_named = true;
                }
                if is_named && self.share.remembers(kind, name) {
                    collection.named.insert(name.clone());
                }
            }
            self.take_out(kind, &reference);
            self.changed = true;
        }
        self.missing.objects.extend(taken_in);
    }

    /// A list of a kind has ended, of the namespaces for which this holds: what it does not name is gone,
    /// also of what is not held.
    pub(super) fn forget_unnamed(&mut self, kind: Kind, is_listed: impl Fn(&str) -> bool) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let named = std::mem::take(&mut collection.named);
        let is_gone = |reference: &&ObjectRef| match reference {
            ObjectRef::Namespaced(of, name) => {
                *of == kind && !named.contains(name) && is_listed(name.namespace())
            }
            ObjectRef::Namespace(_) => false,
        };
        let out = self.share.out(kind).filter(|name| !named.contains(*name) && is_listed(name.namespace()));
        let mut gone: Vec<ObjectRef> = out.map(|name| ObjectRef::Namespaced(kind, name.clone())).collect();
        gone.extend(self.missing.objects.iter().filter(is_gone).cloned());
        for reference in gone {
            self.leave_room(&reference);
        }
    }

    /// Whether namespaces are to be read again, since there is room for more.
    pub(in crate::source) fn wants_more(&self) -> bool {
        let is_readable = |reference: &ObjectRef| match reference {
            ObjectRef::Namespaced(kind, _) => self.is_readable(*kind),
            ObjectRef::Namespace(_) => false,
        };
        let is_missing = || self.share.unknown().is_some() || self.missing.objects.iter().any(is_readable);
        self.is_synced() && self.missing.lists.is_empty() && is_missing()
    }

    /// The namespaces of which there is room for more than there is. What cannot be read is not asked for.
    fn wanted(&self) -> BTreeSet<Arc<str>> {
        let missing = self.missing.objects.iter().filter_map(|reference| match reference {
            ObjectRef::Namespaced(kind, name) if self.is_readable(*kind) => Some(Arc::from(name.namespace())),
            _ => None,
        });
        missing.chain(self.share.unknown().cloned()).filter(|name| self.namespaces.contains(name)).collect()
    }

    fn is_readable(&self, kind: Kind) -> bool {
        let collection = self.kinds.get(&kind).filter(|_| kind.spec().extent.follows_namespaces());
        collection.is_some_and(|of| of.trouble.is_none() && of.look == Look::Listed)
    }

    /// Orders to read such namespaces again, each in turn. Returns them.
    pub(in crate::source) fn read_again(&mut self) -> Vec<Arc<str>> {
        let wanted = self.wanted();
        let is_after = |name: &&Arc<str>| self.missing.last.as_ref().is_some_and(|last| *name > last);
        let after = wanted.iter().filter(is_after);
        let turns = after.chain(wanted.iter().filter(|name| !is_after(name))).take(AT_A_TIME);
        let turns: Vec<Arc<str>> = turns.cloned().collect();
        let kinds: Vec<Kind> = self.kinds.keys().copied().filter(|kind| self.is_readable(*kind)).collect();
        for namespace in &turns {
            self.namespaces.renew(namespace);
            self.missing.lists.extend(kinds.iter().map(|kind| (*kind, Arc::clone(namespace))));
            self.missing.last = Some(Arc::clone(namespace));
        }
        turns
    }

    #[cfg(test)]
    pub(super) fn missing_names(&self) -> Vec<String> {
        self.missing.objects.iter().map(ToString::to_string).collect()
    }

    /// A problem for each namespace of which objects are left out.
    pub(super) fn shortages(&self) -> impl Iterator<Item = Problem> {
        self.share.shortages().map(|shortage| problem(&shortage))
    }
}

fn problem(Shortage { namespace, held, count, out }: &Shortage<'_>) -> Problem {
    let mut message = format!(
        "has more objects than its share of what all namespaces may have together ({} MiB of memory). In effect are \
         some {} MiB in {} objects or more; of these kinds, the largest objects have no effect:",
        MAX_HELD / 1024,
        held.div_ceil(1024),
        rounded(*count),
    );
    for (at, (kind, count)) in out.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(message, "{} {kind} ({} or more)", if at > 0 { "," } else { "" }, rounded(*count));
    }
    message.push_str("; they come back when there is room");
    Problem::error(ObjectRef::Namespace((*namespace).to_owned()), "", message)
}

/// The number with its first digit alone, so that a problem is not another one with each object.
fn rounded(count: usize) -> usize {
    let digit = 10_usize.pow(count.checked_ilog10().unwrap_or_default());
    count / digit * digit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_bound_what_there_is_and_what_has_no_effect() {
        let out = vec![(Kind::Pod, 9), (Kind::ServiceAccount, 4097)];
        let shortage = Shortage { namespace: "shop", held: 100_000, count: 51_234, out };
        assert_eq!(
            problem(&shortage).to_string(),
            "error: Namespace shop: has more objects than its share of what all namespaces may have together (256 MiB \
             of memory). In effect are some 98 MiB in 50000 objects or more; of these kinds, the largest objects have \
             no effect: Pod (9 or more), ServiceAccount (4000 or more); they come back when there is room"
        );
        assert_eq!([0, 1, 19, 999].map(rounded), [0, 1, 10, 900]);
    }
}
