//! The phases of replicas, and the epoch.

use smc_types::ids::ReplicaId;

use super::ReplicaPhase::{Down, Draining, Joining, Ready};
use super::*;

fn set(ledger: &mut Ledger, replica: u64, run: u64, phase: ReplicaPhase) -> Outcome {
    now(ledger, Operation::SetReplicaPhase(SetReplicaPhase { replica, run, phase }))
}

fn forget(ledger: &mut Ledger, replica: u64, run: u64) -> Outcome {
    now(ledger, Operation::ForgetReplica(ForgetReplica { replica, run }))
}

/// A ledger in which process 7 of replica 1 has come to a phase.
fn in_phase(phase: ReplicaPhase) -> Ledger {
    let mut ledger = founded();
    set(&mut ledger, 1, 7, Joining).unwrap();
    if phase != Joining {
        set(&mut ledger, 1, 7, phase).unwrap();
    }
    ledger
}

#[test]
fn a_phase_follows_only_those_that_it_may_follow() {
    for (sentence, from, to, legal) in [
        ("a replica that has synced is ready", Joining, Ready, true),
        ("one is told to stop before it was ready", Joining, Draining, true),
        ("one dies while it joins", Joining, Down, true),
        ("one whose clock is wrong joins again", Ready, Joining, true),
        ("one is told to stop", Ready, Draining, true),
        ("one dies", Ready, Down, true),
        ("one that should not stop after all has to be ready first", Draining, Ready, false),
        ("one that should not stop after all joins again", Draining, Joining, true),
        ("one has stopped", Draining, Down, true),
        ("one that was away has missed something", Down, Ready, false),
        ("one that was away joins again", Down, Joining, true),
        ("one that is gone has nothing to hand over", Down, Draining, false),
    ] {
        let mut ledger = in_phase(from);
        let epoch = ledger.placement().epoch;
        let outcome = set(&mut ledger, 1, 7, to);
        assert_eq!(outcome.is_ok(), legal, "{sentence}: {outcome:?}");
        let record = ledger.placement().replicas[&ReplicaId(1)];
        assert_eq!(record.phase, if legal { to } else { from }, "{sentence}");
        assert_eq!(ledger.placement().epoch, epoch + u64::from(legal), "{sentence}");
    }
}

#[test]
fn what_is_so_already_changes_nothing() {
    for phase in [Joining, Ready, Draining, Down] {
        let mut ledger = in_phase(phase);
        let before = ledger.clone();
        assert_eq!(set(&mut ledger, 1, 7, phase), Ok(Reply::PlacementUnchanged));
        assert_eq!(forget(&mut ledger, 2, 7), Ok(Reply::PlacementUnchanged));
        assert_eq!(ledger, before);
    }
}

#[test]
fn a_process_that_another_has_replaced_says_nothing_more() {
    let mut ledger = in_phase(Ready);
    for phase in [Ready, Draining, Down] {
        assert_eq!(
            set(&mut ledger, 1, 8, phase),
            Err(Rejection::StaleRun(ReplicaId(1))),
            "it has not joined"
        );
    }
    assert_eq!(set(&mut ledger, 1, 8, Joining), Ok(Reply::PlacementChanged), "the replica was restarted");
    assert_eq!(set(&mut ledger, 1, 7, Draining), Err(Rejection::StaleRun(ReplicaId(1))));
    assert_eq!(forget(&mut ledger, 1, 7), Err(Rejection::StaleRun(ReplicaId(1))), "it was added again");
    assert_eq!(forget(&mut ledger, 1, 8), Ok(Reply::PlacementChanged));
    assert!(ledger.placement().replicas.is_empty());
    assert!(matches!(set(&mut ledger, 1, 8, Ready), Err(Rejection::IllegalPhase { from: None, .. })));
}

#[test]
fn the_ready_replicas_own_the_shards_and_their_number_is_bounded() {
    let mut ledger = founded();
    for replica in 0..MAX_REPLICAS as u64 {
        set(&mut ledger, replica, 1, Joining).unwrap();
    }
    assert!(matches!(set(&mut ledger, 99, 1, Joining), Err(Rejection::Full { .. })));
    assert_eq!(set(&mut ledger, 3, 2, Joining), Ok(Reply::PlacementChanged), "one that is there restarts");
    set(&mut ledger, 3, 2, Ready).unwrap();
    set(&mut ledger, 5, 1, Ready).unwrap();
    set(&mut ledger, 6, 1, Draining).unwrap();
    assert_eq!(ledger.placement().ready(), [ReplicaId(3), ReplicaId(5)].into());
}

#[test]
fn a_snapshot_from_before_placements_is_read_and_stays_the_same() {
    let ledger = founded();
    let stored = ledger.canonical().unwrap();
    assert!(!String::from_utf8(stored.clone()).unwrap().contains("placement"));
    assert_eq!(serde_json::from_slice::<Ledger>(&stored).unwrap(), ledger);

    let ledger = in_phase(Ready);
    let stored: serde_json::Value = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    let record = serde_json::json!({ "phase": "ready", "run": 7, "since": START });
    assert_eq!(stored["placement"], serde_json::json!({ "epoch": 2, "replicas": { "1": record } }));
    assert_eq!(serde_json::from_value::<Ledger>(stored).unwrap(), ledger);
}
