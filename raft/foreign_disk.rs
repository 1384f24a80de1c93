//! A disk that a replica cannot use: that of a group that was replaced, or of another replica.
//!
//! Owns how the last words of such a replica tell, which a person reads, and `smc check`.

/// How a replica says that its group was replaced.
pub(crate) const REPLACED: &str = "a person restored or recovered the group";

/// How it says that the files are another one's.
pub(crate) const OTHER_REPLICA: &str = "the ledger's files are those of replica";

/// Whether these are the last words of a replica that cannot use its disk. With an empty one it joins its
/// group.
pub fn has_foreign_disk(last_words: &str) -> bool {
    [REPLACED, OTHER_REPLICA].iter().any(|words| last_words.contains(words))
}

#[cfg(test)]
mod tests {
    use smc_types::ids::ReplicaId;

    use super::*;
    use crate::{GroupId, Replaced, StorageError};

    #[test]
    fn the_last_words_of_a_replica_tell_that_its_disk_is_foreign() {
        let (mine, newer) = (GroupId([1; 16]), GroupId([2; 16]));
        let found = ReplicaId(1);
        for (words, expected) in [
            (Replaced::Group { mine, newer }.to_string(), true),
            (StorageError::OtherReplica { found, expected: ReplicaId(2) }.to_string(), true),
            (Replaced::Replica(found).to_string(), false),
        ] {
            assert_eq!(has_foreign_disk(&format!("smc: {words}\n")), expected, "{words}");
        }
    }
}
