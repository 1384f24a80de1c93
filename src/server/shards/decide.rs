//! Decisions about phases, as functions of what a replica knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smc_authority::ledger::{
    ForgetReplica, Ledger, PHASES, ReplicaPhase, ReplicaRecord, Rules, SetReplicaPhase,
};
use smc_raft::Contact;
use smc_types::ids::ReplicaId;

use super::Placement;

/// How long a member has not answered when it counts as silent. Members are asked once a second;
/// while one of them does not answer, every two seconds.
const QUIET: Duration = Duration::from_secs(3);

/// At how many looks in a row a silent member counts as gone, [`super::placement_keeper::LOOK`] apart. Looks,
/// and not time: a leader that was frozen finds all answers old, and hears of the others before it
/// has looked that often.
pub(super) const LOOKS: u32 = 8;

/// Whether all other members know phases.
pub(super) fn all_know_phases(contacts: &BTreeMap<ReplicaId, Contact>) -> bool {
    contacts.values().all(|contact| contact.commands >= PHASES)
}

/// What the ledger says about its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InUse {
    /// The rules.
    pub(super) rules: Rules,
    /// Whether the group has agreed on a time, which later rules need.
    pub(super) timed: bool,
}

impl InUse {
    pub(super) fn of(ledger: &Ledger) -> Self {
        Self { rules: ledger.rules(), timed: ledger.agreed_time().is_some() }
    }
}

/// The rules that the leader begins: the latest, when all other members have just said that they know
/// them. What a silent member said before does not count: it may come back with an older version,
/// which could not read the ledger any more.
pub(super) fn next_rules(in_use: InUse, contacts: &BTreeMap<ReplicaId, Contact>) -> Option<Rules> {
    let latest = Rules::LATEST;
    let knows = |contact: &Contact| {
        contact.commands >= latest.generation() && contact.heard.is_some_and(|heard| heard <= QUIET)
    };
    (in_use.timed && in_use.rules < latest && contacts.values().all(knows)).then_some(latest)
}

/// What this process knows of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) run: u64,
    /// Whether it serves the mesh.
    pub(super) ready: bool,
    /// Whether it is about to stop.
    pub(super) stops: bool,
}

/// The phase that this process proposes for itself, if any. Never that it drains, which another part decides.
pub(super) fn own_phase(own: Own, record: Option<&ReplicaRecord>) -> Option<ReplicaPhase> {
    if own.stops {
        return None;
    }
    match record.filter(|record| record.run == own.run).map(|record| record.phase) {
        None | Some(ReplicaPhase::Down) => Some(ReplicaPhase::Joining),
        Some(ReplicaPhase::Joining) => own.ready.then_some(ReplicaPhase::Ready),
        Some(ReplicaPhase::Ready) => (!own.ready).then_some(ReplicaPhase::Joining),
        Some(ReplicaPhase::Draining) => None,
    }
}

/// The members that a leader has not heard of, look by look.
#[derive(Debug, Default)]
pub(super) struct Silence(BTreeMap<ReplicaId, u32>);

impl Silence {
    /// Starts again, as by a replica that does not lead.
    pub(super) fn reset(&mut self) {
        self.0.clear();
    }

    /// Looks once more, and returns the processes that are gone. Each is returned again after as many looks.
    ///
    /// A replica that does not hear a majority judges nothing: it may be the one that is cut off, and what it
    /// proposes would be committed when it is connected again, by another leader.
    pub(super) fn look(
        &mut self,
        contacts: &BTreeMap<ReplicaId, Contact>,
        placement: &Placement,
    ) -> Vec<SetReplicaPhase> {
        let is_silent = |contact: &Contact| contact.heard.is_none_or(|heard| heard > QUIET);
        let silent: Vec<_> = contacts.iter().filter(|(_, contact)| is_silent(contact)).collect();
        // Of all members, of which the leader is one.
        if 2 * silent.len() > contacts.len() {
            self.reset();
            return Vec::new();
        }
        let looks = |id: &ReplicaId| self.0.get(id).map_or(1, |looks| looks + 1);
        self.0 = silent.into_iter().map(|(id, _)| (*id, looks(id))).collect();
        let mut gone = Vec::new();
        self.0.retain(|id, looks| {
            let is_gone = *looks >= LOOKS;
            if let Some(record) = placement.phases.get(id)
                && is_gone
                && record.phase != ReplicaPhase::Down
            {
                gone.push(SetReplicaPhase { replica: id.0, run: record.run, phase: ReplicaPhase::Down });
            }
            !is_gone
        });
        gone
    }
}

/// How long a leader has not been ready, look by look.
///
/// What the leader does for the group, such as the steps of a CA's rotation, waits while its clock is
/// wrong or its sources are not read. The others go on, and one of them can lead.
#[derive(Debug, Default)]
pub(super) struct Unready(u32);

impl Unready {
    /// Starts again, as by a replica that does not lead.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Looks once more, and returns whether leadership goes to a replica that is ready.
    pub(super) fn look(&mut self, me: ReplicaId, placement: &Placement) -> bool {
        let joins = placement.phases.get(&me).is_some_and(|own| own.phase == ReplicaPhase::Joining);
        self.0 = if joins && !placement.ready.is_empty() { self.0 + 1 } else { 0 };
        let hands_over = self.0 >= LOOKS;
        if hands_over {
            self.0 = 0;
        }
        hands_over
    }
}

/// The replicas of the placement that have left the group.
pub(super) fn forgotten(placement: &Placement, members: &BTreeSet<ReplicaId>) -> Vec<ForgetReplica> {
    let left = placement.phases.iter().filter(|(id, _)| !members.contains(id));
    left.map(|(id, record)| ForgetReplica { replica: id.0, run: record.run }).collect()
}

#[cfg(test)]
mod tests {
    use smc_authority::ledger::GENERATION;
    use smc_authority::ledger::ReplicaPhase::{Down, Draining, Joining, Ready};
    use smc_types::time::Timestamp;

    use super::*;

    const ONE: ReplicaId = ReplicaId(1);

    fn record(run: u64, phase: ReplicaPhase) -> ReplicaRecord {
        ReplicaRecord { phase, run, since: Timestamp(0) }
    }

    fn placement(phase: ReplicaPhase) -> Placement {
        Placement { epoch: 3, phases: BTreeMap::from([(ONE, record(7, phase))]), ready: BTreeSet::new() }
    }

    #[test]
    fn a_process_joins_and_is_ready_when_it_serves() {
        for (sentence, known, ready, stops, expected) in [
            ("a new replica joins", None, false, false, Some(Joining)),
            ("one that serves at once joins first", None, true, false, Some(Joining)),
            (
                "a restarted one joins in the place of its former process",
                Some((6, Ready)),
                true,
                false,
                Some(Joining),
            ),
            ("one that reads its sources waits", Some((7, Joining)), false, false, None),
            ("one that serves is ready", Some((7, Joining)), true, false, Some(Ready)),
            ("a ready one has nothing to say", Some((7, Ready)), true, false, None),
            ("one whose clock is wrong is not ready any more", Some((7, Ready)), false, false, Some(Joining)),
            ("one that was away joins again", Some((7, Down)), true, false, Some(Joining)),
            ("one that drains goes on", Some((7, Draining)), true, false, None),
            ("one that stops does not join", None, false, true, None),
            ("one that stops was ready", Some((7, Ready)), false, true, None),
            ("one that stops was away", Some((7, Down)), false, true, None),
        ] {
            let record = known.map(|(run, phase)| record(run, phase));
            let own = Own { run: 7, ready, stops };
            assert_eq!(own_phase(own, record.as_ref()), expected, "{sentence}");
        }
    }

    /// The contact of the leader of three with one member, while the other answers.
    fn contact(heard: Option<u64>) -> BTreeMap<ReplicaId, Contact> {
        let contact = |heard| Contact { heard, commands: PHASES };
        BTreeMap::from([
            (ONE, contact(heard.map(Duration::from_secs))),
            (ReplicaId(2), contact(Some(Duration::ZERO))),
        ])
    }

    /// At which looks the member is gone.
    fn gone_at(placement: &Placement, looks: impl IntoIterator<Item = Option<u64>>) -> Vec<usize> {
        let mut silence = Silence::default();
        let looks = looks.into_iter().enumerate();
        looks
            .filter(|(_, heard)| !silence.look(&contact(*heard), placement).is_empty())
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn a_member_is_gone_when_nothing_was_heard_of_it_at_many_looks() {
        for (sentence, phase, looks, expected) in [
            ("one that answers", Ready, vec![Some(1); 20], vec![]),
            ("one that stopped answering", Ready, vec![Some(9); 17], vec![7, 15]),
            ("one that never answered", Joining, vec![None; 8], vec![7]),
            ("a leader that was frozen", Ready, [vec![Some(60); 7], vec![Some(0); 9]].concat(), vec![]),
            ("one that is down already", Down, vec![Some(9); 20], vec![]),
            ("one that died while it drained", Draining, vec![Some(9); 8], vec![7]),
        ] {
            assert_eq!(gone_at(&placement(phase), looks), expected, "{sentence}");
        }
        assert!(gone_at(&Placement::default(), [None; 20]).is_empty(), "one that has not joined");
        let mut isolated = contact(None);
        for contact in isolated.values_mut() {
            contact.heard = None;
        }
        let mut silence = Silence::default();
        let judged = (0..20).any(|_| !silence.look(&isolated, &placement(Ready)).is_empty());
        assert!(!judged, "a leader that hears no majority");
    }

    #[test]
    fn the_process_that_was_seen_is_the_one_that_is_gone() {
        let mut silence = Silence::default();
        let gone = (0..LOOKS).flat_map(|_| silence.look(&contact(None), &placement(Ready))).next();
        assert_eq!(gone, Some(SetReplicaPhase { replica: 1, run: 7, phase: Down }));
        assert_eq!(
            forgotten(&placement(Ready), &[ReplicaId(0)].into()),
            [ForgetReplica { replica: 1, run: 7 }]
        );
        assert!(forgotten(&placement(Ready), &[ReplicaId(0), ONE].into()).is_empty());
    }

    #[test]
    fn a_leader_that_is_not_ready_for_long_hands_over_to_one_that_is() {
        let looks = |phases: &[(u64, ReplicaPhase)]| {
            let phases: BTreeMap<_, _> =
                phases.iter().map(|(id, phase)| (ReplicaId(*id), record(7, *phase))).collect();
            let ready = phases.iter().filter(|(_, own)| own.phase == Ready).map(|(id, _)| *id).collect();
            let placement = Placement { epoch: 3, phases, ready };
            let mut unready = Unready::default();
            (1..=20).filter(|_| unready.look(ONE, &placement)).collect::<Vec<_>>()
        };
        for (sentence, phases, expected) in [
            ("its clock is wrong", vec![(0, Ready), (1, Joining)], vec![8, 16]),
            ("it is ready", vec![(0, Ready), (1, Ready)], vec![]),
            ("it ends, which hands over by itself", vec![(0, Ready), (1, Draining)], vec![]),
            ("no replica is ready", vec![(0, Joining), (1, Joining), (2, Down)], vec![]),
            ("the group knows no phases yet", vec![], vec![]),
        ] {
            assert_eq!(looks(&phases), expected, "{sentence}");
        }
        let mut unready = Unready::default();
        let wrong = placement(Joining);
        let wrong = Placement { ready: [ReplicaId(0)].into(), ..wrong };
        let early = (1..LOOKS).any(|_| unready.look(ONE, &wrong));
        assert!(
            !early && !unready.look(ONE, &placement(Ready)) && !unready.look(ONE, &wrong),
            "it begins anew"
        );
    }

    #[test]
    fn phases_wait_for_members_of_older_versions() {
        assert!(all_know_phases(&BTreeMap::new()), "a replica alone");
        assert!(all_know_phases(&contact(Some(0))));
        let older = Contact { heard: Some(Duration::ZERO), commands: 0 };
        assert!(!all_know_phases(&BTreeMap::from([(ONE, older)])));
    }

    #[test]
    fn new_rules_begin_when_all_members_have_just_said_that_they_know_them() {
        let (new, old, phases) = (Some(Rules::LATEST), Rules::First, PHASES);
        let known = GENERATION;
        let said = |answers: &[(Option<u64>, u32)]| -> BTreeMap<_, _> {
            let contacts = answers.iter().map(|(heard, commands)| Contact {
                heard: heard.map(Duration::from_secs),
                commands: *commands,
            });
            (1..).map(ReplicaId).zip(contacts).collect()
        };
        for (sentence, rules, timed, answers, expected) in [
            ("a replica alone", old, true, vec![], new),
            ("all know them", old, true, vec![(Some(0), known), (Some(1), known)], new),
            ("one is newer still", old, true, vec![(Some(0), known), (Some(1), known + 1)], new),
            ("they are in use", Rules::LATEST, true, vec![(Some(0), known), (Some(1), known)], None),
            ("former ones are", Rules::Second, true, vec![(Some(0), known), (Some(1), known)], new),
            ("one knows former ones", Rules::Second, true, vec![(Some(0), known), (Some(1), 2)], None),
            ("the group has agreed on no time", old, false, vec![(Some(0), known), (Some(1), known)], None),
            ("one is older", old, true, vec![(Some(0), known), (Some(1), phases)], None),
            ("all are older", old, true, vec![(Some(0), phases), (Some(1), phases)], None),
            ("one is from before phases", old, true, vec![(Some(0), known), (Some(1), 0)], None),
            ("one has not answered yet", old, true, vec![(Some(0), known), (None, 0)], None),
            (
                "one is silent, and may come back older",
                old,
                true,
                vec![(Some(0), known), (Some(60), known)],
                None,
            ),
        ] {
            assert_eq!(next_rules(InUse { rules, timed }, &said(&answers)), expected, "{sentence}");
        }
    }
}
