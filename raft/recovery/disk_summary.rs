//! What several disks hold, in short: which of them a new group is made of.
//!
//! Owns the comparison, and the form in which another process tells it. A program that stands outside of the
//! machines, as in a cluster, has each disk described where it is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Inspection;

/// A disk in short. The fields that compare stand first, from the most to the least: a group that a person made
/// later, then the more complete log ([`Inspection::term`], [`Inspection::last`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DiskSummary {
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
}

impl DiskSummary {
    /// The summary of a disk.
    pub fn of(inspection: &Inspection) -> Self {
        Self {
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
    let of_it = disks.iter().filter(|disk| disk.group == best.group && best.voters.contains(&disk.replica));
    Some(if of_it.count() > best.voters.len() / 2 { Remains::Majority(best) } else { Remains::Best(best) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(replica: u64, group: &str, made_at: Option<u64>, (term, last): (u64, u64)) -> DiskSummary {
        let voters = (0..3).collect();
        DiskSummary { group_made_at: made_at, term, last, group: group.to_owned(), replica, voters }
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
            ("none", vec![], None),
        ] {
            let found = remains(&disks).map(|remains| match remains {
                Remains::Majority(disk) => (disk.replica, true),
                Remains::Best(disk) => (disk.replica, false),
            });
            assert_eq!(found, expected, "{sentence}");
        }
    }
}
