//! The server: a history, how it is served, and what is wrong with it.
//!
//! Owns the state that requests and the story share, and how far each kind's watch cache has read the
//! history. Requests are answered in `http`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use smc_host::sync::lock;
use smc_types::object_ref::Kind;
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::StoryClock;
use super::connection::Wires;
use super::faults::{Command, Fault, Faults, Refusal};
use super::history::{Form, History, Key};
use super::random::Random;
pub use super::tally::{Asked, Tally};
use super::written::Written;

/// A list for which the cache is behind by so much takes so long that it may be asked for in another way.
const CACHE_PATIENCE: Duration = Duration::from_secs(20);

/// Within what time requests are answered.
const ANSWERED: Duration = Duration::from_secs(5);

/// After what time a lost connection is noticed.
const LOST: Duration = Duration::from_secs(30);

/// How the server treats lists that are to be streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// It streams them.
    Served,
    /// It refuses them with this status, as an older server.
    Refused(u16),
    /// It knows no such parameter, and sends what it has and no end of it, as a still older server.
    Ignored,
}

/// How a server is, for the whole of a story.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that servers do or do not")]
pub struct Setup {
    /// Whether it speaks HTTP/2; HTTP/1.1 otherwise.
    pub http2: bool,
    /// How it treats lists that are to be streamed.
    pub streaming: Streaming,
    /// Whether watches get bookmarks, if they ask for them.
    pub bookmarks: bool,
    /// Whether a bookmark is of the latest version; otherwise of the latest change of its kind.
    pub progress: bool,
    /// Whether consistent lists come from the watch cache, which must have read so far; otherwise from the
    /// store, and watches are behind them.
    pub cached: bool,
    /// The most objects of a page, whatever is asked for.
    pub page: usize,
    /// How long answers of a kind take, in milliseconds.
    pub delays: BTreeMap<Kind, u64>,
    /// How far the watch cache of a kind is behind, in milliseconds.
    pub lags: BTreeMap<Kind, u64>,
    /// Of a hundred bodies and events, how many are cut.
    pub cut: u64,
    /// The longest pause between two parts of a body, in milliseconds.
    pub pause: u64,
    /// Whether a watch from a version that is too old is refused by an event; otherwise by its status.
    pub expires_in_stream: bool,
    /// For how long custom resources are unknown after the server was away, in milliseconds.
    pub warming: u64,
    /// The status of a request for one meanwhile.
    pub warming_status: u16,
}

/// A server. Clones are the same one.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    setup: Setup,
    random: Random,
    clock: StoryClock,
    state: Mutex<State>,
    /// Says that something of a kind changed.
    signals: BTreeMap<Kind, watch::Sender<u64>>,
    wires: Wires,
    written: Mutex<Written>,
}

/// What requests and the story share.
#[derive(Debug)]
pub struct State {
    /// What the store held.
    pub history: History,
    /// What is wrong.
    pub faults: Faults,
    /// What was asked.
    pub tally: Tally,
    /// How far each watch cache has read.
    read: BTreeMap<Kind, u64>,
    /// What happened to watches, by kind.
    pub(super) commands: BTreeMap<Kind, Vec<(Instant, Command)>>,
    /// The returns to older states.
    pub(super) returns: Vec<Return>,
    /// The highest version that was sent to the source.
    sent: u64,
    /// What is sent until the first of these times arrives at the second.
    late: Option<(Instant, Instant)>,
    lags: BTreeMap<Kind, u64>,
}

/// A return to an older state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Return {
    pub(super) version: u64,
    /// Whether open watches say what changes afterwards under versions that they have said already.
    pub(super) telling: bool,
}

impl State {
    /// How far the watch cache of a kind has read.
    pub(super) fn read(&mut self, kind: Kind, now: Instant) -> u64 {
        let lag = self.lag(kind, now);
        let version = now.checked_sub(lag).map_or(0, |at| self.history.version_before(at));
        let read = self.read.entry(kind).or_default();
        *read = version.max(*read);
        *read
    }

    /// When the watch cache of a kind may have read a version, or the next one after it.
    pub(super) fn reads_at(&self, kind: Kind, version: u64, now: Instant) -> Option<Instant> {
        Some(self.late(kind, self.history.came(version)?, now))
    }

    /// When the watch cache of a kind may have read its next change after a version.
    pub(super) fn changes_at(&self, kind: Kind, version: u64, now: Instant) -> Option<Instant> {
        Some(self.late(kind, self.history.changed_after(kind, version)?, now))
    }

    /// When the watch cache of a kind has read what came then.
    fn late(&self, kind: Kind, came: Instant, now: Instant) -> Instant {
        let at = came + self.lag(kind, now);
        let ends = self.faults.ends(Fault::Lag(kind), now);
        ends.map_or(at, |ends| at.min(ends))
    }

    fn lag(&self, kind: Kind, now: Instant) -> Duration {
        let usual = Duration::from_millis(self.lags.get(&kind).copied().unwrap_or_default());
        self.faults.lags(kind, now).unwrap_or_default().max(usual)
    }

    /// A whole list is sent. It does not arrive while connections stand still, nor on one that is lost.
    pub(super) fn note_listed(&mut self, kind: Kind, now: Instant) {
        let at = self.late.filter(|(until, _)| *until > now).map_or(now, |(_, at)| at);
        self.tally.listed.entry(kind).or_insert(at);
    }

    /// What is sent until then, and was sent just before, arrives at `at`.
    fn delay(&mut self, until: Instant, at: Instant) {
        self.late = self.late.max(Some((until, at)));
        self.tally.delay_lists(Instant::now(), at);
    }

    /// A version is sent to the source.
    pub(super) fn note_sent(&mut self, version: u64) {
        self.sent = version.max(self.sent);
    }

    /// Whether a kind is served, and has been for so long that a source must know it.
    pub fn has_served(&self, kind: Kind, now: Instant) -> bool {
        let unknown = kind.spec().custom && self.faults.held_lately(Fault::Unknown, now);
        !unknown && !self.faults.held_lately(Fault::Gone(kind), now)
    }

    /// Whether a kind is served.
    pub fn serves(&self, kind: Kind, now: Instant) -> bool {
        let unknown = kind.spec().custom && self.faults.holds(Fault::Unknown, now);
        !unknown && !self.faults.holds(Fault::Gone(kind), now)
    }
}

impl Server {
    /// A server with an empty store.
    pub fn new(setup: Setup, seed: u64, clock: StoryClock) -> Self {
        let signals = Kind::ALL.iter().map(|kind| (*kind, watch::Sender::new(0))).collect();
        let state = State {
            history: History::new(1000, Instant::now()),
            faults: Faults::default(),
            tally: Tally::default(),
            read: BTreeMap::new(),
            commands: BTreeMap::new(),
            returns: Vec::new(),
            sent: 0,
            late: None,
            lags: setup.lags.clone(),
        };
        let state = Mutex::new(state);
        let random = Random::new(seed);
        let (wires, written) = (Wires::default(), Mutex::new(Written::new()));
        Self(Arc::new(Shared { setup, random, clock, state, signals, wires, written }))
    }

    /// How it is.
    pub fn setup(&self) -> &Setup {
        &self.0.setup
    }

    pub(super) fn random(&self) -> &Random {
        &self.0.random
    }

    pub(super) fn clock(&self) -> &StoryClock {
        &self.0.clock
    }

    pub(super) fn wires(&self) -> &Wires {
        &self.0.wires
    }

    /// What requests and the story share.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    pub(super) fn written(&self) -> MutexGuard<'_, Written> {
        lock(&self.0.written)
    }

    pub(super) fn signal(&self, kind: Kind) -> watch::Receiver<u64> {
        // Every kind has a signal.
        self.0.signals[&kind].subscribe()
    }

    fn wake(&self, kind: Kind) {
        self.0.signals[&kind].send_modify(|count| *count += 1);
    }

    fn wake_all(&self) {
        for kind in Kind::ALL {
            self.wake(*kind);
        }
    }

    /// Creates an object or replaces it.
    pub fn put(&self, kind: Kind, key: Key, form: Form) {
        let mut state = self.state();
        state.history.put(kind, key, form, Instant::now());
        if kind == Kind::Namespace {
            // A namespace that enters is to be read.
            state.tally.excuse_all();
        }
        drop(state);
        self.wake(kind);
    }

    /// Deletes an object.
    pub fn delete(&self, kind: Kind, key: Key) {
        self.state().history.delete(kind, key, Instant::now());
        self.wake(kind);
    }

    /// Something is wrong for a while.
    pub fn begin(&self, fault: Fault, span: Duration) {
        let now = Instant::now();
        let until = now + span;
        let mut state = self.state();
        state.faults.begin(fault, until);
        match fault {
            Fault::Away => {
                let warming = Duration::from_millis(self.0.setup.warming);
                state.faults.begin(Fault::Unknown, until + warming);
                self.0.wires.break_all();
            }
            Fault::Frozen => {
                self.0.wires.freeze(until);
                state.delay(until, until);
            }
            _ => {}
        }
        match fault {
            Fault::Forbidden(kind) | Fault::Gone(kind) => {
                state.tally.excuse(kind);
                state.tally.looks_excused += 1;
            }
            _ => state.tally.excuse_for(span),
        }
        drop(state);
        self.wake_all();
    }

    /// A kind is further behind for a while.
    pub fn lag(&self, kind: Kind, by: Duration, span: Duration) {
        let mut state = self.state();
        state.faults.lag(kind, by, Instant::now() + span);
        if by >= CACHE_PATIENCE {
            // Versions that are asked for of this kind come late, as from a server that was away.
            state.tally.excuse_all();
        }
        drop(state);
        self.wake(kind);
    }

    /// Requests are refused for a while.
    pub fn refuse(&self, kind: Option<Kind>, refusal: Refusal, span: Duration) {
        self.state().faults.refuse(kind, refusal, Instant::now() + span);
    }

    /// The next requests are refused.
    pub fn refuse_next(&self, kind: Option<Kind>, refusal: Refusal, times: u8) {
        self.state().faults.refuse_next(kind, refusal, times, Instant::now());
    }

    /// Something happens to the open watches of a kind.
    pub fn command(&self, kind: Kind, command: Command) {
        let mut state = self.state();
        state.tally.excuse(kind);
        let now = Instant::now();
        state.faults.note(now);
        if let Command::Silence { span: Some(span), .. } = command {
            state.faults.note(now + span);
        }
        state.commands.entry(kind).or_default().push((now, command));
        drop(state);
        self.wake(kind);
    }

    /// All connections are lost without a word; new ones work.
    pub fn lose_connections(&self) {
        let mut state = self.state();
        // Requests on them are answered by nothing, until they are given up.
        state.tally.excuse_for(Duration::from_mins(1));
        let now = Instant::now();
        state.faults.note(now);
        state.delay(now + ANSWERED, now + LOST);
        self.0.wires.lose_all();
    }

    /// All connections break; new ones work.
    pub fn break_connections(&self) {
        self.0.wires.break_all();
    }

    /// Nothing is wrong any more.
    pub fn recover(&self) {
        self.state().faults.end_all(Instant::now());
        self.wake_all();
    }

    /// Forgets the changes so far.
    pub fn compact(&self) {
        self.state().history.compact();
    }

    /// Goes back to what there was so many changes ago. Whether open watches stay silent until the versions
    /// overtake theirs, or say what changes afterwards at once, is `telling`.
    pub fn go_back(&self, changes: usize, telling: bool) {
        let now = Instant::now();
        let mut state = self.state();
        let version = state.history.before(changes);
        state.history.return_to(version, now);
        state.faults.restore_definitions(now);
        for read in state.read.values_mut() {
            *read = version.min(*read);
        }
        // Where nothing later was sent to the source, there is nothing to notice.
        let telling = telling || state.sent <= version;
        state.sent = version.min(state.sent);
        state.returns.push(Return { version, telling });
        state.tally.excuse_all();
        state.tally.looks_excused += 1;
        drop(state);
        self.wake_all();
    }
}
