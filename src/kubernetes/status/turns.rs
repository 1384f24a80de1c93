//! Whose turn it is where more is due than can be done at once.
//!
//! Owns that namespaces take turns: what is due in one of them never keeps another one waiting for longer
//! than it takes to go round. Pure.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use smc_types::object_ref::ObjectRef;

/// At most `most` of the objects that are due: one of each namespace, then a second one of each, and so on.
/// Begins with the namespace after `last`; after the last one comes the first.
pub(super) fn in_turn<'a, T>(
    objects: &'a BTreeMap<ObjectRef, T>,
    last: Option<&str>,
    most: usize,
    is_due: impl Fn(&ObjectRef, &T) -> bool,
) -> Vec<(&'a ObjectRef, &'a T)> {
    let mut queues: BTreeMap<&str, Vec<(&ObjectRef, &T)>> = BTreeMap::new();
    for (reference, object) in objects {
        let queue = queues.entry(reference.namespace());
        let is_full = matches!(&queue, Entry::Occupied(queue) if queue.get().len() >= most);
        if !is_full && is_due(reference, object) {
            queue.or_default().push((reference, object));
        }
    }
    let is_after = |namespace: &str| last.is_some_and(|last| namespace > last);
    let (after, before): (Vec<_>, Vec<_>) = queues.into_iter().partition(|(name, _)| is_after(name));
    let turns: Vec<_> = after.into_iter().chain(before).map(|(_, queue)| queue).collect();
    let longest = turns.iter().map(Vec::len).max().unwrap_or_default();
    let rounds = (0..longest).flat_map(|round| turns.iter().filter_map(move |queue| queue.get(round)));
    rounds.take(most).copied().collect()
}

#[cfg(test)]
mod tests {
    use smc_types::object_ref::Kind;

    use super::*;

    /// So many objects of each namespace, all of which are due but those named `x0`.
    fn taken(counts: &[(&str, usize)], last: Option<&str>, most: usize) -> Vec<String> {
        let objects = counts.iter().flat_map(|(namespace, count)| {
            let name = move |number| format!("{namespace}/x{number}").parse().unwrap();
            (0..=*count).map(move |number| (ObjectRef::Namespaced(Kind::TcpRoute, name(number)), number))
        });
        let objects = objects.collect();
        let taken = in_turn(&objects, last, most, |_, number| *number > 0);
        taken.iter().map(|(reference, _)| reference.to_string().replace("TCPRoute ", "")).collect()
    }

    #[test]
    fn namespaces_take_turns_and_the_last_one_comes_last() {
        let (busy, shop, zoo) = (("aaa", 30), ("shop", 2), ("zoo", 1));
        for (counts, last, most, expected) in [
            (&[busy, shop, zoo][..], None, 5, &["aaa/x1", "shop/x1", "zoo/x1", "aaa/x10", "shop/x2"][..]),
            (&[busy, shop, zoo], Some("aaa"), 3, &["shop/x1", "zoo/x1", "aaa/x1"]),
            (&[busy, shop, zoo], Some("b"), 1, &["shop/x1"]),
            (&[busy, shop, zoo], Some("zoo"), 1, &["aaa/x1"]),
            (&[busy, ("none", 0)], Some("aaa"), 2, &["aaa/x1", "aaa/x10"]),
            (&[("none", 0)], None, 2, &[]),
        ] {
            assert_eq!(taken(counts, last, most), expected, "{counts:?} {last:?} {most}");
        }
    }

    #[test]
    fn every_namespace_has_its_turn_however_busy_the_others_are() {
        let names: Vec<String> = (0..50).map(|number| format!("n{number:02}")).collect();
        let counts: Vec<_> = names.iter().map(|name| (name.as_str(), 100)).collect();
        let (mut last, mut seen) = (None::<String>, Vec::new());
        for _ in 0..3 {
            let step = taken(&counts, last.as_deref(), 20);
            last = step.last().and_then(|name| name.split('/').next()).map(str::to_owned);
            seen.extend(step);
        }
        assert_eq!(seen.iter().filter(|name| name.starts_with("n49/")).count(), 1);
        let all: std::collections::BTreeSet<_> =
            seen.iter().filter_map(|name| name.split('/').next()).collect();
        assert_eq!(all.len(), 50, "twenty at a time, all fifty had a turn");
    }
}
