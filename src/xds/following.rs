//! Which of the streams that follow the served states a state concerns.
//!
//! Owns the index of streams by proxy, class and endpoints. A state that differs for ten of ten thousand
//! proxies wakes ten streams; the others keep the view that they have, which is as good.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::resource::ResourceType;
use crate::served_state::{Changed, Changes, ServedState, Snapshot};
use smc_types::ids::ProxyName;
use smc_types::proxy_class::ProxyClass;

/// A stream, by a number that is given once.
pub type StreamId = u64;

/// Every stream is woken once in so many states, whether they concern it or not: its view keeps the tables of
/// a state in memory, some kilobytes that later states do not share.
const REFRESHED: usize = 512;

/// The most changed endpoints that are looked for in what each class refers to. Beyond, every class has its
/// streams woken: a look at a name takes some 200 ns for a class, a stream in vain some 10 µs.
const MAX_LOOKED_FOR: usize = 16;

/// The streams and what they follow.
#[derive(Debug, Default)]
pub struct Following {
    /// The generation that was dealt with last.
    generation: u64,
    streams: BTreeMap<StreamId, Followed>,
    by_proxy: BTreeMap<ProxyName, BTreeSet<StreamId>>,
    by_class: BTreeMap<Arc<ProxyClass>, FollowedClass>,
    /// The stream that was refreshed last.
    refreshed: StreamId,
}

#[derive(Debug)]
struct Followed {
    proxy: ProxyName,
    class: Option<Arc<ProxyClass>>,
}

#[derive(Debug)]
struct FollowedClass {
    streams: BTreeSet<StreamId>,
    /// What the class is served.
    snapshot: Option<Arc<Snapshot>>,
}

impl Following {
    /// Adds a stream of a proxy. `latest` is the state with which [`Self::advance`] was called last; the
    /// stream begins with it.
    pub fn enter(&mut self, stream: StreamId, proxy: &ProxyName, latest: &ServedState) {
        self.streams.insert(stream, Followed { proxy: proxy.clone(), class: None });
        self.by_proxy.entry(proxy.clone()).or_default().insert(stream);
        self.place(stream, latest);
    }

    /// Removes a stream.
    pub fn leave(&mut self, stream: StreamId) {
        let Some(Followed { proxy, class }) = self.streams.remove(&stream) else { return };
        if let Some(of_proxy) = self.by_proxy.get_mut(&proxy) {
            of_proxy.remove(&stream);
            if of_proxy.is_empty() {
                self.by_proxy.remove(&proxy);
            }
        }
        self.leave_class(stream, class);
    }

    /// Goes on to a later state. Returns the streams that it concerns, each with what differs from the
    /// latest state before this one that concerned it. For all others nothing does.
    pub fn advance(&mut self, state: &ServedState) -> BTreeMap<StreamId, Arc<Changed>> {
        let steps = state.changes_since(self.generation).map(Iterator::collect::<Vec<_>>);
        let concerned = match steps {
            Some(steps) => self.concerned(state, &steps),
            None => self.all(state),
        };
        self.generation = state.generation;
        concerned
    }

    /// All streams, placed where this state has them.
    fn all(&mut self, state: &ServedState) -> BTreeMap<StreamId, Arc<Changed>> {
        let everything = Arc::new(Changed::Everything);
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for &stream in &streams {
            self.place(stream, state);
        }
        for (class, followed) in &mut self.by_class {
            followed.snapshot = state.snapshots.get(class).cloned();
        }
        streams.into_iter().map(|stream| (stream, Arc::clone(&everything))).collect()
    }

    fn concerned(&mut self, state: &ServedState, steps: &[&Changes]) -> BTreeMap<StreamId, Arc<Changed>> {
        let moved = self.move_proxies(state, steps);
        let mut concerned = BTreeMap::new();

        let own: BTreeSet<_> =
            steps.iter().flat_map(|step| step.whole.iter().chain(step.classes.keys())).collect();
        for class in own {
            let Some(followed) = self.by_class.get_mut(class) else { continue };
            followed.snapshot = state.snapshots.get(class).cloned();
            let changed = Arc::new(state.changed_since(self.generation, class));
            concerned.extend(followed.streams.iter().map(|stream| (*stream, Arc::clone(&changed))));
        }

        let endpoints: BTreeSet<_> = steps.iter().flat_map(|step| &step.endpoints).collect();
        if !endpoints.is_empty() {
            let named = endpoints.iter().map(|name| (ResourceType::Endpoint, Arc::clone(name)));
            let changed = Arc::new(Changed::Names(named.collect()));
            let refers = |snapshot: &Arc<Snapshot>| {
                endpoints.len() > MAX_LOOKED_FOR
                    || endpoints.iter().any(|&name| snapshot.endpoints.contains(name))
            };
            let referring =
                self.by_class.values().filter(|followed| followed.snapshot.as_ref().is_some_and(refers));
            for stream in referring.flat_map(|followed| &followed.streams) {
                concerned.entry(*stream).or_insert_with(|| Arc::clone(&changed));
            }
        }

        let everything = Arc::new(Changed::Everything);
        concerned.extend(moved.into_iter().map(|stream| (stream, Arc::clone(&everything))));
        let nothing = Arc::new(Changed::Names(BTreeSet::new()));
        for stream in self.next_refreshed() {
            concerned.entry(stream).or_insert_with(|| Arc::clone(&nothing));
        }
        concerned
    }

    /// Places the streams of proxies that came, went or changed. Returns these streams.
    fn move_proxies(&mut self, state: &ServedState, steps: &[&Changes]) -> Vec<StreamId> {
        let proxies = steps.iter().flat_map(|step| &step.proxies);
        let moved: Vec<_> = proxies.filter_map(|proxy| self.by_proxy.get(proxy)).flatten().copied().collect();
        for &stream in &moved {
            self.place(stream, state);
        }
        moved
    }

    /// Puts a stream into the class that its proxy has in this state.
    fn place(&mut self, stream: StreamId, state: &ServedState) {
        let Some(followed) = self.streams.get_mut(&stream) else { return };
        let class = state.proxies.get(&followed.proxy).map(|known| Arc::clone(&known.class));
        let before = std::mem::replace(&mut followed.class, class.clone());
        self.leave_class(stream, before);
        if let Some(class) = class {
            let snapshot = || state.snapshots.get(&class).cloned();
            let new = || FollowedClass { streams: BTreeSet::new(), snapshot: snapshot() };
            self.by_class.entry(Arc::clone(&class)).or_insert_with(new).streams.insert(stream);
        }
    }

    fn leave_class(&mut self, stream: StreamId, class: Option<Arc<ProxyClass>>) {
        let Some(class) = class else { return };
        let Some(followed) = self.by_class.get_mut(&class) else { return };
        followed.streams.remove(&stream);
        if followed.streams.is_empty() {
            self.by_class.remove(&class);
        }
    }

    /// The streams whose turn it is to be refreshed.
    fn next_refreshed(&mut self) -> Vec<StreamId> {
        let count = self.streams.len().div_ceil(REFRESHED);
        let after = (Bound::Excluded(self.refreshed), Bound::Unbounded);
        let later = self.streams.range(after).chain(&self.streams).map(|(stream, _)| *stream);
        let next: Vec<_> = later.take(count).collect();
        self.refreshed = next.last().copied().unwrap_or_default();
        next
    }
}

#[cfg(test)]
mod tests {
    use imbl::OrdSet;
    use smc_types::ids::{ServiceAccountId, WorkloadId};

    use super::*;
    use crate::served_state::{ChangedNames, KnownProxy};

    fn class(number: u32) -> Arc<ProxyClass> {
        let account = ServiceAccountId::new("shop", &format!("a{number}")).unwrap();
        Arc::new(ProxyClass { account, inbound: vec![], ipv4: true, ipv6: false, telemetry: None })
    }

    fn proxy(number: u32) -> ProxyName {
        format!("00000000-0000-4000-8000-{number:012}.shop").parse().unwrap()
    }

    fn snapshot(endpoints: &[&str]) -> Arc<Snapshot> {
        let endpoints: OrdSet<Arc<str>> = endpoints.iter().map(|name| Arc::from(*name)).collect();
        Arc::new(Snapshot { endpoints, ..Snapshot::default() })
    }

    /// Puts a proxy into a class.
    fn put(state: &mut ServedState, number: u32, class: Arc<ProxyClass>) {
        let workload = WorkloadId::new("shop", &format!("p{number}")).unwrap();
        state.proxies.insert(proxy(number), KnownProxy { workload, class });
    }

    /// A state with the proxies 0 to 3, of which the last has no class that is served. The first two have
    /// class 1 and refer to "x" and "y", the third has class 2 and refers to "y".
    fn state() -> ServedState {
        let mut state = ServedState::default();
        for (number, of) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            put(&mut state, number, class(of));
        }
        state.snapshots.insert(class(1), snapshot(&["x", "y"]));
        state.snapshots.insert(class(2), snapshot(&["y"]));
        state
    }

    /// The streams of these proxies have the numbers 100, 101, and so on. There are 50 more of a proxy that
    /// does not exist, whose turns to be refreshed come first.
    fn following(state: &ServedState) -> Following {
        let mut following = Following::default();
        following.advance(state);
        for number in 0..4 {
            following.enter(StreamId::from(number) + 100, &proxy(number), state);
        }
        for stream in 1..=50 {
            following.enter(stream, &proxy(99), state);
        }
        following
    }

    fn names(of: &[(ResourceType, &str)]) -> BTreeSet<(ResourceType, Arc<str>)> {
        of.iter().map(|(kind, name)| (*kind, Arc::from(*name))).collect()
    }

    /// The streams of proxies that exist and that a change concerns, each with the names that it is given.
    fn concerned(following: &mut Following, state: &mut ServedState, changes: Changes) -> Vec<(u32, String)> {
        state.record(changes);
        let concerned = following.advance(state).into_iter().filter(|(stream, _)| *stream >= 100);
        let text = |changed: &Changed| match changed {
            Changed::Everything => "everything".to_owned(),
            Changed::Names(names) => names.iter().map(|(_, name)| &**name).collect::<Vec<_>>().join(" "),
        };
        concerned.map(|(stream, changed)| (u32::try_from(stream - 100).unwrap(), text(&changed))).collect()
    }

    fn endpoints(names: &[&str]) -> Changes {
        Changes { endpoints: names.iter().map(|name| Arc::from(*name)).collect(), ..Changes::default() }
    }

    fn is(streams: &[u32], names: &str) -> Vec<(u32, String)> {
        streams.iter().map(|stream| (*stream, names.to_owned())).collect()
    }

    #[test]
    fn a_change_of_endpoints_concerns_the_classes_that_refer_to_them() {
        let mut state = state();
        let mut following = following(&state);
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x"])), is(&[0, 1], "x"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x", "y"])), is(&[0, 1, 2], "x y"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["z"])), []);
        // What a class refers to is what it refers to now.
        state.snapshots.insert(class(2), snapshot(&["z"]));
        let cluster =
            ChangedNames { own: Arc::new(names(&[(ResourceType::Cluster, "c")])), ..ChangedNames::default() };
        let own = Changes { classes: BTreeMap::from([(class(2), cluster)]), ..endpoints(&["z"]) };
        assert_eq!(concerned(&mut following, &mut state, own), is(&[2], "c z"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["y"])), is(&[0, 1], "y"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["z"])), is(&[2], "z"));
    }

    #[test]
    fn many_changed_endpoints_concern_every_class() {
        let mut state = state();
        let mut following = following(&state);
        let many: Vec<_> = (0..=MAX_LOOKED_FOR).map(|number| format!("z{number:02}")).collect();
        let many: Vec<_> = many.iter().map(|name| &**name).collect();
        assert_eq!(concerned(&mut following, &mut state, endpoints(&many)), is(&[0, 1, 2], &many.join(" ")));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&many[1..])), []);
    }

    #[test]
    fn a_change_of_a_class_concerns_its_streams() {
        let mut state = state();
        let mut following = following(&state);
        let route = ChangedNames {
            shared: Arc::new(names(&[(ResourceType::Route, "r")])),
            ..ChangedNames::default()
        };
        let changed =
            || Changes { classes: BTreeMap::from([(class(1), route.clone())]), ..Changes::default() };
        assert_eq!(concerned(&mut following, &mut state, changed()), is(&[0, 1], "r"));
        let whole = |number| Changes { whole: BTreeSet::from([class(number)]), ..Changes::default() };
        state.snapshots.insert(class(3), snapshot(&["x"]));
        assert_eq!(concerned(&mut following, &mut state, whole(3)), is(&[3], "everything"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x"])), is(&[0, 1, 3], "x"));
        state.snapshots.remove(&class(1));
        assert_eq!(concerned(&mut following, &mut state, whole(1)), is(&[0, 1], "everything"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x"])), is(&[3], "x"));
        following.leave(103);
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x"])), []);
        assert_eq!(concerned(&mut following, &mut state, whole(3)), []);
    }

    #[test]
    fn a_proxy_that_moves_takes_its_streams_along() {
        let mut state = state();
        let mut following = following(&state);
        put(&mut state, 0, class(2));
        state.proxies.remove(&proxy(1));
        let moved = Changes { proxies: BTreeSet::from([proxy(0), proxy(1)]), ..Changes::default() };
        assert_eq!(concerned(&mut following, &mut state, moved), is(&[0, 1], "everything"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["x"])), []);
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["y"])), is(&[0, 2], "y"));
        put(&mut state, 1, class(2));
        let back = Changes { proxies: BTreeSet::from([proxy(1)]), ..Changes::default() };
        assert_eq!(concerned(&mut following, &mut state, back), is(&[1], "everything"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["y"])), is(&[0, 1, 2], "y"));
    }

    #[test]
    fn several_states_together_concern_what_each_does() {
        let mut state = state();
        let mut following = following(&state);
        state.record(endpoints(&["x"]));
        let y = concerned(&mut following, &mut state, endpoints(&["y"]));
        assert_eq!(y, is(&[0, 1, 2], "x y"));
        // More than are remembered.
        for _ in 0..100 {
            state.record(endpoints(&["z"]));
        }
        state.snapshots.insert(class(3), snapshot(&["z"]));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["z"])), is(&[0, 1, 2, 3], "everything"));
        assert_eq!(concerned(&mut following, &mut state, endpoints(&["z"])), is(&[3], "z"));
    }

    #[test]
    fn every_stream_is_woken_once_in_a_number_of_states() {
        for streams in [1_u64, 3, 511, 512, 513, 1_500] {
            let mut state = state();
            let mut following = Following::default();
            following.advance(&state);
            for stream in 1..=streams {
                following.enter(stream, &proxy(99), &state);
            }
            let mut woken = BTreeMap::new();
            for _ in 0..2 * REFRESHED {
                state.record(Changes::default());
                for (stream, changed) in following.advance(&state) {
                    assert_eq!(*changed, Changed::Names(BTreeSet::new()));
                    *woken.entry(stream).or_insert(0) += 1;
                }
            }
            assert_eq!(woken.len(), usize::try_from(streams).unwrap());
            assert!(woken.values().all(|times| *times >= 2), "{streams}");
        }
    }
}
