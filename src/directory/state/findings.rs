//! The problems of the directory, by where they were found.
//!
//! Owns the list of them, and that it is put together only when one of them changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};

/// Problems of a whole directory; they are kept in memory, listed and compared.
const MAX_PROBLEMS: usize = 10_000;

/// Where problems are found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// By a full look, in the directories.
    Scan,
    /// In the contents of a file.
    File(Arc<str>),
    /// Between the declarations of an object.
    Object(ObjectRef),
    /// A file that holds objects.
    Held(Arc<str>),
    /// In the number of objects.
    Bound,
}

/// The problems.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    places: BTreeMap<Place, Vec<Problem>>,
    changed: bool,
    list: Vec<Problem>,
}

impl Findings {
    /// Replaces the problems of a place.
    pub(super) fn set(&mut self, place: Place, problems: Vec<Problem>) {
        if self.places.get(&place).map_or(&[][..], Vec::as_slice) == problems {
            return;
        }
        self.changed = true;
        if problems.is_empty() {
            self.places.remove(&place);
        } else {
            self.places.insert(place, problems);
        }
    }

    /// Brings the list up to date.
    pub(super) fn collect(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let mut list: Vec<Problem> = self.places.values().flatten().cloned().collect();
        list.sort();
        list.dedup();
        if list.len() > MAX_PROBLEMS {
            let message = format!("{} more problems are not shown", list.len() - MAX_PROBLEMS);
            list.truncate(MAX_PROBLEMS);
            list.push(Problem::warning(Subject::Mesh, "", message));
        }
        self.list = list;
    }

    /// All problems as of the last call of [`Self::collect`]: sorted, without duplicates, bounded.
    pub(super) fn list(&self) -> &[Problem] {
        &self.list
    }
}
