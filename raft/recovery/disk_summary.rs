//! What several disks hold, in short: which of them a new group is made of.
//!
//! Owns the comparison, and the form in which another process tells it. A program that stands outside of the
//! machines, as in a cluster, has each disk described where it is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Inspection;

/// A disk in short. The fields that compare stand first, from the most to the least: a disk whose replica
/// did not leave its group, a group that a person made later, then the more complete log
/// ([`Inspection::term`], [`Inspection::last`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DiskSummary {
    /// Whether its replica is a member still, as far as the disk says: one that left has the log of that
    /// time.
    pub member: bool,
    /// When a person made the group, by a restore or a recovery, in milliseconds since 1970; none if it was
    /// founded.
    pub group_made_at: Option<u64>,
    /// The term of the last entry.
    pub term: u64,
    /// The index of the last entry.
    pub last: u64,
    /// The group.
    pub group: String,
    /// Which replica.
    pub replica: u64,
    /// The voters, as this replica last knew them.
    pub voters: BTreeSet<u64>,
}

/// What can be done with the disks that are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remains {
    /// They are a majority of the latest group: it goes on when they run, and nothing is lost.
    Majority(DiskSummary),
    /// This one has the most; what only the lost ones had is lost.
    Best(DiskSummary),
    /// They are of several groups, sorted, of which nothing says which one counts.
    Several(Vec<String>),
}

impl DiskSummary {
    /// The summary of a disk. `left` says that its replica has left the group.
    pub fn of(inspection: &Inspection, left: bool) -> Self {
        Self {
            member: !left,
            group_made_at: inspection.group.made_at(),
            term: inspection.term,
            last: inspection.last,
            group: inspection.group.to_string(),
            replica: inspection.replica.0,
            voters: inspection.voters.iter().map(|voter| voter.0).collect(),
        }
    }
}

/// What can be done with these disks; `None` if there are none.
pub fn remains(disks: &[DiskSummary]) -> Option<Remains> {
    let best = disks.iter().max()?.clone();
    let equal = |disk: &&DiskSummary| (disk.member, disk.group_made_at) == (best.member, best.group_made_at);
    let groups: BTreeSet<_> = disks.iter().filter(equal).map(|disk| disk.group.clone()).collect();
    if groups.len() > 1 {
        return Some(Remains::Several(groups.into_iter().collect()));
    }
    let votes =
        |disk: &&DiskSummary| disk.member && disk.group == best.group && best.voters.contains(&disk.replica);
    let majority = disks.iter().filter(votes).count() > best.voters.len() / 2;
    Some(if majority { Remains::Majority(best) } else { Remains::Best(best) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(replica: u64, group: &str, made_at: Option<u64>, (term, last): (u64, u64)) -> DiskSummary {
        let voters = (0..3).collect();
        let group = group.to_owned();
        DiskSummary { member: true, group_made_at: made_at, term, last, group, replica, voters }
    }

    fn left(disk: DiskSummary) -> DiskSummary {
        DiskSummary { member: false, ..disk }
    }

    #[test]
    fn a_new_group_is_made_of_the_disk_that_has_the_most() {
        for (sentence, disks, expected) in [
            ("one of three", vec![disk(1, "a", None, (3, 9))], Some((1, false))),
            ("two of three", vec![disk(1, "a", None, (3, 9)), disk(2, "a", None, (3, 8))], Some((1, true))),
            (
                "the later group, with less",
                vec![disk(0, "a", None, (7, 90)), disk(1, "b", Some(5), (2, 2)), disk(2, "a", None, (7, 91))],
                Some((1, false)),
            ),
            (
                "the later term, and then the longer log",
                vec![disk(0, "a", None, (3, 9)), disk(2, "a", None, (2, 12)), disk(1, "a", None, (3, 10))],
                Some((1, true)),
            ),
            (
                "one that left counts for nothing beside a member",
                vec![
                    disk(0, "a", None, (1, 2)),
                    left(disk(1, "a", None, (3, 9))),
                    left(disk(2, "a", None, (3, 9))),
                ],
                Some((0, false)),
            ),
            (
                "if nothing else is left, it is the best",
                vec![left(disk(2, "a", None, (3, 9)))],
                Some((2, false)),
            ),
            (
                "two groups that were founded",
                vec![disk(0, "a", None, (3, 9)), disk(4, "b", None, (40, 1))],
                None,
            ),
            ("none", vec![], None),
        ] {
            let found = remains(&disks).and_then(|remains| match remains {
                Remains::Majority(disk) => Some((disk.replica, true)),
                Remains::Best(disk) => Some((disk.replica, false)),
                Remains::Several(_) => None,
            });
            assert_eq!(found, expected, "{sentence}");
        }
    }
}
