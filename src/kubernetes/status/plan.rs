//! Which statuses are written, and what they say.
//!
//! Owns the meaning of the conditions. Pure: what is known of the objects goes in, the writes come out, and
//! none where the API holds already what would be written.
//!
//! `Accepted` is about the object alone: it can be read, and its kind is enforced. `Programmed` is about the
//! mesh: every replica serves the object, wholly, every sidecar has answered, and none refused it. Once that
//! was so for a generation, only what speaks against it changes it: sidecars come and go all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_api::object::Object;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Severity};
use smc_types::text::truncated;
use smc_types::time::Timestamp;

use super::group_effect::Effect;
use super::turns::in_turn;
use crate::crds::status::{ACCEPTED, COMMITTED, Condition, ERROR, ObjectStatus, PROGRAMMED};
use crate::custom_objects::{Content, CustomObject};
use crate::event::rfc3339;

/// How long an object must have stayed as it is. The publisher collects problems a second after a change, and
/// a status that changes twice would be noise.
const SETTLED: Duration = Duration::from_secs(2);

/// The time between two writes to an object that did not change. Sidecars that come and go change what is
/// said of a refused object.
const PAUSE: Duration = Duration::from_secs(10);

/// How long an object may take to be in effect everywhere before its status says what it waits for. Most take
/// less than a second.
const GRACE: Duration = Duration::from_secs(6);

/// How long an object that is gone is remembered. If its namespace left the mesh, the publisher says so
/// within a second.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The most writes of one step, so that a mesh of thousands of objects does not flood the API server.
pub(super) const MAX_WRITES: usize = 20;

/// The longest reason in the form of Open Service Mesh, in bytes. The conditions have it whole.
const MAX_REASON: usize = 1024;

/// The most problems in a message, and its length in characters. People read it in a terminal.
const MAX_PROBLEMS: usize = 8;
const MAX_MESSAGE: usize = 4000;

const WAITING: &str = "Waiting";

/// What is known of one object of the API.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    /// The object as the source holds it, and what the API server says of it: an Event refers to its uid.
    pub(super) seen: Arc<CustomObject>,
    /// The object as the mesh reads it; `None` if it is refused, or of a kind that is not enforced.
    pub(super) object: Option<Arc<Object>>,
    /// What the reading found.
    pub(super) problems: Vec<Problem>,
    /// The status that the API holds.
    pub(super) written: ObjectStatus,
    /// When this generation was seen first.
    pub(super) since: Timestamp,
    /// The last write, which the API may not show yet.
    pub(super) sent: Option<(Timestamp, ObjectStatus)>,
}

impl Tracked {
    fn generation(&self) -> i64 {
        self.seen.marks.generation
    }
}

/// What the mesh has of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// This very object.
    Yes,
    /// Not yet, or in another form.
    NotYet,
    /// Nothing: its namespace is of another mesh or of none. Its status is not this mesh's to write.
    NotOurs,
}

/// What the mesh says of the objects.
#[derive(Debug, Default)]
pub(super) struct View {
    /// What it has of each object. An object that is not here is not judged yet.
    pub(super) held: BTreeMap<ObjectRef, Held>,
    /// Problems between objects.
    pub(super) conflicts: BTreeMap<ObjectRef, Vec<Problem>>,
    /// Resources that sidecars of any replica rejected, by the objects that they are made of.
    pub(super) rejections: BTreeMap<ObjectRef, Vec<Problem>>,
    /// Of objects that replicas were asked about, whether each is in effect everywhere.
    pub(super) effects: BTreeMap<ObjectRef, Effect>,
}

/// A status to write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    pub(super) reference: ObjectRef,
    pub(super) uid: Box<str>,
    pub(super) status: ObjectStatus,
    /// Reason and message of an Event, where something went wrong since the status that the API holds.
    pub(super) event: Option<(String, String)>,
}

/// The writes that are due, at most [`MAX_WRITES`], with the namespaces in turn that come after `last`.
pub(super) fn plan(
    objects: &BTreeMap<ObjectRef, Tracked>,
    view: &View,
    replica: &str,
    last: Option<&str>,
    now: Timestamp,
) -> Vec<Write> {
    let due = |reference: &ObjectRef, tracked: &Tracked| due(reference, tracked, view, replica, now);
    // A write may be long, so that only those that are taken are held.
    let taken = in_turn(objects, last, MAX_WRITES, |reference, tracked| due(reference, tracked).is_some());
    taken.into_iter().filter_map(|(reference, tracked)| due(reference, tracked)).collect()
}

fn due(
    reference: &ObjectRef,
    tracked: &Tracked,
    view: &View,
    replica: &str,
    now: Timestamp,
) -> Option<Write> {
    let held = *view.held.get(reference)?;
    if held == Held::NotOurs || now.since(tracked.since) < SETTLED {
        return None;
    }
    let judged = judge(reference, tracked, held, view, replica)?;
    if judged.iter().any(|judged| judged.reason == WAITING) && now.since(tracked.since) < GRACE {
        return None;
    }
    let status = status(reference, tracked, judged, now);
    let same = |other: &ObjectStatus| {
        other.observed_generation == status.observed_generation && is_said(other, &status)
    };
    if same(&tracked.written) {
        return None;
    }
    if let Some((at, sent)) = &tracked.sent
        && sent.observed_generation == status.observed_generation
        && now.since(*at) < PAUSE
    {
        return None;
    }
    let event = event(&tracked.written, &status);
    Some(Write { reference: reference.clone(), uid: tracked.seen.marks.uid.clone(), status, event })
}

/// The last statuses, at most [`MAX_WRITES`], with the namespaces in turn as in [`plan`]: of objects whose
/// namespaces left the mesh, and are `outside` of it now. What was written of them says that they are in
/// effect. Forgets the others that are gone. The control plane's `own` namespace may be in no mesh.
pub(super) fn farewells(
    gone: &mut BTreeMap<ObjectRef, (Timestamp, Tracked)>,
    outside: &BTreeSet<String>,
    own: &str,
    last: Option<&str>,
    now: Timestamp,
) -> Vec<Write> {
    let has_left = |kind: Kind, namespace: &str| {
        kind.spec().extent.moves(namespace == own) && outside.contains(namespace)
    };
    gone.retain(|reference, (since, tracked)| {
        let ObjectRef::Namespaced(kind, name) = reference else { return false };
        if !has_left(*kind, name.namespace()) {
            return now.since(*since) < REMEMBERED;
        }
        // Otherwise its status says that it has no effect.
        accepted(reference, tracked).status != "False" || tracked.object.is_some()
    });
    let due = |reference: &ObjectRef, tracked: &Tracked| {
        let ObjectRef::Namespaced(kind, name) = reference else { return None };
        if !has_left(*kind, name.namespace()) {
            return None;
        }
        let message = format!("Not in effect: the namespace {} has left the mesh.", name.namespace());
        let left = Judged { kind: PROGRAMMED, status: "False", reason: "NotInMesh", message };
        let status = status(reference, tracked, [accepted(reference, tracked), left], now);
        let tried = tracked.sent.as_ref().filter(|(_, sent)| is_said(sent, &status));
        if tried.is_some_and(|(at, _)| now.since(*at) < PAUSE) {
            return None;
        }
        let event = event(&tracked.written, &status);
        Some(Write { reference: reference.clone(), uid: tracked.seen.marks.uid.clone(), status, event })
    };
    let taken = in_turn(gone, last, MAX_WRITES, |reference, (_, tracked)| due(reference, tracked).is_some());
    taken.into_iter().filter_map(|(reference, (_, tracked))| due(reference, tracked)).collect()
}

/// Whether the API has what is to be written, but for its times.
fn is_said(by: &ObjectStatus, status: &ObjectStatus) -> bool {
    // Of most kinds nothing is written there, and what others wrote counts for nothing.
    let current = status.current_status.is_none() || by.current_status == status.current_status;
    current && says(by) == says(status)
}

/// What the conditions say, without their times.
fn says(status: &ObjectStatus) -> Vec<(&str, &str, &str, &str)> {
    let ours = status.conditions.iter().filter(|condition| condition.is_ours());
    let mut ours: Vec<_> = ours.map(|c| (&*c.kind, &*c.status, &*c.reason, &*c.message)).collect();
    ours.sort_unstable();
    ours
}

/// One condition before it has times.
struct Judged {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Whether the API holds that this generation is in effect everywhere.
fn was_programmed(tracked: &Tracked) -> bool {
    tracked.written.conditions.iter().any(|condition| {
        condition.kind == PROGRAMMED
            && condition.status == "True"
            && condition.observed_generation == Some(tracked.generation())
    })
}

/// The objects of which it is to be asked whether they are in effect everywhere.
pub(super) fn open<'a>(
    objects: &'a BTreeMap<ObjectRef, Tracked>,
    view: &'a View,
    now: Timestamp,
) -> impl Iterator<Item = (&'a ObjectRef, &'a Arc<str>)> + Clone {
    let open = move |(reference, tracked): (&'a ObjectRef, &'a Tracked)| {
        let Content::Json(json) = &tracked.seen.content else { return None };
        let open = view.held.get(reference) == Some(&Held::Yes)
            && !was_programmed(tracked)
            && now.since(tracked.since) >= SETTLED;
        open.then_some((reference, json))
    };
    objects.iter().filter_map(open)
}

/// The condition about the object alone.
fn accepted(reference: &ObjectRef, tracked: &Tracked) -> Judged {
    let judged = |status, reason, message| Judged { kind: ACCEPTED, status, reason, message };
    let errors = of_severity(&tracked.problems, Severity::Error);
    let warnings = of_severity(&tracked.problems, Severity::Warning);
    if !errors.is_empty() {
        judged("False", "Invalid", listed(&errors))
    } else if !is_enforced(reference) {
        judged("False", "NotImplemented", "It is checked, and not enforced yet.".to_owned())
    } else if warnings.is_empty() {
        judged("True", ACCEPTED, "It can be read.".to_owned())
    } else {
        judged("True", "AcceptedWithWarnings", listed(&warnings))
    }
}

/// `None` if other replicas have to be asked first.
fn judge(
    reference: &ObjectRef,
    tracked: &Tracked,
    held: Held,
    view: &View,
    replica: &str,
) -> Option<[Judged; 2]> {
    let judged = |kind, status, reason, message| Judged { kind, status, reason, message };
    let accepted = accepted(reference, tracked);
    let none = Vec::new();
    let conflicts = view.conflicts.get(reference).unwrap_or(&none);
    let conflicting = of_severity(conflicts, Severity::Error);
    let rejections: Vec<_> = view.rejections.get(reference).unwrap_or(&none).iter().collect();
    let without_effect = tracked.object.is_none() || !is_enforced(reference);
    let programmed = if accepted.status == "False" && without_effect {
        let message = "It has no effect; see the condition Accepted.".to_owned();
        judged(PROGRAMMED, "False", accepted.reason, message)
    } else if held == Held::NotYet {
        let message = format!("The replica {replica} has not taken in this generation yet.");
        judged(PROGRAMMED, "Unknown", "Pending", message)
    } else if !rejections.is_empty() {
        judged(PROGRAMMED, "False", "Rejected", listed(&rejections))
    } else if accepted.status == "False" {
        judged(
            PROGRAMMED,
            "False",
            "PartlyInvalid",
            "Only a part of it is in effect; see Accepted.".to_owned(),
        )
    } else if !conflicting.is_empty() {
        judged(PROGRAMMED, "False", "NotWhollyInEffect", listed(&conflicting))
    } else if let (false, Some(Effect::Open(message))) =
        (was_programmed(tracked), view.effects.get(reference))
    {
        judged(PROGRAMMED, "Unknown", WAITING, message.clone())
    } else if !was_programmed(tracked) && !view.effects.contains_key(reference) {
        return None;
    } else {
        let mut message =
            "In effect everywhere: every replica serves it, and no sidecar refused it.".to_owned();
        let odd = of_severity(conflicts, Severity::Warning);
        if !odd.is_empty() {
            message = format!("{message} {}", listed(&odd));
        }
        judged(PROGRAMMED, "True", PROGRAMMED, message)
    };
    Some([accepted, programmed])
}

/// Whether the mesh enforces the kind.
fn is_enforced(reference: &ObjectRef) -> bool {
    match reference {
        ObjectRef::Namespace(_) => true,
        ObjectRef::Namespaced(kind, _) => kind.is_enforced(),
    }
}

fn of_severity(problems: &[Problem], severity: Severity) -> Vec<&Problem> {
    problems.iter().filter(|problem| problem.severity == severity).collect()
}

/// The problems in one text.
fn listed(problems: &[&Problem]) -> String {
    let line = |problem: &&Problem| match problem.field.as_str() {
        "" => problem.message.clone(),
        field => format!("{field}: {}", problem.message),
    };
    let mut lines: Vec<_> = problems.iter().take(MAX_PROBLEMS).map(line).collect();
    if problems.len() > MAX_PROBLEMS {
        lines.push(format!("and {} more problems", problems.len() - MAX_PROBLEMS));
    }
    truncated(&lines.join("; "), MAX_MESSAGE)
}

/// What Open Service Mesh's field says of an IngressBackend, and why; nothing while it is not known, and of
/// other kinds.
fn as_osm_says(reference: &ObjectRef, judged: &[Judged; 2]) -> Option<(&'static str, String)> {
    let ObjectRef::Namespaced(Kind::IngressBackend, _) = reference else { return None };
    if let Some(wrong) = judged.iter().find(|judged| judged.status == "False") {
        return Some((ERROR, truncated(&wrong.message, MAX_REASON)));
    }
    let is_programmed = judged.iter().all(|judged| judged.status == "True");
    is_programmed.then(|| (COMMITTED, "successfully committed by the system".to_owned()))
}

/// Gives the conditions their times: that of the last change of `status`, which the API may hold already.
fn status(reference: &ObjectRef, tracked: &Tracked, judged: [Judged; 2], now: Timestamp) -> ObjectStatus {
    let (current_status, reason) = as_osm_says(reference, &judged).unzip();
    let conditions = judged.into_iter().map(|judged| {
        let before = tracked.written.conditions.iter().find(|condition| condition.kind == judged.kind);
        let unchanged = before.filter(|condition| condition.status == judged.status);
        let since = unchanged.map_or_else(|| rfc3339(now), |c| c.last_transition_time.clone());
        Condition {
            kind: judged.kind.to_owned(),
            status: judged.status.to_owned(),
            observed_generation: Some(tracked.generation()),
            last_transition_time: since,
            reason: judged.reason.to_owned(),
            message: judged.message,
        }
    });
    let conditions = conditions.collect();
    let current_status = current_status.map(str::to_owned);
    ObjectStatus { observed_generation: Some(tracked.generation()), conditions, current_status, reason }
}

/// The first condition that is false and did not say so before.
fn event(before: &ObjectStatus, after: &ObjectStatus) -> Option<(String, String)> {
    let known = |condition: &Condition| {
        before.conditions.iter().any(|old| {
            (&old.kind, &old.status, &old.reason) == (&condition.kind, &condition.status, &condition.reason)
                && old.message == condition.message
        })
    };
    let news = after.conditions.iter().find(|condition| condition.status == "False" && !known(condition))?;
    Some((news.reason.clone(), news.message.clone()))
}

#[cfg(test)]
mod tests;
