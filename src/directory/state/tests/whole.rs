//! The rules over a whole directory at once, in their plainest form: what the incremental state must equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_api::object::SourceEvent;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};

use super::super::{Effective, MAX_NAMED, State};
use crate::scan::Scan;

/// The state after a scan, and all problems of it, sorted and without duplicates.
pub(super) fn merge(previous: &State, scan: &Scan, limit: usize) -> (State, Vec<Problem>) {
    let mut state = hold(previous, scan);
    let mut problems = scan.problems.clone();
    problems.extend(report_held(&state));
    let mut left_out = BTreeSet::new();
    for reading in scan.files.values() {
        problems.extend_from_slice(&reading.manifest.problems);
        for declaration in &reading.manifest.declarations {
            let (reference, origin) = (&declaration.reference, &declaration.origin);
            let objects = state.len();
            match state.get_mut(reference) {
                Some(first) if first.held => {
                    let effective = &first.declaration.origin;
                    let message = format!(
                        "declared at {origin}, which has no effect: the declaration at {effective} stays in effect \
                         until {} can be read completely",
                        effective.file
                    );
                    problems.push(Problem::error(reference, "", message));
                }
                Some(first) => {
                    let effective = &first.declaration.origin;
                    first.times += usize::from(effective.file == origin.file);
                    let message =
                        format!("declared at {effective} and again at {origin}; the first is in effect");
                    problems.push(Problem::error(reference, "", message));
                }
                None if objects < limit => {
                    let effective = Effective { declaration: Arc::clone(declaration), times: 1, held: false };
                    state.insert(reference.clone(), effective);
                }
                None => _ = left_out.insert(reference),
            }
        }
    }
    if !left_out.is_empty() {
        let message = format!("more than {limit} objects; the last {} have no effect", left_out.len());
        problems.push(Problem::error(Subject::Mesh, "", message));
    }
    problems.sort();
    problems.dedup();
    (state, problems)
}

/// The objects that stay as they were, since their file does not show what has become of them.
fn hold(previous: &State, scan: &Scan) -> State {
    let mut named: BTreeMap<(&str, &ObjectRef), usize> = BTreeMap::new();
    for reading in scan.files.values().filter(|reading| !reading.manifest.complete) {
        for declaration in &reading.manifest.declarations {
            *named.entry((&declaration.origin.file, &declaration.reference)).or_default() += 1;
        }
    }
    let is_held = |reference: &ObjectRef, effective: &Effective| {
        let file = &*effective.declaration.origin.file;
        !scan.knows(file) && named.get(&(file, reference)).is_none_or(|times| *times < effective.times)
    };
    let held = previous.iter().filter(|(reference, effective)| is_held(reference, effective));
    held.map(|(reference, effective)| (reference.clone(), Effective { held: true, ..effective.clone() }))
        .collect()
}

/// One problem for each file that holds objects.
fn report_held(state: &State) -> Vec<Problem> {
    let mut held: BTreeMap<&str, Vec<&ObjectRef>> = BTreeMap::new();
    for (reference, effective) in state {
        // A refused object is held as well, but it has no effect to report.
        if effective.held && effective.declaration.object.is_some() {
            held.entry(&effective.declaration.origin.file).or_default().push(reference);
        }
    }
    let report = |(file, references): (&str, Vec<&ObjectRef>)| {
        let mut named: Vec<String> = references.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if references.len() > MAX_NAMED {
            named.push(format!("{} more", references.len() - MAX_NAMED));
        }
        let message = format!(
            "cannot be read completely; what it declared earlier stays in effect until it can: {}",
            named.join(", ")
        );
        Problem::warning(Subject::file(file), "", message)
    };
    held.into_iter().map(report).collect()
}

/// Whether the step from `old` to `new` removes an object.
pub(super) fn removes(old: &State, new: &State) -> bool {
    removed(old, new).next().is_some()
}

/// The events that lead from `old` to `new`: removals first, each in order.
pub(super) fn diff(old: &State, new: &State) -> Vec<SourceEvent> {
    let removals = removed(old, new).map(|reference| SourceEvent::Remove(reference.clone()));
    let upserts = new.iter().filter_map(|(reference, Effective { declaration, .. })| {
        let before = old.get(reference).map(|before| &before.declaration);
        if before.is_some_and(|before| Arc::ptr_eq(before, declaration)) {
            return None;
        }
        let object = declaration.object.as_ref()?;
        let same = before.is_some_and(|before| before.object.as_ref() == Some(object));
        (!same).then(|| SourceEvent::Upsert(object.clone()))
    });
    removals.chain(upserts).collect()
}

fn removed<'a>(old: &'a State, new: &'a State) -> impl Iterator<Item = &'a ObjectRef> {
    let has_effect = |effective: &Effective| effective.declaration.object.is_some();
    old.iter()
        .filter(move |(_, effective)| has_effect(effective))
        .map(|(reference, _)| reference)
        .filter(move |reference| !new.get(reference).is_some_and(has_effect))
}
