//! What the open streams have of the latest served states, and who has to take one up.
//!
//! Owns the news of each stream, and the count of streams that have news and have not taken them, for which
//! the publisher waits ([`smc_mesh::coalescing`]). Which streams a state concerns is
//! [`smc_xds::following`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::sync::lock;
use smc_mesh::coalescing;
use smc_types::ids::ProxyName;
use smc_xds::following::{Following, StreamId};
use smc_xds::revision::Revision;
use smc_xds::served_state::{Changed, ServedState};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// The changes that a stream has not taken up and that are kept by name. Beyond, it compares all that it has.
const MAX_GATHERED: usize = 64;

/// The open streams. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Followers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Locked before any news, and before the count.
    streams: Mutex<Streams>,
    count: Mutex<Count>,
    /// Wakes the publisher, which alone waits.
    caught_up: Notify,
}

#[derive(Debug, Default)]
struct Streams {
    following: Following,
    inboxes: BTreeMap<StreamId, Arc<Inbox>>,
    latest: StreamId,
}

#[derive(Debug, Default)]
struct Count {
    streams: usize,
    /// The streams that have news.
    behind: usize,
}

#[derive(Debug, Default)]
struct Inbox {
    news: Mutex<Option<Gathered>>,
    arrived: Notify,
}

#[derive(Debug)]
struct Gathered {
    state: Arc<ServedState>,
    changed: Vec<Arc<Changed>>,
}

/// A state that concerns a stream.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) state: Arc<ServedState>,
    /// What differs for the stream from the state of its news before.
    pub(crate) changed: Arc<Changed>,
}

impl Followers {
    /// Publishes a state in `served`, and wakes the streams that it concerns.
    pub(crate) fn publish(&self, served: &watch::Sender<Option<Arc<ServedState>>>, state: &Arc<ServedState>) {
        let mut streams = lock(&self.0.streams);
        served.send_replace(Some(Arc::clone(state)));
        let concerned = streams.following.advance(state);
        for (stream, changed) in concerned {
            let Some(inbox) = streams.inboxes.get(&stream) else { continue };
            let mut news = lock(&inbox.news);
            if let Some(news) = &mut *news {
                news.add(state, changed);
            } else {
                *news = Some(Gathered { state: Arc::clone(state), changed: vec![changed] });
                lock(&self.0.count).behind += 1;
            }
            inbox.arrived.notify_one();
        }
    }

    /// Resolves when the next publication is due, if the latest one was at `published`.
    pub(crate) async fn due(&self, published: Instant) {
        loop {
            let wait = {
                let count = lock(&self.0.count);
                coalescing::wait(count.streams, count.behind, published.elapsed())
            };
            if wait.is_zero() {
                return;
            }
            // Either way it is looked at again.
            let _ = timeout(wait, self.0.caught_up.notified()).await;
        }
    }

    /// Adds a stream of a proxy. Its first news are the latest state.
    pub(crate) fn follow(
        &self,
        proxy: &ProxyName,
        served: watch::Receiver<Option<Arc<ServedState>>>,
    ) -> Follower {
        let mut streams = lock(&self.0.streams);
        streams.latest += 1;
        let (stream, inbox) = (streams.latest, Arc::new(Inbox::default()));
        let first = served.borrow().clone();
        let nothing = ServedState::default();
        streams.following.enter(stream, proxy, first.as_deref().unwrap_or(&nothing));
        streams.inboxes.insert(stream, Arc::clone(&inbox));
        lock(&self.0.count).streams += 1;
        Follower { stream, first, inbox, served, followers: self.clone() }
    }
}

impl Gathered {
    fn add(&mut self, state: &Arc<ServedState>, changed: Arc<Changed>) {
        self.state = Arc::clone(state);
        if self.changed.len() < MAX_GATHERED {
            self.changed.push(changed);
        } else {
            self.changed = vec![Arc::new(Changed::Everything)];
        }
    }

    fn together(mut self) -> News {
        let changed = match self.changed.pop() {
            Some(only) if self.changed.is_empty() => only,
            last => Arc::new(all(self.changed.iter().chain(&last))),
        };
        News { state: self.state, changed }
    }
}

/// What differs after all of these changes.
fn all<'a>(changes: impl Iterator<Item = &'a Arc<Changed>>) -> Changed {
    let mut names = BTreeSet::new();
    for changed in changes {
        match &**changed {
            Changed::Everything => return Changed::Everything,
            Changed::Names(more) => names.extend(more.iter().cloned()),
        }
    }
    Changed::Names(names)
}

/// One stream. Dropping it takes it out of the count.
#[derive(Debug)]
pub(crate) struct Follower {
    stream: StreamId,
    /// The state that the stream begins with, until it is taken.
    first: Option<Arc<ServedState>>,
    inbox: Arc<Inbox>,
    served: watch::Receiver<Option<Arc<ServedState>>>,
    followers: Followers,
}

impl Follower {
    /// Resolves when there are news. Nothing is lost if it is dropped before.
    pub(crate) async fn arrived(&self) {
        while self.first.is_none() && lock(&self.inbox.news).is_none() {
            self.inbox.arrived.notified().await;
        }
    }

    /// Takes the news, if there are any.
    pub(crate) fn take(&mut self) -> Option<News> {
        let gathered = self.followers.0.take(&self.inbox);
        let Some(first) = self.first.take() else { return gathered.map(Gathered::together) };
        let state = gathered.map_or(first, |gathered| gathered.state);
        Some(News { state, changed: Arc::new(Changed::Everything) })
    }

    /// How far the source has come, if the stream has taken up all that this brought.
    pub(crate) fn revision(&self) -> Option<Arc<Revision>> {
        // A state that is being published is here before its news.
        let _streams = lock(&self.followers.0.streams);
        if self.first.is_some() || lock(&self.inbox.news).is_some() {
            return None;
        }
        self.served.borrow().as_ref()?.revision.clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut streams = lock(&self.followers.0.streams);
        streams.following.leave(self.stream);
        streams.inboxes.remove(&self.stream);
        lock(&self.followers.0.count).streams -= 1;
        drop(streams);
        self.followers.0.take(&self.inbox);
    }
}

impl Shared {
    fn take(&self, inbox: &Inbox) -> Option<Gathered> {
        let mut news = lock(&inbox.news);
        let gathered = news.take();
        let mut count = lock(&self.count);
        count.behind -= usize::from(gathered.is_some());
        if coalescing::wait(count.streams, count.behind, Duration::ZERO).is_zero() {
            self.caught_up.notify_one();
        }
        gathered
    }
}

#[cfg(test)]
mod tests {
    use smc_types::ids::{ServiceAccountId, WorkloadId};
    use smc_types::proxy_class::ProxyClass;
    use smc_xds::served_state::{ChangedNames, Changes, KnownProxy};

    use super::*;

    /// A mesh of these many proxies, each of a class of its own, and the streams of all.
    struct Mesh {
        served: watch::Sender<Option<Arc<ServedState>>>,
        followers: Followers,
        streams: Vec<Follower>,
    }

    fn class(number: u8) -> Arc<ProxyClass> {
        let account = ServiceAccountId::new("shop", &format!("a{number}")).unwrap();
        Arc::new(ProxyClass { account, inbound: vec![], ipv4: true, ipv6: false, telemetry: None })
    }

    fn proxy(number: u8) -> ProxyName {
        format!("00000000-0000-4000-8000-{number:012}.shop").parse().unwrap()
    }

    fn mesh(proxies: u8) -> Mesh {
        let mut state = ServedState::default();
        for number in 0..proxies {
            let workload = WorkloadId::new("shop", &format!("p{number}")).unwrap();
            state.proxies.insert(proxy(number), KnownProxy { workload, class: class(number) });
        }
        let (served, receiver) = watch::channel(None);
        let followers = Followers::default();
        followers.publish(&served, &Arc::new(state));
        let streams = (0..proxies).map(|number| followers.follow(&proxy(number), receiver.clone()));
        let streams = streams.collect();
        Mesh { served, followers, streams }
    }

    impl Mesh {
        /// Publishes a state that differs for these proxies, in a resource of this name.
        fn publish(&self, proxies: &[u8], name: &str) {
            let mut state = ServedState::clone(self.served.borrow().as_ref().unwrap());
            let resource = (smc_xds::resource::ResourceType::Cluster, Arc::from(name));
            let names = ChangedNames { shared: Arc::new([resource].into()), ..ChangedNames::default() };
            let classes = proxies.iter().map(|number| (class(*number), names.clone()));
            state.record(Changes { classes: classes.collect(), ..Changes::default() });
            self.followers.publish(&self.served, &Arc::new(state));
        }

        /// The streams that are behind, and all.
        fn behind(&self) -> (usize, usize) {
            let count = lock(&self.followers.0.count);
            (count.behind, count.streams)
        }

        /// The names that a stream has as changed; `None` if it has no news.
        fn names(&mut self, stream: usize) -> Option<Vec<String>> {
            let news = self.streams[stream].take()?;
            Some(match &*news.changed {
                Changed::Everything => vec!["everything".to_owned()],
                Changed::Names(names) => names.iter().map(|(_, name)| name.to_string()).collect(),
            })
        }
    }

    #[test]
    fn a_stream_has_news_of_what_concerns_it_and_is_waited_for() {
        let mut mesh = mesh(40);
        assert_eq!(mesh.behind(), (0, 40), "they begin with the latest");
        assert_eq!(mesh.names(7).unwrap(), ["everything"]);
        // Each state refreshes one stream besides, the first ones here.
        mesh.publish(&[7, 8], "x");
        assert_eq!(mesh.behind(), (3, 40));
        mesh.publish(&[7, 9], "y");
        assert_eq!(mesh.behind(), (5, 40));
        assert_eq!(mesh.names(7).unwrap(), ["x", "y"], "news gather");
        assert_eq!(mesh.names(7), None);
        assert_eq!(mesh.names(8).unwrap(), ["everything"], "the first are no different");
        assert_eq!(mesh.names(20).unwrap(), ["everything"]);
        assert_eq!(mesh.names(20), None);
        assert_eq!(mesh.behind(), (3, 40));
        mesh.streams.truncate(9);
        assert_eq!(mesh.behind(), (2, 9), "one that ends is not waited for");
        for number in 0..=MAX_GATHERED {
            mesh.publish(&[8], &number.to_string());
        }
        assert_eq!(mesh.names(8).unwrap(), ["everything"], "what is gathered is bounded");
    }

    #[test]
    fn the_revision_is_that_of_a_stream_without_news() {
        let mut mesh = mesh(8);
        let revision = Arc::new(Revision::default());
        let mut state = ServedState::clone(mesh.served.borrow().as_ref().unwrap());
        state.revision = Some(revision);
        mesh.served.send_replace(Some(Arc::new(state)));
        assert_eq!(mesh.streams[5].revision(), None, "it has not begun");
        mesh.names(5).unwrap();
        assert!(mesh.streams[5].revision().is_some());
        mesh.publish(&[5], "x");
        assert_eq!(mesh.streams[5].revision(), None);
        mesh.names(5).unwrap();
        assert!(mesh.streams[5].revision().is_some());
        mesh.publish(&[6], "x");
        assert!(mesh.streams[5].revision().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_publication_waits_for_streams_and_no_longer_than_the_limit() {
        let mut mesh = mesh(1);
        mesh.publish(&[0], "x");
        let published = Instant::now();
        mesh.followers.due(published).await;
        assert_eq!(published.elapsed().as_millis(), coalescing::MAX_WAIT.as_millis());
        let published = Instant::now();
        let followers = mesh.followers.clone();
        tokio::join!(followers.due(published), async {
            mesh.streams[0].arrived().await;
            mesh.names(0)
        });
        assert!(published.elapsed().is_zero());
    }
}
