//! The problems of the source: of objects, of kinds, and of the whole.
//!
//! Owns the list of them, and that what many kinds have in common is said once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use smc_types::kind::{Kind, KindSpec};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};

use super::history::WentBack;
use super::{Look, Store};
use crate::source::failure::Trouble;

/// Problems of all objects; they are kept in memory, listed and compared.
const MAX_PROBLEMS: usize = 10_000;

/// The problems of objects, and the list of all.
#[derive(Debug, Default)]
pub(super) struct Findings {
    objects: BTreeMap<ObjectRef, Vec<Problem>>,
    list: Vec<Problem>,
}

impl Findings {
    /// Replaces the problems of an object.
    pub(super) fn set(&mut self, reference: &ObjectRef, problems: Vec<Problem>) {
        if problems.is_empty() {
            self.objects.remove(reference);
        } else {
            self.objects.insert(reference.clone(), problems);
        }
    }

    /// Whether these are the problems of an object.
    pub(super) fn are(&self, reference: &ObjectRef, problems: &[Problem]) -> bool {
        self.objects.get(reference).is_some_and(|known| known == problems)
    }

    /// All problems as of the last collection: sorted, without duplicates, bounded.
    pub(super) fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl Store {
    /// Brings the list of problems up to date. Returns whether it differs.
    pub(super) fn collect_problems(&mut self, more: &[Problem]) -> bool {
        let mut list: Vec<Problem> =
            self.findings.objects.values().flatten().take(MAX_PROBLEMS).cloned().collect();
        let count: usize = self.findings.objects.values().map(Vec::len).sum();
        if count > MAX_PROBLEMS {
            let message = format!("{} more problems are not shown", count - MAX_PROBLEMS);
            list.push(Problem::warning(Subject::ApiServer, "", message));
        }
        list.extend(self.troubles());
        list.extend(self.missing());
        list.extend(self.whole());
        list.extend_from_slice(more);
        list.sort();
        list.dedup();
        let differs = list != self.findings.list;
        self.findings.list = list;
        differs
    }

    /// One problem for each reason why kinds cannot be read.
    fn troubles(&self) -> Vec<Problem> {
        let mut kinds: BTreeMap<&Trouble, Vec<Kind>> = BTreeMap::new();
        if self.silent {
            kinds.insert(&Trouble::Unreachable, Vec::new());
        }
        for (kind, collection) in &self.kinds {
            if let Some(trouble) = &collection.trouble {
                kinds.entry(trouble).or_default().push(*kind);
            }
        }
        let problem = |(trouble, kinds): (&Trouble, Vec<Kind>)| {
            let what = if kinds.is_empty() { String::new() } else { format!(" ({})", names(&kinds)) };
            let message = format!("{trouble}{what}; what was read stays in effect");
            Problem::error(Subject::ApiServer, "", message)
        };
        kinds.into_iter().map(problem).collect()
    }

    /// A problem for each kind that is not served. One that is refused is served again.
    fn missing(&self) -> Vec<Problem> {
        let problem = |kind: &Kind, others: &BTreeSet<String>| {
            let KindSpec { advertised, .. } = kind.spec();
            let mut message = format!("does not serve {kind} ({advertised})");
            if !others.is_empty() {
                let others: Vec<&str> = others.iter().map(String::as_str).collect();
                // Writing to a string does not fail.
                let _ = write!(message, ", only {}", others.join(", "));
            }
            message.push_str("; install its definition; until then, there are no such objects");
            Some(Problem::warning(Subject::ApiServer, "", message))
        };
        let missing = |(kind, collection): (&Kind, &super::Collection)| match &collection.look {
            Look::Missing(others) if collection.trouble.is_none() => problem(kind, others),
            Look::Missing(_) | Look::None | Look::Listed => None,
        };
        self.kinds.iter().filter_map(missing).collect()
    }

    /// The problems of the whole.
    fn whole(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.completeness.restored.is_some() && !self.is_synced() {
            let unread: Vec<Kind> = self
                .kinds
                .iter()
                .filter(|(_, collection)| collection.look == Look::None)
                .map(|(kind, _)| *kind)
                .collect();
            let message = format!(
                "has not been read since the start (missing: {}); the last known mesh is served",
                names(&unread)
            );
            problems.push(Problem::error(Subject::ApiServer, "", message));
        }
        if let Some(WentBack { from, to }) = self.history.went_back() {
            let message = format!(
                "went back to an older state: it had come to version {from}, and then named version {to}, as after \
                 a restored backup of etcd; everything is listed again, and what it has now is served"
            );
            problems.push(Problem::warning(Subject::ApiServer, "", message));
        }
        problems.extend(self.shortages());
        problems
    }
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}
