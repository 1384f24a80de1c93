//! The state that the files declare: which declaration of an object is in effect, what a broken file keeps,
//! and what differs when files change.
//!
//! Pure. The rules, each about one object, so that a change costs the objects that its files name:
//!
//! - If an object is declared twice, the first declaration is in effect, by path, then by position. The
//!   others are reported. They do not take effect if the first was refused.
//! - If a file cannot be read completely and names an object less often than before (as a rule: no longer),
//!   the object stays as it was until the file can be read, whatever other files declare. A typing error must
//!   neither remove endpoints or policy, nor bring another declaration into effect. `kubectl apply` of a
//!   broken file likewise changes nothing.
//! - An object that is named but refused loses its effect at once, so that a rule that cannot be understood
//!   allows nothing.

mod findings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_api::object::SourceEvent;
use smc_decode::manifest::{Declaration, Manifest};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};

use self::findings::{Findings, Place};
use super::scan::Scan;
use crate::last_good::Kept;

/// Objects of a whole directory. The catalog is designed for a tenth of this.
const MAX_OBJECTS: usize = 100_000;
/// Objects that one problem names.
const MAX_NAMED: usize = 5;

/// The declaration in effect of every object that is named.
type State = BTreeMap<ObjectRef, Effective>;

/// The declarations of every object: by file, then in the order of the file. None of the lists is empty.
/// One table for all objects, most of which are declared once: a table for each would take half a kilobyte.
type Named = BTreeMap<(ObjectRef, Arc<str>), Vec<Arc<Declaration>>>;

/// The declaration of one object that is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Effective {
    declaration: Arc<Declaration>,
    /// How often its file names the object. Of two, either may be the one that cannot be read next time.
    times: usize,
    /// Whether it is of an earlier look, since its file cannot be read completely now.
    held: bool,
}

impl Effective {
    fn file(&self) -> &Arc<str> {
        &self.declaration.origin.file
    }
}

/// The objects that the files declare, and those in effect.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    /// All declarations of the files as they are now.
    named: Named,
    state: State,
    /// The objects in effect, by the file of the declaration.
    by_file: BTreeMap<Arc<str>, BTreeSet<ObjectRef>>,
    /// Objects of which another declaration may have to be in effect since the last commit.
    stale: BTreeSet<ObjectRef>,
    /// Objects that are left out because there are more than [`MAX_OBJECTS`].
    left_out: BTreeSet<ObjectRef>,
    findings: Findings,
    limit: usize,
    /// How many objects were merged so far: what the changes have cost.
    merged: usize,
}

/// What a commit would change: the declarations in effect that differ, `None` for an object that is gone.
pub(super) struct Changes {
    effective: BTreeMap<ObjectRef, Option<Effective>>,
    left_out: BTreeSet<ObjectRef>,
}

/// What a commit has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Committed {
    /// The events that lead from the previous state to this one: removals first, each in order.
    pub(super) events: Vec<SourceEvent>,
    /// The files whose objects in effect may differ.
    pub(super) files: BTreeSet<Arc<str>>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            named: BTreeMap::new(),
            state: State::new(),
            by_file: BTreeMap::new(),
            stale: BTreeSet::new(),
            left_out: BTreeSet::new(),
            findings: Findings::default(),
            limit: MAX_OBJECTS,
            merged: 0,
        }
    }
}

impl Objects {
    /// The objects that were in effect before the start. Of an object that was kept twice, the first counts.
    pub(super) fn kept(kept: impl IntoIterator<Item = Kept>) -> Self {
        let mut objects = Self::default();
        for Kept { declaration, times } in kept {
            let reference = declaration.reference.clone();
            if !objects.state.contains_key(&reference) {
                objects.set(reference, Some(Effective { declaration, times, held: false }));
            }
        }
        objects
    }

    /// Whether no object is in effect.
    pub(super) fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// How many objects were merged so far.
    pub(super) fn merged(&self) -> usize {
        self.merged
    }

    /// The files that declare an object in effect.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_file.keys()
    }

    /// The objects in effect that a file declares, or declared while it could be read.
    pub(super) fn of_file(&self, file: &str) -> Vec<Kept> {
        let references = self.by_file.get(file).into_iter().flatten();
        let effective = references.filter_map(|reference| self.state.get(reference));
        effective
            .map(|Effective { declaration, times, .. }| Kept {
                declaration: Arc::clone(declaration),
                times: *times,
            })
            .collect()
    }

    /// All problems, as of the last commit: sorted, without duplicates, bounded.
    pub(super) fn problems(&self) -> &[Problem] {
        self.findings.list()
    }

    /// The events that create the whole state.
    pub(super) fn whole(&self) -> Vec<SourceEvent> {
        let objects = self.state.values().filter_map(|effective| effective.declaration.object.clone());
        objects.map(SourceEvent::Upsert).collect()
    }

    /// Takes note of a file that is new, differs, or is gone.
    pub(super) fn replace_file(&mut self, file: &str, old: Option<&Manifest>, new: Option<&Manifest>) {
        for declaration in old.into_iter().flat_map(|manifest| &manifest.declarations) {
            let Declaration { reference, origin, .. } = &**declaration;
            self.named.remove(&(reference.clone(), Arc::clone(&origin.file)));
            self.stale.insert(reference.clone());
        }
        for declaration in new.into_iter().flat_map(|manifest| &manifest.declarations) {
            let (reference, file) = (&declaration.reference, &declaration.origin.file);
            let named = self.named.entry((reference.clone(), Arc::clone(file))).or_default();
            named.push(Arc::clone(declaration));
            self.stale.insert(reference.clone());
        }
        self.doubt(file);
        let problems = new.map(|manifest| manifest.problems.clone()).unwrap_or_default();
        self.findings.set(Place::File(file.into()), problems);
    }

    /// Takes note that other things are known about a file than before.
    fn doubt(&mut self, file: &str) {
        self.stale.extend(self.by_file.get(file).into_iter().flatten().cloned());
    }

    /// Takes note of a full look. Costs a pass over the files, and what differs.
    pub(super) fn replace_all(&mut self, old: &Scan, new: &Scan) {
        for (file, reading) in old.files.iter().filter(|(file, _)| !new.files.contains_key(*file)) {
            self.replace_file(file, Some(&reading.manifest), None);
        }
        for (file, reading) in &new.files {
            let known = old.files.get(file).map(|known| &known.manifest);
            if !known.is_some_and(|known| Arc::ptr_eq(known, &reading.manifest)) {
                self.replace_file(file, known.map(|known| &**known), Some(&reading.manifest));
            }
        }
        // Such a file is gone or cannot be read, and may have been either before.
        let without: Vec<_> =
            self.by_file.keys().filter(|file| !new.files.contains_key(&***file)).cloned().collect();
        for file in without {
            self.doubt(&file);
        }
        self.findings.set(Place::Scan, new.problems.clone());
    }

    /// What a commit would change now; `scan` are the files.
    pub(super) fn changes(&mut self, scan: &Scan) -> Changes {
        self.merged += self.stale.len();
        let mut changes = Changes { effective: BTreeMap::new(), left_out: BTreeSet::new() };
        for reference in &self.stale {
            let new = self.effective(reference, scan);
            if self.state.get(reference) != new.as_ref() {
                changes.effective.insert(reference.clone(), new);
            }
        }
        let gone = |new: &&Option<Effective>| new.is_none();
        let most =
            self.state.len() + changes.effective.len() - changes.effective.values().filter(gone).count();
        if most > self.limit || !self.left_out.is_empty() {
            self.leave_out(scan, &mut changes);
        }
        changes
    }

    /// The declarations of an object, by file.
    fn declarations<'a>(
        &'a self,
        reference: &'a ObjectRef,
    ) -> impl Iterator<Item = &'a Vec<Arc<Declaration>>> {
        let named = self.named.range((reference.clone(), "".into())..);
        named.take_while(move |((named, _), _)| named == reference).map(|(_, declarations)| declarations)
    }

    /// The declaration of an object that is to be in effect.
    fn effective(&self, reference: &ObjectRef, scan: &Scan) -> Option<Effective> {
        if let Some(previous) = self.state.get(reference) {
            let at = (reference.clone(), Arc::clone(previous.file()));
            let times = self.named.get(&at).map_or(0, Vec::len);
            if !scan.knows(previous.file()) && times < previous.times {
                return Some(Effective { held: true, ..previous.clone() });
            }
        }
        let declarations = self.declarations(reference).next()?;
        let declaration = Arc::clone(declarations.first()?);
        Some(Effective { declaration, times: declarations.len(), held: false })
    }

    /// Leaves out what exceeds the bound: the last objects in the order of files, and none that is held.
    /// Costs a pass over all objects, while there are so many.
    fn leave_out(&self, scan: &Scan, changes: &mut Changes) {
        let held = |reference: &ObjectRef| {
            let new = changes.effective.get(reference);
            let effective = new.map_or_else(|| self.state.get(reference), Option::as_ref);
            effective.is_some_and(|effective| effective.held)
        };
        let all: BTreeSet<&ObjectRef> = self.state.keys().chain(changes.effective.keys()).collect();
        let mut allowed: BTreeSet<&ObjectRef> = all.into_iter().filter(|reference| held(reference)).collect();
        let mut left_out = BTreeSet::new();
        let manifests = scan.files.values().map(|reading| &reading.manifest);
        for declaration in manifests.flat_map(|manifest| &manifest.declarations) {
            let reference = &declaration.reference;
            if allowed.len() < self.limit {
                allowed.insert(reference);
            } else if !allowed.contains(reference) {
                left_out.insert(reference.clone());
            }
        }
        for reference in self.left_out.difference(&left_out) {
            if let Some(new) = self.effective(reference, scan) {
                changes.effective.insert(reference.clone(), Some(new));
            }
        }
        for reference in &left_out {
            changes.effective.remove(reference);
            if self.state.contains_key(reference) {
                changes.effective.insert(reference.clone(), None);
            }
        }
        changes.left_out = left_out;
    }

    /// Whether the changes take an object out of effect.
    pub(super) fn removes(&self, changes: &Changes) -> bool {
        let is_removal = |(reference, new): (&ObjectRef, &Option<Effective>)| {
            in_effect(self.state.get(reference)) && !in_effect(new.as_ref())
        };
        changes.effective.iter().any(is_removal)
    }

    /// Brings the changes into effect, which [`Self::changes`] has just computed.
    pub(super) fn commit(&mut self, changes: Changes) -> Committed {
        let Changes { effective, left_out } = changes;
        let mut committed = Committed::default();
        let mut upserts = Vec::new();
        let mut stale = std::mem::take(&mut self.stale);
        stale.extend(effective.keys().cloned());
        for (reference, new) in effective {
            let old = self.state.get(&reference);
            committed.files.extend(old.into_iter().chain(&new).map(|effective| Arc::clone(effective.file())));
            let before = old.and_then(|old| old.declaration.object.as_ref());
            match new.as_ref().and_then(|new| new.declaration.object.as_ref()) {
                Some(object) if before == Some(object) => {}
                Some(object) => upserts.push(SourceEvent::Upsert(object.clone())),
                None if before.is_some() => committed.events.push(SourceEvent::Remove(reference.clone())),
                None => {}
            }
            self.set(reference, new);
        }
        committed.events.extend(upserts);
        for reference in &stale {
            self.findings.set(Place::Object(reference.clone()), self.conflicts(reference));
        }
        for file in &committed.files {
            self.findings.set(Place::Held(Arc::clone(file)), self.report_held(file));
        }
        if left_out != self.left_out {
            let message =
                format!("more than {} objects; the last {} have no effect", self.limit, left_out.len());
            let problem = (!left_out.is_empty()).then(|| Problem::error(Subject::Mesh, "", message));
            self.findings.set(Place::Bound, problem.into_iter().collect());
            self.left_out = left_out;
        }
        self.findings.collect();
        committed
    }

    fn set(&mut self, reference: ObjectRef, new: Option<Effective>) {
        let new_file = new.as_ref().map(|new| Arc::clone(new.file()));
        let old = match new {
            Some(new) => self.state.insert(reference.clone(), new),
            None => self.state.remove(&reference),
        };
        if let Some(old) = old
            && let Some(references) = self.by_file.get_mut(old.file())
        {
            references.remove(&reference);
            if references.is_empty() {
                self.by_file.remove(old.file());
            }
        }
        if let Some(file) = new_file {
            self.by_file.entry(file).or_default().insert(reference);
        }
    }

    /// The declarations of an object that have no effect because another one has.
    fn conflicts(&self, reference: &ObjectRef) -> Vec<Problem> {
        let Some(Effective { declaration, held, .. }) = self.state.get(reference) else { return Vec::new() };
        let effective = &declaration.origin;
        let declarations = self.declarations(reference).flatten();
        let report = |other: &Arc<Declaration>| {
            let origin = &other.origin;
            let message = if *held {
                format!(
                    "declared at {origin}, which has no effect: the declaration at {effective} stays in effect \
                     until {} can be read completely",
                    effective.file
                )
            } else {
                format!("declared at {effective} and again at {origin}; the first is in effect")
            };
            Problem::error(reference, "", message)
        };
        declarations.skip(usize::from(!held)).map(report).collect()
    }

    /// The problem of a file that holds objects.
    fn report_held(&self, file: &Arc<str>) -> Vec<Problem> {
        let references = self.by_file.get(file).into_iter().flatten();
        // A refused object is held as well, but it has no effect to report.
        let is_held = |reference: &&ObjectRef| {
            let effective = self.state.get(reference);
            effective.is_some_and(|effective| effective.held && effective.declaration.object.is_some())
        };
        let held: Vec<&ObjectRef> = references.filter(is_held).collect();
        if held.is_empty() {
            return Vec::new();
        }
        let mut named: Vec<String> = held.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if held.len() > MAX_NAMED {
            named.push(format!("{} more", held.len() - MAX_NAMED));
        }
        let message = format!(
            "cannot be read completely; what it declared earlier stays in effect until it can: {}",
            named.join(", ")
        );
        vec![Problem::warning(Subject::file(Arc::clone(file)), "", message)]
    }
}

fn in_effect(effective: Option<&Effective>) -> bool {
    effective.is_some_and(|effective| effective.declaration.object.is_some())
}

#[cfg(test)]
mod tests;
