//! A whole group whose disks are older than it was: all volumes were put back from a copy.
//!
//! Owns how that is known, and the words for it. One old disk is brought up to date by the others. Where all
//! of them are old, no member knows what was committed since: which certificates were released, which CAs
//! were replaced. The record of the group, which is outside of the disks, says how far the group was.

use std::collections::BTreeMap;
use std::fmt;

use smc_raft::GroupStatus;
use thiserror::Error;

/// The field with the id of the group.
pub(super) const GROUP: &str = "group";

/// The fields of the record that a person takes away to confirm older disks: the term in which the leader
/// wrote it, and the index of an entry that was committed by then.
pub(crate) const POSITION: [&str; 2] = ["term", "entry"];

/// The beginning of what such a group waits for.
pub(crate) const CONFIRMATION: &str = "a person to confirm older disks";

/// How far a group was. Neither number ever falls while a majority of its disks stays what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// A term that had a leader.
    pub(super) term: u64,
    /// The index of a committed entry.
    pub(super) entry: u64,
}

impl Position {
    /// How far the group is, as a replica sees it that has applied it.
    pub(super) fn of(status: &GroupStatus) -> Self {
        Self { term: status.term, entry: status.applied }
    }

    /// What a record says; `None` where it does not, or not in numbers: a person may write it.
    fn recorded(record: &BTreeMap<String, String>) -> Option<Self> {
        let number = |field: &str| record.get(field)?.parse().ok();
        let [term, entry] = POSITION;
        Some(Self { term: number(term)?, entry: number(entry)? })
    }

    /// As fields of the record.
    pub(super) fn fields(self) -> impl Iterator<Item = (String, String)> {
        POSITION.into_iter().zip([self.term, self.entry]).map(|(field, n)| (field.to_owned(), n.to_string()))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} in term {}", self.entry, self.term)
    }
}

/// The disks of a majority of the group are older than it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{CONFIRMATION}: the group was at {recorded}, and its disks are at {found}. What it did in between is forgotten: \
     certificates that were released are good again, and CAs that were replaced sign again. If newer disks are left, \
     start the controllers with those; otherwise `smc cluster accept-disks` goes on with these"
)]
pub struct OlderDisks {
    recorded: Position,
    found: Position,
}

/// What `record` means for a group that a replica sees so, which has applied everything that was committed
/// when the record was read. A record of another group says nothing: a person made this one in its place, or
/// it was founded since.
pub(super) fn older_disks(record: &BTreeMap<String, String>, status: &GroupStatus) -> Option<OlderDisks> {
    let group = status.group?.to_string();
    let recorded = Position::recorded(record).filter(|_| record.get(GROUP) == Some(&group))?;
    let found = Position::of(status);
    let is_older = found.entry < recorded.entry || found.term < recorded.term;
    is_older.then_some(OlderDisks { recorded, found })
}

#[cfg(test)]
mod tests {
    use smc_authority::ledger::{AgreeOnTime, Command, Operation};
    use smc_host::env::Env;
    use smc_raft::{Group, MemoryDisk, ReplicatedLedger, Storage};
    use smc_types::ids::ReplicaId;
    use smc_types::time::Timestamp;

    use super::*;

    async fn status() -> GroupStatus {
        let storage = Storage::Memory(MemoryDisk::default());
        let group = Group::alone(ReplicaId(0), storage, &Env::system()).await.unwrap();
        let status = GroupStatus { term: 7, applied: 100, ..group.status() };
        group.stop().await;
        status
    }

    #[tokio::test]
    async fn disks_are_older_if_the_record_of_their_group_is_further() {
        let status = status().await;
        let own = status.group.unwrap().to_string();
        for (sentence, group, term, entry, older) in [
            ("the record is older, as always", &*own, "7", "90", false),
            ("nothing was committed since", &own, "7", "100", false),
            ("the disks lack an entry", &own, "7", "101", true),
            ("they lack elections, and had as many entries again", &own, "8", "90", true),
            ("the record is of the group before a restore", "other", "9", "900", false),
            ("there is no record, or a person took it away", &own, "", "", false),
            ("a person wrote nonsense", &own, "7", "many", false),
        ] {
            let fields = [(GROUP, group), (POSITION[0], term), (POSITION[1], entry)];
            let record: BTreeMap<_, _> =
                fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
            let found = older_disks(&record, &status);
            assert_eq!(found.is_some(), older, "{sentence}: {found:?}");
        }
        assert_eq!(older_disks(&BTreeMap::new(), &status), None, "an older version wrote it");
        let joining = GroupStatus { group: None, ..status };
        let record = Position { term: 9, entry: 900 }.fields().collect();
        assert_eq!(older_disks(&record, &joining), None, "a replica without a group");
    }

    /// A group that was started from this disk, has done so much, and has stopped.
    async fn restarted(disk: &MemoryDisk, commands: usize) -> GroupStatus {
        let storage = Storage::Memory(disk.clone());
        let group = Group::alone(ReplicaId(0), storage, &Env::system()).await.unwrap();
        for _ in 0..commands {
            let clocks = BTreeMap::from([(0, Timestamp(0))]);
            let operation = Operation::AgreeOnTime(AgreeOnTime { clocks });
            group.propose(vec![Command { at: Timestamp(0), operation }]).await.unwrap();
        }
        group.barrier().await.unwrap();
        let status = group.status();
        group.stop().await;
        status
    }

    #[tokio::test]
    async fn a_disk_that_is_put_back_from_a_copy_is_older() {
        let disk = MemoryDisk::default();
        restarted(&disk, 1).await;
        let copy = disk.snapshot();
        let mut record = BTreeMap::new();
        for n in 0..3 {
            let status = restarted(&disk, 5).await;
            assert_eq!(older_disks(&record, &status), None, "{n}: {record:?}");
            record = Position::of(&status).fields().collect();
            record.insert(GROUP.to_owned(), status.group.unwrap().to_string());
        }
        let put_back = restarted(&copy, 1).await;
        let older = older_disks(&record, &put_back);
        let older = older.unwrap_or_else(|| panic!("{record:?}, and {put_back:?}"));
        assert!(older.to_string().starts_with(CONFIRMATION), "{older}");
        // A person confirms it.
        record.retain(|field, _| !POSITION.contains(&&**field));
        assert_eq!(older_disks(&record, &put_back), None);
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let position = Position::of(&status().await);
        assert_eq!(position, Position { term: 7, entry: 100 });
        assert_eq!(Position::recorded(&position.fields().collect()), Some(position));
    }
}
