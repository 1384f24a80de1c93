//! Targets of the fuzzer (`make fuzz`) for what replicas send to each other and read from their disks.
//!
//! Owns what is checked of a reading besides that it returns. Not part of the program.

#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a target reports a finding"
)]

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use openraft::EntryPayload;
use prost::Message;
use smc_authority::ledger::Ledger;
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use zeroize::Zeroizing;

use crate::membership::{Situation, next_step};
use crate::recovery::backup::{self, Backup};
use crate::state::machine::StateMachine;
use crate::state::shared::SharedLedger;
use crate::state::waiters::Waiters;
use crate::storage::disk::Disk;
use crate::storage::memory::MemoryDisk;
use crate::storage::rocks::fuzz_log;
use crate::transport::tls::GroupSecret;
use crate::types::{Entry, LeaderId, LogId, Membership, Proposal, StoredMembership, Vote};
use crate::wire::{self, Wire};

/// A message of another replica. The first byte is its kind, the rest its encoding. What is read is written
/// and read again.
pub fn message(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind {
        0 => {
            let Ok(request) = pb::AppendEntriesRequest::decode(bytes) else { return };
            let _ = (wire::vote(request.vote), wire::read::<LogId>(request.previous));
            request.entries.into_iter().for_each(reads_back::<Entry>);
        }
        1 => {
            let Ok(request) = pb::VoteRequest::decode(bytes) else { return };
            request.vote.into_iter().for_each(reads_back::<Vote>);
            request.last.into_iter().for_each(reads_back::<LogId>);
        }
        2 => {
            let Ok(header) = pb::SnapshotHeader::decode(bytes) else { return };
            let _ = wire::snapshot_meta(&header);
        }
        3 => {
            let Ok(stored) = pb::StoredMembership::decode(bytes) else { return };
            stored.membership.clone().into_iter().for_each(reads_back::<Membership>);
            reads_back::<StoredMembership>(stored);
        }
        4 => {
            let Ok(described) = pb::DescribeResponse::decode(bytes) else { return };
            join(described);
        }
        _ => proposals(bytes),
    }
}

/// A log file of RocksDB.
pub fn log(input: &[u8]) {
    fuzz_log(input);
}

/// A file that is given for a backup. After a byte `c`, the content of a sealed one; after `d`, pairs of a
/// position (two bytes) and what is changed there, of a backup that was written.
pub fn backup(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    let secret = GroupSecret::new(Zeroizing::new([1; 32]));
    let refused = |file: &[u8]| {
        let Err(error) = backup::read(&secret, file) else { panic!("something is taken for a backup") };
        assert!(!error.to_string().is_empty());
    };
    match kind {
        b'c' => {
            let Ok(read) = backup::read(&secret, &*backup::sealed(bytes, &secret).unwrap()) else { return };
            let mut file = Vec::new();
            backup::write(&read, &secret, [2; 32], &mut file).unwrap();
            let again = backup::read(&secret, &*file).unwrap();
            assert_eq!(again, read, "a restored ledger is another one");
        }
        b'd' => {
            let whole = Backup { group: None, ledger: Ledger::default() };
            let mut file = Vec::new();
            backup::write(&whole, &secret, [2; 32], &mut file).unwrap();
            let before = file.clone();
            for change in bytes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % (file.len() + 1);
                match file.get_mut(at) {
                    Some(byte) => *byte ^= change[2],
                    None => file.push(change[2]),
                }
            }
            if file == before {
                assert_eq!(backup::read(&secret, &*file).unwrap(), whole);
            } else {
                refused(&file);
                refused(&before[..before.len() - 1]);
            }
        }
        _ => refused(bytes),
    }
}

fn reads_back<T: Wire + PartialEq + Debug>(form: T::Form) {
    let Ok(value) = T::from_wire(form) else { return };
    assert_eq!(T::from_wire(value.to_wire()).as_ref(), Ok(&value), "it reads otherwise the second time");
}

/// What a replica without a group makes of another's answer.
fn join(described: pb::DescribeResponse) {
    let me = (ReplicaId(0), 7);
    let initial_members = [(ReplicaId(0), "a:1".to_owned()), (ReplicaId(1), "b:1".to_owned())].into();
    let described = [(ReplicaId(1), described)].into();
    for (initialized, may_found) in [(false, false), (false, true), (true, true)] {
        let situation = Situation {
            me,
            initialized,
            may_found,
            initial_members: &initial_members,
            described: &described,
        };
        let _ = next_step(&situation);
    }
}

/// Entries of the log, each after its length. Every replica makes the same of them.
fn proposals(mut bytes: &[u8]) {
    let machine = || {
        let (ledger, disk) = (SharedLedger::default(), Disk::new(Arc::new(MemoryDisk::default())));
        let machine = StateMachine::open(disk, ledger.clone(), Waiters::default()).unwrap();
        (machine, ledger)
    };
    let ((mut one, first), (mut other, second)) = (machine(), machine());
    let mut index = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (payload, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        index += 1;
        let entry = || Entry {
            log_id: LogId { leader_id: LeaderId { term: 1, node_id: ReplicaId(0) }, index },
            payload: EntryPayload::Normal(Proposal(Bytes::copy_from_slice(payload))),
        };
        // An entry that cannot be read stops a replica.
        let (done, again) = (one.apply_entry(entry()), other.apply_entry(entry()));
        assert_eq!(done.is_ok(), again.is_ok());
        if done.is_err() {
            break;
        }
    }
    let hash = |ledger: &SharedLedger| ledger.read(Ledger::state_hash).unwrap();
    assert_eq!(hash(&first).to_string(), hash(&second).to_string(), "two replicas differ");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus_of_messages_logs_and_backups_has_no_finding() {
        let corpus = Path::new("../fuzz/corpus");
        for (name, run) in [("raft", message as fn(&[u8])), ("wal", log), ("backups", backup)] {
            let inputs: Vec<_> = fs::read_dir(corpus.join(name)).unwrap().collect();
            assert!(!inputs.is_empty(), "{name} has no corpus");
            for input in inputs {
                let input = input.unwrap().path();
                let bytes = fs::read(&input).unwrap();
                let judged = std::panic::catch_unwind(|| run(&bytes));
                assert!(judged.is_ok(), "{name} finds something in {}", input.display());
            }
        }
    }
}
