//! What the server's store held, at every version of every line of time.
//!
//! Owns versions, changes and compaction. The server answers from the line of time that it is on; the judge
//! reads all that ever was. A return to an older state begins another line: versions of the old line that
//! are later come again with other content.

use std::collections::BTreeMap;

use imbl::OrdMap;
use smc_types::object_ref::Kind;
use tokio::time::Instant;

/// The number of a namespace, and that of an object in it. Of a Namespace, the second is 0.
pub type Key = (u16, u16);

/// The number of the control plane's namespace.
pub const OWN: u16 = 0;

/// What an object is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A good object; of a Namespace, one of the mesh.
    Good,
    /// A Namespace that is not of the mesh.
    Outside,
    /// An object whose fields cannot be read; it is refused.
    Refused,
    /// An object of another shape; it is refused.
    Misshapen,
    /// An object with so many levels; it is refused.
    Deep(u16),
    /// An object with so many values; it is refused.
    Wide(u16),
    /// One that a story has written, by number.
    Written(u32),
}

/// An object in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// What tells one content from another.
    pub mark: u32,
    /// What it is like.
    pub form: Form,
    /// The version of its latest change.
    pub version: u64,
}

/// All objects of a kind.
pub type Objects = OrdMap<Key, Held>;

/// A change of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub key: Key,
    /// What it was.
    pub before: Option<Held>,
    /// What it is.
    pub after: Option<Held>,
}

/// A moment of a kind: a change, or a return to an older state.
#[derive(Debug, Clone)]
pub struct Moment {
    /// The version, on the line of time of its moment.
    pub version: u64,
    /// When it came.
    pub at: Instant,
    /// The latest change; `None` before the first.
    pub change: Option<Change>,
    /// Whether it is a return to an older state, whose latest change is `change`.
    pub returned: bool,
    /// What there is from it on.
    pub objects: Objects,
}

/// The moments of one kind.
#[derive(Debug)]
struct Moments {
    /// In the order in which they came.
    all: Vec<Moment>,
    /// Those of the present line of time, by version: indices of `all`.
    line: Vec<usize>,
}

/// The history.
#[derive(Debug)]
pub struct History {
    kinds: BTreeMap<Kind, Moments>,
    /// Every version of the present line, and when it came.
    commits: Vec<(u64, Instant)>,
    compacted: u64,
    marks: u32,
}

impl History {
    /// Nothing, at this version.
    pub fn new(version: u64, now: Instant) -> Self {
        let moments = || {
            let first = Moment { version, at: now, change: None, returned: false, objects: Objects::new() };
            Moments { all: vec![first], line: vec![0] }
        };
        let kinds = Kind::ALL.iter().map(|kind| (*kind, moments())).collect();
        Self { kinds, commits: vec![(version, now)], compacted: 0, marks: 0 }
    }

    /// The latest version.
    pub fn version(&self) -> u64 {
        self.commits.last().map_or(0, |(version, _)| *version)
    }

    /// The first version from which a watch can go on.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// A mark that no object had.
    pub fn fresh_mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    /// Creates an object or replaces it.
    pub fn put(&mut self, kind: Kind, key: Key, form: Form, now: Instant) {
        let mark = self.fresh_mark();
        self.change(kind, key, Some((mark, form)), now);
    }

    /// Deletes an object, if there is one.
    pub fn delete(&mut self, kind: Kind, key: Key, now: Instant) {
        if self.objects(kind).contains_key(&key) {
            self.change(kind, key, None, now);
        }
    }

    fn change(&mut self, kind: Kind, key: Key, content: Option<(u32, Form)>, now: Instant) {
        // Other resources change, too: their changes take versions.
        let version = self.version() + 1 + u64::from(self.marks % 3);
        self.commits.push((version, now));
        let Some(moments) = self.kinds.get_mut(&kind) else { return };
        let mut objects = moments.latest().objects.clone();
        let after = content.map(|(mark, form)| Held { mark, form, version });
        let before = match after {
            Some(held) => objects.insert(key, held),
            None => objects.remove(&key),
        };
        let change = Some(Change { key, before, after });
        moments.line.push(moments.all.len());
        moments.all.push(Moment { version, at: now, change, returned: false, objects });
    }

    /// Forgets the changes so far.
    pub fn compact(&mut self) {
        self.compacted = self.version();
    }

    /// The version that was the latest so many changes ago.
    pub fn before(&self, changes: usize) -> u64 {
        let at = self.commits.len().saturating_sub(changes + 1);
        self.commits.get(at).map_or(0, |(version, _)| *version)
    }

    /// Goes back to what there was at a version, as a store does that is restored from a backup.
    pub fn return_to(&mut self, version: u64, now: Instant) {
        self.commits.retain(|(commit, _)| *commit <= version);
        self.compacted = self.compacted.min(version);
        for moments in self.kinds.values_mut() {
            let all = &moments.all;
            moments.line.retain(|at| all[*at].version <= version);
            let again = Moment { at: now, returned: true, ..moments.latest().clone() };
            moments.line.pop();
            moments.line.push(moments.all.len());
            moments.all.push(again);
        }
    }

    /// What there is of a kind.
    pub fn objects(&self, kind: Kind) -> &Objects {
        &self.moments(kind).latest().objects
    }

    /// What there was of a kind at a version of the present line.
    pub fn objects_at(&self, kind: Kind, version: u64) -> &Objects {
        let moments = self.moments(kind);
        let after = moments.line.partition_point(|at| moments.all[*at].version <= version);
        let at = moments.line[after.saturating_sub(1)];
        &moments.all[at].objects
    }

    /// The changes of a kind on the present line after one version and up to another.
    pub fn changes(&self, kind: Kind, after: u64, up_to: u64) -> impl Iterator<Item = (u64, Change)> {
        let moments = self.moments(kind);
        let first = moments.line.partition_point(|at| moments.all[*at].version <= after);
        let moments = moments.line[first..].iter().map(|at| &moments.all[*at]);
        let moments = moments.take_while(move |moment| moment.version <= up_to);
        moments.filter_map(|moment| Some((moment.version, moment.change?)))
    }

    /// The version of the latest change of a kind up to a version.
    pub fn changed(&self, kind: Kind, up_to: u64) -> u64 {
        let moments = self.moments(kind);
        let after = moments.line.partition_point(|at| moments.all[*at].version <= up_to);
        moments.all[moments.line[after.saturating_sub(1)]].version
    }

    /// When the next change of a kind after a version came.
    pub fn changed_after(&self, kind: Kind, version: u64) -> Option<Instant> {
        let moments = self.moments(kind);
        let next = moments.line.partition_point(|at| moments.all[*at].version <= version);
        moments.line.get(next).map(|at| moments.all[*at].at)
    }

    /// The latest version that is at least so old.
    pub fn version_before(&self, at: Instant) -> u64 {
        let after = self.commits.partition_point(|(_, came)| *came <= at);
        self.commits.get(after.saturating_sub(1)).map_or(0, |(version, _)| *version)
    }

    /// When a version came, or the next one after it.
    pub fn came(&self, version: u64) -> Option<Instant> {
        let at = self.commits.partition_point(|(commit, _)| *commit < version);
        self.commits.get(at).map(|(_, came)| *came)
    }

    /// All moments of a kind, in the order in which they came.
    pub fn all(&self, kind: Kind) -> &[Moment] {
        &self.moments(kind).all
    }

    fn moments(&self, kind: Kind) -> &Moments {
        // Every kind has an entry from the beginning on.
        &self.kinds[&kind]
    }
}

impl Moments {
    fn latest(&self) -> &Moment {
        // A line is never empty: it begins with a moment, and a return keeps one.
        &self.all[self.line[self.line.len() - 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_brings_back_the_state_and_the_versions_come_again() {
        let now = Instant::now();
        let mut history = History::new(10, now);
        let pods = |history: &History| history.objects(Kind::Pod).keys().copied().collect::<Vec<_>>();
        history.put(Kind::Pod, (1, 1), Form::Good, now);
        history.put(Kind::Pod, (1, 2), Form::Good, now);
        let older = history.before(1);
        let lost = history.version();
        assert_eq!(pods(&history), [(1, 1), (1, 2)]);
        assert_eq!(history.changes(Kind::Pod, 10, lost).count(), 2);
        history.return_to(older, now);
        assert_eq!(pods(&history), [(1, 1)]);
        assert_eq!(history.version(), older);
        assert_eq!(history.changes(Kind::Pod, older, u64::MAX).count(), 0);
        while history.version() <= lost {
            history.put(Kind::Pod, (1, 3), Form::Good, now);
        }
        assert_eq!(pods(&history), [(1, 1), (1, 3)]);
        assert!(!history.objects_at(Kind::Pod, lost).contains_key(&(1, 2)));
        assert!(history.all(Kind::Pod).iter().any(|moment| moment.objects.contains_key(&(1, 2))));
    }
}
