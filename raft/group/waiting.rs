//! What a replica that does not serve yet waits for, in words for a person.
//!
//! Owns the sentence. A member whose group has lost its majority, or whose other members were never
//! started, has a log, a disk and a port, and nothing else says that it waits for others.

use std::collections::BTreeSet;

use smc_types::ids::ReplicaId;

use super::Group;
use super::clocks::KEPT;
use super::status::GroupStatus;

impl Group {
    /// The members that answer, with this replica.
    pub fn heard(&self) -> BTreeSet<ReplicaId> {
        let contacts = self.contacts();
        let fresh = contacts.iter().filter(|(_, contact)| contact.heard.is_some_and(|ago| ago <= KEPT));
        fresh.map(|(id, _)| *id).chain([self.identity.replica]).collect()
    }

    /// What keeps this replica from a group with a leader; `None` if nothing does.
    pub fn waits_for(&self) -> Option<String> {
        waits_for(&self.status(), &self.heard(), &self.joining.borrow())
    }
}

/// Decides by what this replica sees of the group, the members that answer, and the reason why it is in no
/// group.
fn waits_for(status: &GroupStatus, heard: &BTreeSet<ReplicaId>, joining: &str) -> Option<String> {
    let voters: Vec<_> =
        status.members.iter().filter(|member| member.voter).map(|member| member.id).collect();
    if !voters.contains(&status.replica) {
        return Some(match joining {
            "" if voters.is_empty() => "a group, which is about to be founded".to_owned(),
            "" => "its vote in the group".to_owned(),
            reason => format!("a group: {reason}"),
        });
    }
    if status.heard_leader(heard).is_some() {
        return None;
    }
    let silent: Vec<_> =
        voters.iter().filter(|voter| !heard.contains(voter)).map(ToString::to_string).collect();
    let majority = voters.len() / 2 + 1;
    if voters.len() - silent.len() >= majority {
        return Some("the election of a leader".to_owned());
    }
    let all: Vec<_> = voters.iter().map(ToString::to_string).collect();
    Some(format!(
        "a leader: {majority} of the controllers {} of its group have to run with their disks, and nothing is heard of {}",
        all.join(", "),
        silent.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::status;
    use super::*;

    #[test]
    fn a_replica_says_which_members_it_waits_for() {
        let lost = "a leader: 2 of the controllers 0, 1, 2 of its group have to run with their disks, and nothing is heard of 1, 2";
        let (none, first): (Option<u64>, _) = (None, Some(0));
        for (when, voters, leader, heard, joining, expected) in [
            (
                "it never had a group",
                vec![],
                none,
                vec![0],
                "",
                Some("a group, which is about to be founded"),
            ),
            ("it asks the others", vec![], none, vec![0], "none answers", Some("a group: none answers")),
            ("it was removed", vec![1], Some(1), vec![0, 1], "removed", Some("a group: removed")),
            ("it has the log, and no vote", vec![1], Some(1), vec![0, 1], "", Some("its vote in the group")),
            ("it leads a group of one", vec![0], first, vec![0], "", None),
            ("it follows", vec![0, 1, 2], Some(1), vec![0, 1], "", None),
            (
                "its leader is gone, others run",
                vec![0, 1, 2],
                Some(1),
                vec![0, 2],
                "",
                Some("the election of a leader"),
            ),
            ("none leads, others run", vec![0, 1, 2], none, vec![0, 2], "", Some("the election of a leader")),
            ("it led, and the others are gone", vec![0, 1, 2], first, vec![0], "", Some(lost)),
            ("it leads, and one is gone", vec![0, 1, 2], first, vec![0, 2], "", None),
            ("of a group of three it alone runs", vec![0, 1, 2], none, vec![0], "", Some(lost)),
            ("so it is, where it remembers a leader", vec![0, 1, 2], Some(2), vec![0], "", Some(lost)),
        ] {
            let members: Vec<_> = voters.into_iter().map(|id| (id, true, None)).collect();
            let status = GroupStatus { leader: leader.map(ReplicaId), ..status(0, &members) };
            let heard = heard.into_iter().map(ReplicaId).collect();
            assert_eq!(waits_for(&status, &heard, joining).as_deref(), expected, "{when}");
        }
    }
}
