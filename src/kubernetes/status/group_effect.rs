//! Whether an object is in effect everywhere, from what all replicas say.
//!
//! Owns the questions and the merging of answers. Pure. A replica that does not answer leaves it open for
//! every object: its proxies may have anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use smc_proto::peer::v1::{ProxyReportsAnswer, RejectedObject};
use smc_server::reports::MAX_OBJECTS;
use smc_types::ids::{ReplicaId, WorkloadId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;
use smc_types::text::truncated;

/// Bytes of all objects of one question: far below what the transport takes, and more than 64 objects of a
/// mesh have.
const MAX_BYTES: usize = 512 << 10;

/// The longest reason for silence, in characters, and name of a workload, as another replica states it.
const MAX_REASON: usize = 200;

/// Rejections that are taken from one answer. A replica states no more.
const MAX_REJECTIONS: usize = 256;

/// What is known of an object in the whole mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Every replica serves it, and every proxy has answered.
    Everywhere,
    /// Not known yet, or not yet true, for this reason.
    Open(String),
}

/// What a replica said, or why it said nothing.
pub(super) struct Said {
    pub(super) replica: ReplicaId,
    pub(super) answer: Result<ProxyReportsAnswer, String>,
}

/// A question to every replica.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// What it is about.
    pub(super) about: Vec<ObjectRef>,
    /// The same objects as JSON.
    pub(super) objects: Vec<String>,
}

/// The next question: the objects after `last` that are open, and then those before it, as many as one
/// question may have.
pub(super) fn question<'a>(
    open: impl Iterator<Item = (&'a ObjectRef, &'a Arc<str>)> + Clone,
    last: Option<&ObjectRef>,
) -> Question {
    let after = |reference: &ObjectRef| last.is_some_and(|last| reference > last);
    let turn = open.clone().filter(|(reference, _)| after(reference));
    let turn = turn.chain(open.filter(|(reference, _)| !after(reference)));
    let (mut question, mut bytes) = (Question::default(), 0);
    for (reference, text) in turn.take(MAX_OBJECTS) {
        bytes += text.len();
        if bytes > MAX_BYTES && !question.about.is_empty() {
            break;
        }
        question.about.push(reference.clone());
        question.objects.push(text.to_string());
    }
    question
}

/// The name of a replica's pod.
pub(super) fn name(replica: ReplicaId) -> String {
    format!("smc-controller-{replica}")
}

/// What all replicas together say of the objects.
pub(super) fn effects(about: &[ObjectRef], said: &[Said]) -> BTreeMap<ObjectRef, Effect> {
    let silent = said.iter().find_map(|said| said.answer.as_ref().err().map(|reason| (said.replica, reason)));
    let effect = |index: usize| {
        for Said { replica, answer } in said {
            let Ok(answer) = answer else { continue };
            let report = answer.objects.get(index).cloned().unwrap_or_default();
            let replica = name(*replica);
            if !report.held {
                return Effect::Open(format!("The replica {replica} has not taken in this generation yet."));
            }
            if report.waiting > 0 {
                // Another replica says so, in bytes of its own choice.
                let workload = match report.first_waiting.parse::<WorkloadId>() {
                    Ok(workload) => ObjectRef::from(&workload).to_string(),
                    Err(_) => truncated(&report.first_waiting, MAX_REASON),
                };
                return Effect::Open(match report.waiting {
                    1 => format!("The proxy of {workload}, connected to {replica}, has not answered yet."),
                    more => format!(
                        "{more} proxies connected to {replica} have not answered yet, such as that of {workload}."
                    ),
                });
            }
        }
        match silent {
            Some((replica, reason)) => {
                let reason = truncated(reason, MAX_REASON);
                Effect::Open(format!(
                    "The replica {} does not say what its proxies have: {reason}.",
                    name(replica)
                ))
            }
            None => Effect::Everywhere,
        }
    };
    about.iter().enumerate().map(|(index, reference)| (reference.clone(), effect(index))).collect()
}

/// The resources that proxies of any replica rejected, by the objects that they are made of.
pub(super) fn rejections(said: &[Said]) -> BTreeMap<ObjectRef, Vec<Problem>> {
    let mut all: BTreeMap<ObjectRef, Vec<Problem>> = BTreeMap::new();
    let answers = said.iter().filter_map(|said| said.answer.as_ref().ok());
    for rejected in answers.flat_map(|answer| answer.rejected.iter().take(MAX_REJECTIONS)) {
        let RejectedObject { kind, name, message } = rejected;
        let (Some(kind), Ok(name)) = (Kind::of_name(kind), name.parse()) else { continue };
        let reference = ObjectRef::Namespaced(kind, name);
        let problem = Problem::error(&reference, "", message.clone());
        let problems = all.entry(reference).or_default();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use smc_proto::peer::v1::ObjectReport;

    use super::*;

    fn split(name: &str) -> ObjectRef {
        ObjectRef::Namespaced(Kind::TrafficSplit, format!("shop/{name}").parse().unwrap())
    }

    fn report(held: bool, waiting: u64, first: &str) -> ObjectReport {
        ObjectReport { held, waiting, first_waiting: first.to_owned() }
    }

    fn said(replica: u64, answer: Result<Vec<ObjectReport>, &str>) -> Said {
        let answer = answer.map(|objects| ProxyReportsAnswer { objects, ..ProxyReportsAnswer::default() });
        Said { replica: ReplicaId(replica), answer: answer.map_err(str::to_owned) }
    }

    #[test]
    fn an_object_is_in_effect_everywhere_only_if_every_replica_says_so() {
        let fine = || report(true, 0, "");
        for (replicas, expected) in [
            (vec![said(0, Ok(vec![fine()]))], None),
            (vec![said(0, Ok(vec![fine()])), said(1, Ok(vec![fine()]))], None),
            (
                vec![said(0, Ok(vec![fine()])), said(1, Ok(vec![report(false, 0, "")]))],
                Some("The replica smc-controller-1 has not taken in this generation yet."),
            ),
            (
                vec![said(0, Ok(vec![report(true, 1, "shop/a")]))],
                Some("The proxy of Pod shop/a, connected to smc-controller-0, has not answered yet."),
            ),
            (
                vec![said(0, Ok(vec![fine()])), said(2, Ok(vec![report(true, 3, "shop/a")]))],
                Some(
                    "3 proxies connected to smc-controller-2 have not answered yet, such as that of Pod shop/a.",
                ),
            ),
            (
                vec![said(0, Ok(vec![fine()])), said(1, Err("no answer in time"))],
                Some("The replica smc-controller-1 does not say what its proxies have: no answer in time."),
            ),
            (
                vec![said(1, Err("no answer in time")), said(2, Ok(vec![report(true, 1, "shop/a")]))],
                Some("The proxy of Pod shop/a, connected to smc-controller-2, has not answered yet."),
            ),
            (
                vec![said(1, Ok(Vec::new()))],
                Some("The replica smc-controller-1 has not taken in this generation yet."),
            ),
        ] {
            let expected = expected.map_or(Effect::Everywhere, |text| Effect::Open(text.to_owned()));
            assert_eq!(effects(&[split("canary")], &replicas)[&split("canary")], expected);
        }
    }

    #[test]
    fn what_proxies_of_any_replica_reject_is_of_the_object_once() {
        let rejected = |kind: &str, name: &str, message: &str| RejectedObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            message: message.to_owned(),
        };
        let with = |replica, rejected| Said {
            replica: ReplicaId(replica),
            answer: Ok(ProxyReportsAnswer { rejected, ..ProxyReportsAnswer::default() }),
        };
        let replicas = [
            with(0, vec![rejected("TrafficSplit", "shop/canary", "one")]),
            said(1, Err("silent")),
            with(
                2,
                vec![
                    rejected("TrafficSplit", "shop/canary", "one"),
                    rejected("TrafficSplit", "shop/canary", "two"),
                    rejected("TrafficSplit", "no name", "three"),
                    rejected("Nothing", "shop/canary", "four"),
                ],
            ),
        ];
        let all = rejections(&replicas);
        let messages: Vec<_> = all[&split("canary")].iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!((all.len(), messages), (1, vec!["one", "two"]));
    }

    #[test]
    fn questions_are_bounded_and_take_turns() {
        let objects: BTreeMap<ObjectRef, Arc<str>> =
            (0..100).map(|n| (split(&format!("s{n:02}")), Arc::from("{}"))).collect();
        let first = question(objects.iter(), None);
        assert_eq!((first.about.len(), &first.about[0]), (MAX_OBJECTS, &split("s00")));
        let second = question(objects.iter(), first.about.last());
        assert_eq!((second.about.len(), &second.about[0]), (MAX_OBJECTS, &split("s64")));
        assert_eq!(second.about[36], split("s00"), "after the last comes the first");
        let large: BTreeMap<ObjectRef, Arc<str>> =
            (0..3).map(|n| (split(&format!("s{n}")), Arc::from("x".repeat(MAX_BYTES)))).collect();
        assert_eq!(question(large.iter(), None).about.len(), 1);
    }
}
