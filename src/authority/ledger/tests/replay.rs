//! Any log replays to the same state.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn any_operation() -> impl Strategy<Value = Operation> {
    let validity = (0..4u64, 0..1100u64)
        .prop_map(|(from, length)| days(START.plus(Duration::from_secs(from * DAY)), length));
    prop_oneof![
        Just(Operation::InitAuthority(Box::new(authority()))),
        (0..20u8, proptest::option::of(0..20u8), validity.clone())
            .prop_map(|(n, replaces, validity)| service(n, replaces, validity)),
        (0..20u8, 0..4u8, validity.clone()).prop_map(|(n, of, validity)| proxy_certificate(n, of, validity)),
        (0..20u8, validity.clone()).prop_map(|(n, validity)| controller(n, validity)),
        (0..20u8, proptest::option::of(0..20u8), validity)
            .prop_map(|(n, replaces, validity)| gateway(n, replaces, validity)),
        (0..20u8).prop_map(forget_gateway),
        (0..20u8).prop_map(|n| Operation::ClaimProxyCertificate(serial(n))),
        (0..4u8).prop_map(|n| Operation::ReleaseProxy(proxy(n))),
        proptest::collection::vec((0..20u8).prop_map(serial), 0..4)
            .prop_map(Operation::ReleaseProxyCertificates),
        Just(Operation::Prune),
        (0..20u8).prop_map(|n| Operation::ForgetServices(vec![unused(n)])),
        (0..20u8, 0..20u8).prop_map(|(n, replaces)| Operation::RotateIssuing(RotateIssuing {
            replaces: serial(replaces),
            issuing: Box::new(ca(n, days(START, 900))),
        })),
        (0..20u8, 0..20u8).prop_map(|(n, beside)| Operation::TrustRoot(TrustRoot {
            beside: serial(beside),
            root: Box::new(ca(n, days(START, 3650))),
        })),
        (0..2u64, 0..20u8).prop_map(|(replica, n)| Operation::AcknowledgeRoot(AcknowledgeRoot {
            replica,
            root: serial(n)
        })),
        (0..20u8, 0..20u8).prop_map(|(n, root)| Operation::SignWithNextRoot(SignWithNextRoot {
            root: serial(root),
            replicas: BTreeSet::from([0]),
            issuing: Box::new(ca(n, days(START, 900))),
        })),
        (0..20u8).prop_map(|n| Operation::EndControllerIssuer(EndControllerIssuer { issuing: serial(n) })),
        (0..20u8).prop_map(|n| Operation::RetireCa(serial(n))),
        (0..20u8).prop_map(|n| Operation::CancelRoot(CancelRoot { root: serial(n) })),
        (0..20u8, 0..3u8).prop_map(|(n, object)| name_root(n, object)),
        (0..20u8).prop_map(|n| Operation::HastenRoot(HastenRoot { root: serial(n) })),
        (0..3u64, 0..3u64, any_phase()).prop_map(|(replica, run, phase)| {
            Operation::SetReplicaPhase(SetReplicaPhase { replica, run, phase })
        }),
        proptest::sample::select(vec![Rules::Second, Rules::Third, Rules::Fourth, Rules::Fifth])
            .prop_map(Operation::UseRules),
        (0..3u64, 0..3u64)
            .prop_map(|(replica, run)| Operation::ForgetReplica(ForgetReplica { replica, run })),
        proptest::collection::btree_map(0..3u64, (0..40u64).prop_map(|day| days(START, day).not_after), 0..3)
            .prop_map(|clocks| Operation::AgreeOnTime(AgreeOnTime { clocks })),
    ]
}

fn any_phase() -> impl Strategy<Value = ReplicaPhase> {
    use ReplicaPhase::{Down, Draining, Joining, Ready};

    proptest::sample::select(vec![Joining, Ready, Draining, Down])
}

/// Every live certificate was signed by a CA that is on record and outlives it, under a trusted
/// root.
fn assert_alive_is_trusted(ledger: &Ledger, now: Timestamp) {
    let Some(authority) = ledger.authority() else { return };
    let trusted: BTreeSet<_> = authority.trusted_roots().collect();
    for (issuer, signed) in ledger.signed(now) {
        let root =
            authority.root_of(issuer).unwrap_or_else(|| panic!("{issuer} is not on record: {signed:?}"));
        assert!(trusted.contains(&root), "{issuer}: {signed:?}");
        let former = authority.former_issuing.iter().find(|former| former.serial == issuer);
        let issuer = former.map_or(authority.issuing.validity, |former| former.validity);
        assert!(signed.last_end <= Some(issuer.not_after), "{signed:?}");
    }
}

proptest! {
    /// Equal logs give byte-identical states; a state restored from its stored form goes on like
    /// the original; and a rejected command changes nothing but the time.
    #[test]
    fn any_log_replays_to_the_same_bytes_also_from_a_snapshot_in_its_middle(
        log in proptest::collection::vec((0..40u64, any_operation()), 0..60),
        cut in 0..60usize,
    ) {
        let mut first = Ledger::default();
        let mut second = Ledger::default();
        for (index, (day, operation)) in log.into_iter().enumerate() {
            let command = Command { at: START.plus(Duration::from_secs(day * DAY)), operation };
            let stored: Command = serde_json::from_slice(&serde_json::to_vec(&command).unwrap()).unwrap();
            prop_assert_eq!(&stored, &command);
            if index == cut {
                second = serde_json::from_slice(&second.canonical().unwrap()).unwrap();
            }
            let before = first.clone();
            let outcome = first.apply(&command);
            prop_assert_eq!(&outcome, &second.apply(&stored));
            assert_alive_is_trusted(&first, command.at);
            if outcome.is_err() {
                let mut untouched = before;
                untouched.now = first.now;
                prop_assert_eq!(&untouched, &first);
            }
        }
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(first.state_hash().unwrap(), second.state_hash().unwrap());
    }
}
