//! The judge: says whether what a source publishes is what the server had.
//!
//! Owns its own definition of the truth, which it takes from the history alone. It shares no code with the
//! source, and of what the source publishes it reads names and marks only.
//!
//! - Of each kind, what is published is what the server had at one moment, restricted to the published
//!   namespaces. Moments only advance, and none is older than the run of the source.
//! - The published namespaces are those of the mesh at one moment. One that entered during the run may be
//!   missing at first.
//! - A return to an older state is a later moment. For a while after it, what is published may be anything;
//!   then it must be of a moment that is not before the return.
//! - The last known mesh is of moments of an earlier run. Until the server has listed everything, kinds go on
//!   from there.

mod cursor;
mod custom;
mod marks;
mod violation;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smc_mesh::catalog::SourceEvent;
use smc_server::source::Batch;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Subject};
use tokio::time::Instant;

use self::cursor::{Cursor, Published, View, is_of_mesh};
use super::history::{Form, History, Key};
use super::objects::{namespace_name, object_name};
use super::server::{Server, State};

pub use self::violation::{Rule, Violation};

/// How long a source must wait for the server before it publishes the last known mesh, and a little less.
const PATIENCE: Duration = Duration::from_millis(4900);

/// How old the last known mesh may be beyond the end of the source: copies are not written more often than
/// every few seconds.
const COPY_AGE: Duration = Duration::from_secs(15);

/// The last known mesh may just be on its way when the server has listed everything.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The moments that were published at a time.
#[derive(Debug, Clone)]
struct Shown {
    at: Instant,
    moments: BTreeMap<Kind, usize>,
    withheld: BTreeSet<u16>,
    /// After a return to an older state, before the source must have noticed.
    unsure: bool,
    /// Whether the source had read everything, and thus kept it on disk.
    kept: bool,
}

/// A run of the source.
#[derive(Debug)]
struct Run {
    began: Instant,
    /// The latest moments when it began.
    moments: BTreeMap<Kind, usize>,
    batches: u32,
    /// Whether the server went back to an older state since.
    returned: bool,
}

/// The judge.
pub struct Judge {
    server: Server,
    namespaces: u16,
    published: BTreeMap<Kind, Published>,
    problems: Vec<Problem>,
    cursors: BTreeMap<Kind, Cursor>,
    run: Run,
    /// What was published over this directory.
    shown: Vec<Shown>,
    /// When the last run ended that read everything, and thus kept it.
    ended: Instant,
    /// The moments of a return to an older state that the source need not have noticed yet.
    returned: Option<BTreeMap<Kind, usize>>,
}

impl Judge {
    /// A judge of a world with so many namespaces, before the first run.
    pub fn new(server: Server, namespaces: u16) -> Self {
        let run = Run { began: Instant::now(), moments: BTreeMap::new(), batches: 0, returned: false };
        let published = kinds().map(|kind| (kind, Published::new())).collect();
        let (problems, cursors, shown) = (Vec::new(), BTreeMap::new(), Vec::new());
        let ended = run.began;
        Self { server, namespaces, published, problems, cursors, run, shown, ended, returned: None }
    }

    /// A run of the source begins; it has the directory of the one before, or an empty one.
    pub fn begin(&mut self, keeps_directory: bool) {
        if !keeps_directory {
            self.shown.clear();
        }
        let moments = latest(&self.server.state().history);
        self.run = Run { began: Instant::now(), moments, batches: 0, returned: false };
        self.published.values_mut().for_each(Published::clear);
        self.problems.clear();
    }

    /// The run ends.
    pub fn end(&mut self) {
        if self.shown.iter().any(|shown| shown.kept && shown.at >= self.run.began) {
            self.ended = Instant::now();
        }
    }

    /// When the run began.
    pub fn began(&self) -> Instant {
        self.run.began
    }

    /// How many batches came in this run.
    pub fn batches(&self) -> u32 {
        self.run.batches
    }

    /// The server went back to an older state.
    pub fn went_back(&mut self) {
        self.returned = Some(latest(&self.server.state().history));
        self.run.returned = true;
    }

    /// Whether a return to an older state is still to be judged.
    pub fn awaits_return(&self) -> bool {
        self.returned.is_some()
    }

    /// By now, the source has noticed the return to an older state.
    pub fn settle_return(&mut self) -> Result<(), Violation> {
        let Some(moments) = self.returned.take() else { return Ok(()) };
        if self.run.batches == 0 {
            return Ok(());
        }
        self.place(&moments, None);
        self.advance(true).map_err(|violation| Violation { rule: Rule::ConvergesAfterReturn, ..violation })
    }

    /// Takes a batch.
    pub fn take(&mut self, batch: Batch) -> Result<(), Violation> {
        if !batch.synced {
            return Err(Violation::new(Rule::WellFormed, "a batch that is not synced"));
        }
        let touched = self.apply(batch.events)?;
        self.problems = batch.problems;
        self.run.batches += 1;
        let state = self.server.state();
        let listed = listed(&state, |kind| state.has_served(kind, Instant::now()));
        drop(state);
        let first = self.run.batches == 1;
        if first {
            self.start(listed)?;
        }
        if self.returned.is_none() {
            if first {
                self.advance(true)?;
            } else {
                self.compare(&touched);
                self.advance(false)?;
            }
        }
        let moments = self.cursors.iter().map(|(kind, cursor)| (*kind, cursor.at)).collect();
        let withheld = self.cursors.get(&Kind::Namespace).map(|cursor| cursor.withheld.clone());
        self.shown.push(Shown {
            at: Instant::now(),
            moments,
            withheld: withheld.unwrap_or_default(),
            unsure: self.returned.is_some(),
            kept: listed.is_some(),
        });
        Ok(())
    }

    /// Applies events, and returns what they touch.
    fn apply(&mut self, events: Vec<SourceEvent>) -> Result<BTreeMap<Kind, BTreeSet<Key>>, Violation> {
        let mut touched: BTreeMap<Kind, BTreeSet<Key>> = BTreeMap::new();
        for event in events {
            let (reference, mark) = match &event {
                SourceEvent::Upsert(object) => (object.reference(), Some(marks::mark(object))),
                SourceEvent::Remove(reference) => (reference.clone(), None),
            };
            let wrong = |what: &str| Violation::new(Rule::WellFormed, format!("{reference} {what}"));
            let (kind, key) = marks::named(&reference).ok_or_else(|| wrong("never was"))?;
            let published = self.published.get_mut(&kind).ok_or_else(|| wrong("has no effect"))?;
            match mark {
                Some(mark) => _ = published.insert(key, mark.ok_or_else(|| wrong("never had this content"))?),
                None if published.remove(&key).is_some() => {}
                None => return Err(wrong("is removed, and was not there")),
            }
            if !touched.entry(kind).or_default().insert(key) {
                return Err(wrong("is named twice in a batch"));
            }
        }
        Ok(touched)
    }

    /// The first batch of a run: where its moments begin.
    fn start(&mut self, listed: Option<Instant>) -> Result<(), Violation> {
        let (now, began) = (Instant::now(), self.run.began);
        let patient = now >= began + PATIENCE;
        let kept: Vec<&Shown> = self.shown.iter().filter(|shown| shown.kept).collect();
        let state = self.server.state();
        // A definition that is back need not have been seen, and may have been.
        let all = self::listed(&state, |kind| state.serves(kind, now));
        drop(state);
        let on_its_way = all.is_none_or(|listed| listed + ON_ITS_WAY > now) && patient;
        if listed.is_some() && (!on_its_way || kept.is_empty()) {
            let moments = self.run.moments.clone();
            self.place(&moments, None);
            return Ok(());
        }
        let Some(first) = kept.first() else {
            return Err(Violation::new(Rule::Whole, "a batch before everything was listed"));
        };
        if !patient {
            let waited = (now - began).as_millis();
            return Err(Violation::new(Rule::LastKnown, format!("the last known mesh after {waited} ms")));
        }
        let old = kept.iter().rev().find(|shown| shown.at + COPY_AGE <= self.ended).unwrap_or(first);
        let unsure = self.shown.iter().any(|shown| shown.at >= old.at && shown.unsure);
        let (moments, withheld) = (old.moments.clone(), old.withheld.clone());
        self.place(&moments, Some(&withheld));
        if unsure && self.returned.is_none() {
            self.returned = Some(self.run.moments.clone());
        }
        Ok(())
    }

    /// Places all cursors. Without a set, namespaces that are not of the mesh then may come late.
    fn place(&mut self, moments: &BTreeMap<Kind, usize>, withheld: Option<&BTreeSet<u16>>) {
        let state = self.server.state();
        let cursor = |kind: Kind| {
            let mut cursor = Cursor::new(kind, moments.get(&kind).copied().unwrap_or_default());
            if kind == Kind::Namespace {
                cursor.withheld = withheld.cloned().unwrap_or_default();
                cursor.withhold_others(state.history.all(kind), 0..=self.namespaces);
            }
            (kind, cursor)
        };
        self.cursors = kinds().map(cursor).collect();
    }

    /// Compares what a batch has touched.
    fn compare(&mut self, touched: &BTreeMap<Kind, BTreeSet<Key>>) {
        let state = self.server.state();
        let namespaces = &self.published[&Kind::Namespace];
        let changed = touched.get(&Kind::Namespace);
        for (kind, cursor) in &mut self.cursors {
            let moments = state.history.all(*kind);
            let view = View { published: &self.published[kind], namespaces };
            for key in touched.get(kind).into_iter().flatten() {
                cursor.compare_one(moments, *key, view);
            }
            if *kind != Kind::Namespace {
                for (namespace, _) in changed.into_iter().flatten() {
                    cursor.compare_in(moments, *namespace, view);
                }
            }
        }
    }

    /// Finds the moments of what is published.
    fn advance(&mut self, compare_all: bool) -> Result<(), Violation> {
        let state = self.server.state();
        let namespaces = &self.published[&Kind::Namespace];
        for (kind, cursor) in &mut self.cursors {
            let moments = state.history.all(*kind);
            let view = View { published: &self.published[kind], namespaces };
            if compare_all {
                cursor.compare_all(moments, view);
            }
            let from = cursor.clone();
            if !cursor.advance(moments, view) {
                let rule = if *kind == Kind::Namespace { Rule::Namespaces } else { Rule::OneVersion };
                let seen = describe(*kind, &from, cursor, &state.history, view);
                return Err(Violation::new(rule, seen));
            }
            if *kind == Kind::Namespace {
                cursor.come(namespaces);
            }
        }
        Ok(())
    }

    /// Whether what is published is what the server has.
    pub fn is_current(&self) -> Result<(), Violation> {
        let late = |seen| Violation::new(Rule::Converges, seen);
        if self.run.batches == 0 {
            return Err(late("nothing is published".to_owned()));
        }
        let state = self.server.state();
        let namespaces = &self.published[&Kind::Namespace];
        for kind in kinds() {
            let moments = state.history.all(kind);
            let view = View { published: &self.published[&kind], namespaces };
            let mut cursor = Cursor::new(kind, moments.len() - 1);
            cursor.compare_all(moments, view);
            if !cursor.differing.is_empty() {
                return Err(late(format!("{kind}: {}", differences(kind, &cursor, &state.history, view))));
            }
        }
        drop(state);
        self.has_problems()
    }

    /// Whether every refused object is a problem, and no other one is.
    fn has_problems(&self) -> Result<(), Violation> {
        let state = self.server.state();
        let mut expected: BTreeSet<String> = BTreeSet::new();
        for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Namespace) {
            let objects = state.history.objects(kind).iter();
            let refused = objects.filter(|(key, held)| {
                is_of_mesh(kind, **key, &self.published[&Kind::Namespace]) && held.form != Form::Good
            });
            expected.extend(refused.map(|(key, _)| name(kind, *key)));
        }
        let seen = self.problems.iter().filter_map(|problem| match &problem.subject {
            Subject::Object(reference) => Some(reference),
            _ => None,
        });
        let seen: BTreeSet<String> = seen.map(ObjectRef::to_string).collect();
        if seen == expected {
            return Ok(());
        }
        let (more, less): (Vec<_>, Vec<_>) =
            (seen.difference(&expected).collect(), expected.difference(&seen).collect());
        Err(Violation::new(Rule::Problems, format!("unexpected of {more:?}, missing of {less:?}")))
    }

    /// The problems of the server and of files, one a line, without the one of a return to an older state,
    /// which lasts: a person must learn of it.
    pub fn other_problems(&self) -> String {
        let others = self.problems.iter().filter(|problem| {
            let of_return = self.run.returned && problem.message.contains("older state");
            !matches!(problem.subject, Subject::Object(_)) && !of_return
        });
        others.map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied()
}

fn latest(history: &History) -> BTreeMap<Kind, usize> {
    kinds().map(|kind| (kind, history.all(kind).len() - 1)).collect()
}

/// Since when each of these kinds was listed in this run, if so.
fn listed(state: &State, of: impl Fn(Kind) -> bool) -> Option<Instant> {
    let now = Instant::now();
    let mut since = now.checked_sub(Duration::from_hours(1)).unwrap_or(now);
    for kind in Kind::ALL.iter().copied().filter(|kind| of(*kind)) {
        since = since.max(*state.tally.listed.get(&kind)?);
    }
    Some(since)
}

fn name(kind: Kind, key: Key) -> String {
    match kind {
        Kind::Namespace => format!("Namespace {}", namespace_name(key.0)),
        _ => format!("{kind} {}/{}", namespace_name(key.0), object_name(kind, key)),
    }
}

/// What no moment explains.
fn describe(kind: Kind, from: &Cursor, to: &Cursor, history: &History, view: View<'_>) -> String {
    let moments = history.all(kind);
    let first = differences(kind, from, history, view);
    let last = differences(kind, to, history, view);
    let version = |at: usize| moments[at].version;
    format!(
        "no moment of {kind} from {} (version {}) to {} (version {}): at first {first}; at last {last}",
        from.at,
        version(from.at),
        to.at,
        version(to.at)
    )
}

fn differences(kind: Kind, cursor: &Cursor, history: &History, view: View<'_>) -> String {
    let objects = &history.all(kind)[cursor.at].objects;
    let one = |key: &Key| {
        let published = view.published.get(key);
        let expected = cursor::expected(kind, objects, *key, view.namespaces);
        format!("{} is {published:?} and not {expected:?}", name(kind, *key))
    };
    let shown: Vec<String> = cursor.differing.iter().take(4).map(one).collect();
    format!("{} differ ({})", cursor.differing.len(), shown.join(", "))
}
