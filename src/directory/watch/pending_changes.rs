//! What events named and no look has covered yet.
//!
//! Pure. A change is finished when a file was closed by its writer, renamed, or removed: it can be looked at
//! at once. Between the first write and the close it is being written, and a reader would see half of it.
//! What only begins to exist (a directory, a link) is taken for unfinished too: more will follow, and a
//! directory is watched only a moment after it was made.

use std::collections::BTreeSet;
use std::path::Path;

use notify::Event;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RemoveKind, RenameMode};

use crate::scope::Scope;

/// Paths that are kept apart. Beyond, one full look costs less than so many single ones.
const MAX_PATHS: usize = 1_000;

/// Paths within the mesh directory, with `/` between names.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    finished: BTreeSet<String>,
    unfinished: BTreeSet<String>,
    /// Anything may have changed, and may still change: events were lost, or are too many.
    everything: bool,
    /// Events so far of what was unfinished.
    count: u64,
}

impl PendingChanges {
    /// Takes note of an event. Returns whether there is something to look at, now or soon.
    pub(super) fn add(&mut self, directory: &Path, event: &Event) -> bool {
        if event.need_rescan() {
            self.add_everything();
            return true;
        }
        let finished = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
            // Reading, which every look causes, and a rename, of which the events of both names tell.
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return false,
            EventKind::Remove(RemoveKind::Folder) => false,
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => true,
            // An open file may get other permissions before it is complete.
            EventKind::Modify(ModifyKind::Metadata(_)) => !event
                .paths
                .iter()
                .any(|path| within(directory, path).is_some_and(|p| self.unfinished.contains(&p))),
            EventKind::Create(_) | EventKind::Modify(_) => false,
            EventKind::Any | EventKind::Other => {
                self.add_everything();
                return true;
            }
        };
        for path in &event.paths {
            // The directory itself, or a name that is not UTF-8.
            let Some(path) = within(directory, path).filter(|path| !path.is_empty()) else {
                self.add_everything();
                continue;
            };
            if finished {
                self.unfinished.remove(&path);
                self.finished.insert(path);
            } else {
                self.count += 1;
                self.unfinished.insert(path);
            }
        }
        if self.finished.len() + self.unfinished.len() > MAX_PATHS {
            self.add_everything();
        }
        true
    }

    /// Takes note that anything may have changed.
    pub(super) fn add_everything(&mut self) {
        *self = Self { everything: true, count: self.count + 1, ..Self::default() };
    }

    /// How many events there were of what was unfinished; `None` if nothing is now.
    pub(super) fn unfinished(&self) -> Option<u64> {
        (self.everything || !self.unfinished.is_empty()).then_some(self.count)
    }

    /// What is finished.
    pub(super) fn take_finished(&mut self) -> Option<Scope> {
        let finished = std::mem::take(&mut self.finished);
        (!finished.is_empty()).then_some(Scope::At(finished))
    }

    /// Everything.
    pub(super) fn take_all(&mut self) -> Option<Scope> {
        let rest = Self { count: self.count, ..Self::default() };
        let Self { mut finished, unfinished, everything, .. } = std::mem::replace(self, rest);
        if everything {
            return Some(Scope::Full);
        }
        finished.extend(unfinished);
        (!finished.is_empty()).then_some(Scope::At(finished))
    }
}

/// The path within the directory.
fn within(directory: &Path, path: &Path) -> Option<String> {
    path.strip_prefix(directory).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, Flag, MetadataKind};

    use super::*;

    const CREATED: EventKind = EventKind::Create(CreateKind::File);
    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const PERMISSIONS: EventKind = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));

    fn renamed(mode: RenameMode) -> EventKind {
        EventKind::Modify(ModifyKind::Name(mode))
    }

    fn at(paths: &[&str]) -> Option<Scope> {
        (!paths.is_empty()).then(|| Scope::At(paths.iter().map(|&path| path.to_owned()).collect()))
    }

    /// What is finished, and what is not, after these events.
    fn after(events: &[(EventKind, &str)]) -> (Option<Scope>, Option<Scope>) {
        let mut noticed = PendingChanges::default();
        for &(kind, path) in events {
            noticed.add(Path::new("/mesh"), &Event::new(kind).add_path(path.into()));
        }
        (noticed.take_finished(), noticed.take_all())
    }

    #[test]
    fn reading_is_not_noticed_and_every_change_is() {
        for (kind, noticed) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (EventKind::Access(AccessKind::Read), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), false),
            (renamed(RenameMode::Both), false),
            (CLOSED, true),
            (CREATED, true),
            (EventKind::Create(CreateKind::Folder), true),
            (WRITTEN, true),
            (PERMISSIONS, true),
            (renamed(RenameMode::From), true),
            (renamed(RenameMode::To), true),
            (EventKind::Remove(RemoveKind::Folder), true),
            (EventKind::Other, true),
            (EventKind::Any, true),
        ] {
            let event = Event::new(kind).add_path("/mesh/a.yaml".into());
            let mut state = PendingChanges::default();
            assert_eq!(state.add(Path::new("/mesh"), &event), noticed, "{kind:?}");
            assert_eq!(state.take_all().is_some(), noticed, "{kind:?}");
        }
    }

    #[test]
    fn a_change_is_finished_when_its_file_is_closed_renamed_or_removed() {
        let a = "/mesh/below/a.yaml";
        for (events, finished, unfinished) in [
            (&[(CREATED, a), (WRITTEN, a)][..], &[][..], &["below/a.yaml"][..]),
            (&[(CREATED, a), (WRITTEN, a), (CLOSED, a)], &["below/a.yaml"], &[]),
            (&[(CREATED, a), (PERMISSIONS, a)], &[], &["below/a.yaml"]),
            (&[(PERMISSIONS, a)], &["below/a.yaml"], &[]),
            (&[(CLOSED, a), (WRITTEN, a)], &["below/a.yaml"], &["below/a.yaml"]),
            (
                &[(renamed(RenameMode::From), "/mesh/x"), (renamed(RenameMode::To), "/mesh/y")],
                &["x", "y"],
                &[],
            ),
            (&[(EventKind::Remove(RemoveKind::File), a)], &["below/a.yaml"], &[]),
            (&[(EventKind::Create(CreateKind::Folder), "/mesh/new")], &[], &["new"]),
        ] {
            assert_eq!(after(events), (at(finished), at(unfinished)), "{events:?}");
        }
    }

    #[test]
    fn lost_events_unknown_paths_and_floods_take_a_full_look() {
        let (all, directory) = ((None, Some(Scope::Full)), Path::new("/mesh"));
        assert_eq!(after(&[(CLOSED, "/mesh")]), all);
        assert_eq!(after(&[(CLOSED, "/elsewhere/a.yaml")]), all);
        assert_eq!(after(&[(EventKind::Other, "/mesh/a.yaml")]), all);
        let mut lost = PendingChanges::default();
        assert!(lost.add(directory, &Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        assert_eq!(lost.unfinished(), Some(1));
        assert_eq!(lost.take_all(), Some(Scope::Full));
        let mut flooded = PendingChanges::default();
        for n in 0..=MAX_PATHS {
            flooded.add(directory, &Event::new(CLOSED).add_path(format!("/mesh/{n}.yaml").into()));
        }
        assert_eq!((flooded.take_finished(), flooded.take_all()), (None, Some(Scope::Full)));
    }
}
