//! What the steps of a story do.

use std::time::Duration;

use smc_types::object_ref::Kind;
use tokio::time::Instant;

use super::{Stale, World};
use crate::model_api::faults::{Command, Fault};
use crate::model_api::history::{Form, Key, OWN};
use crate::model_api::judge::Violation;
use crate::model_api::random::Random;
use crate::model_api::story::{Action, Back};

/// The objects of a kind in a namespace.
pub(super) const OBJECTS: u64 = 3;

/// From when on a source that cannot reach the server says that it is stale, and that gets no answer.
const STALE_IF_AWAY: Duration = Duration::from_secs(25);
const STALE_IF_SILENT: Duration = Duration::from_secs(75);

/// How long nothing can be written when an etcd is put back below a server that stays: its member
/// starts again. A source that asks for versions less often than that may miss that they went back.
const UNWRITABLE: Duration = Duration::from_secs(4);

/// Just before a fault ends.
const BEFORE: Duration = Duration::from_millis(10);

impl World<'_> {
    pub(super) async fn act(&mut self, action: &Action) -> Result<(), Violation> {
        if !matches!(action, Action::Quiet | Action::Restart { .. }) {
            self.note(format!("{action:?}"));
        }
        let now = Instant::now();
        match *action {
            Action::Changes { count, seed } => {
                let random = Random::new(seed);
                for _ in 0..count {
                    self.change(&random);
                }
            }
            Action::Hostile { seed } => self.be_hostile(&Random::new(seed)),
            Action::Enter(namespace) => self.server.put(Kind::Namespace, (namespace, 0), Form::Good),
            Action::Leave(namespace) => self.server.put(Kind::Namespace, (namespace, 0), Form::Outside),
            Action::Delete(namespace) => self.delete_namespace(namespace),
            Action::Lag { kind, by, span } => self.server.lag(kind, by, span),
            Action::Refuse(kind, refusal, span) => {
                self.bounds.rough(now + span);
                self.server.refuse(kind, refusal, span);
            }
            Action::RefuseNext(kind, refusal, times) => {
                self.bounds.rough(now);
                self.server.refuse_next(kind, refusal, times);
            }
            Action::Watches(kind, what) => self.command(kind, what),
            Action::Away(span) => {
                self.bounds.rough(now + span);
                self.stale(span, STALE_IF_AWAY, None);
                self.server.begin(Fault::Away, span);
            }
            Action::Frozen(span) | Action::Hang(span) => {
                self.bounds.rough(now + span);
                self.stale(span, STALE_IF_SILENT, None);
                let frozen = matches!(action, Action::Frozen(_));
                self.server.begin(if frozen { Fault::Frozen } else { Fault::Hang }, span);
            }
            Action::Lose => {
                self.bounds.rough(now);
                self.bounds.silent();
                self.server.lose_connections();
            }
            Action::Forbid(kind, span) => {
                self.bounds.rough(now + span);
                self.stale(span, Duration::from_secs(5), Some(kind));
                self.server.begin(Fault::Forbidden(kind), span);
            }
            Action::Undefine(kind, span) => self.undefine(kind, span),
            Action::Compact => self.server.compact(),
            Action::GoBack { changes, how } => self.go_back(changes, how).await?,
            Action::Restart { kill, keeps_directory, pause } => {
                if self.running.is_some() {
                    self.end(kill).await?;
                    self.run_for(pause).await?;
                    self.start(keeps_directory);
                }
            }
            Action::Quiet => self.quiet().await?,
        }
        Ok(())
    }

    /// The source must say that it is stale just before a fault ends that lasts for so long.
    fn stale(&mut self, span: Duration, after: Duration, kind: Option<Kind>) {
        if span >= after && self.judge.batches() > 0 {
            self.stale_at.insert(Instant::now() + span - BEFORE, Stale { run: self.runs, kind });
        }
    }

    fn command(&mut self, kind: Kind, command: Command) {
        if let Command::Silence { span: None, .. } = command {
            self.bounds.silent();
        }
        self.bounds.rough(Instant::now());
        self.server.command(kind, command);
    }

    fn undefine(&mut self, kind: Kind, span: Duration) {
        if !kind.spec().custom {
            return;
        }
        let keys: Vec<Key> = self.server.state().history.objects(kind).keys().copied().collect();
        for key in keys {
            self.server.delete(kind, key);
        }
        self.bounds.rough(Instant::now() + span);
        self.bounds.undefined();
        self.server.begin(Fault::Gone(kind), span);
    }

    async fn go_back(&mut self, changes: u8, how: Back) -> Result<(), Violation> {
        let telling = matches!(how, Back::Telling);
        if let Back::Away(span, _) = how {
            self.server.begin(Fault::Away, span);
        }
        self.server.go_back(changes.into(), telling);
        self.bounds.returned(self.judge.batches() == 0);
        self.judge.went_back();
        if let Back::Away(_, hidden) = how {
            let random = Random::new(u64::from(changes) << 8 | u64::from(hidden));
            (0..hidden).for_each(|_| self.change(&random));
            return Ok(());
        }
        // Nor while it does not answer.
        let now = Instant::now();
        let silent = [Fault::Hang, Fault::Frozen]
            .map(|fault| self.server.state().faults.ends(fault, now).unwrap_or(now))
            .into_iter()
            .max();
        self.run_until(silent.unwrap_or(now) + UNWRITABLE).await
    }

    fn delete_namespace(&mut self, namespace: u16) {
        for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Namespace) {
            let state = self.server.state();
            let of = state.history.objects(kind).range((namespace, 0)..=(namespace, u16::MAX));
            let keys: Vec<Key> = of.map(|(key, _)| *key).collect();
            drop(state);
            for key in keys {
                self.server.delete(kind, key);
            }
        }
        self.server.delete(Kind::Namespace, (namespace, 0));
    }

    /// Changes an object somewhere.
    fn change(&mut self, random: &Random) {
        if random.percent(4) {
            self.put(Kind::MeshConfig, (OWN, 0), Form::Good);
            return;
        }
        if random.percent(3) {
            if random.percent(50) {
                self.change_of(*random.one(&[Kind::Telemetry, Kind::ExtensionService]), OWN, random);
            } else {
                self.change_in(OWN, random);
            }
            return;
        }
        let namespace = u16::try_from(random.between(1, u64::from(self.story.namespaces))).unwrap_or(1);
        self.change_in(namespace, random);
    }

    /// Changes an object of a namespace.
    pub(super) fn change_in(&mut self, namespace: u16, random: &Random) {
        let kind = *random.one(Kind::ALL);
        if kind == Kind::Namespace {
            let form = self.server.state().history.objects(kind).get(&(namespace, 0)).map(|held| held.form);
            self.server.put(kind, (namespace, 0), form.unwrap_or(Form::Good));
            return;
        }
        self.change_of(kind, namespace, random);
    }

    /// Changes an object of this kind in a namespace.
    fn change_of(&mut self, kind: Kind, namespace: u16, random: &Random) {
        let object = if kind == Kind::MeshConfig { 0 } else { random.between(1, OBJECTS) };
        let key = (namespace, u16::try_from(object).unwrap_or(1));
        let exists = self.server.state().history.objects(kind).contains_key(&key);
        if exists && random.percent(35) {
            self.server.delete(kind, key);
        } else {
            self.put(kind, key, Form::Good);
        }
    }

    fn be_hostile(&mut self, random: &Random) {
        let custom: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| kind.spec().custom).collect();
        let built_in = [Kind::Pod, Kind::Service, Kind::EndpointSlice];
        let (kind, form) = if random.percent(20) {
            (*random.one(&built_in), Form::Refused)
        } else {
            let levels = *random.one(&[100, 120, 124, 125, 126, 127, 128, 129, 1000]);
            let form = match random.below(5) {
                0 => Form::Refused,
                1 => Form::Misshapen,
                2 | 3 => Form::Deep(levels),
                _ => Form::Wide(*random.one(&[100, 3000])),
            };
            (*random.one(&custom), form)
        };
        let own = kind.spec().extent.has_own() && random.percent(50);
        let namespace = if own {
            OWN
        } else {
            u16::try_from(random.between(1, u64::from(self.story.namespaces))).unwrap_or(1)
        };
        let object = if kind == Kind::MeshConfig { 0 } else { random.between(1, OBJECTS) };
        self.put(kind, (namespace, u16::try_from(object).unwrap_or(1)), form);
    }

    /// Creates or replaces an object, unless its kind is not defined; its namespace exists.
    fn put(&mut self, kind: Kind, key: Key, form: Form) {
        let state = self.server.state();
        let gone = state.faults.holds(Fault::Gone(kind), Instant::now());
        let exists = key.0 == OWN || state.history.objects(Kind::Namespace).contains_key(&(key.0, 0));
        drop(state);
        if gone {
            return;
        }
        if !exists {
            self.server.put(Kind::Namespace, (key.0, 0), Form::Good);
        }
        self.server.put(kind, key, form);
    }
}
