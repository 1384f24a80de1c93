//! How far the open streams are with the latest served state.
//!
//! Owns the count of those that have not taken it up, which the publisher waits for
//! ([`smc_mesh::coalescing`]).

use std::sync::{Arc, Mutex};

use smc_host::sync::lock;
use smc_mesh::coalescing;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How far the streams are. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamProgress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<Count>,
    /// Wakes the publisher, which alone waits.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Count {
    /// The latest generation.
    published: u64,
    streams: usize,
    /// The streams that have not taken it up.
    behind: usize,
}

impl StreamProgress {
    /// Takes note that this generation is about to be published.
    pub(crate) fn publish(&self, generation: u64) {
        let mut count = lock(&self.0.count);
        count.published = generation;
        count.behind = count.streams;
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
            let _ = timeout(wait, self.0.changed.notified()).await;
        }
    }

    /// Counts one more stream, which begins with the latest state.
    pub(crate) fn follow(&self) -> Follower {
        let mut count = lock(&self.0.count);
        count.streams += 1;
        Follower { taken: count.published, uptake: self.clone() }
    }
}

/// One stream. Dropping it takes it out of the count.
#[derive(Debug)]
pub(crate) struct Follower {
    /// The generation that it has taken up.
    taken: u64,
    uptake: StreamProgress,
}

impl Follower {
    /// Takes note that the stream has taken up this generation.
    pub(crate) fn take(&mut self, generation: u64) {
        let mut count = lock(&self.uptake.0.count);
        if self.taken < count.published && generation >= count.published {
            count.behind -= 1;
            self.uptake.0.wake(&count);
        }
        self.taken = self.taken.max(generation);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut count = lock(&self.uptake.0.count);
        count.streams -= 1;
        if self.taken < count.published {
            count.behind -= 1;
        }
        self.uptake.0.wake(&count);
    }
}

impl Shared {
    fn wake(&self, count: &Count) {
        if coalescing::wait(count.streams, count.behind, std::time::Duration::ZERO).is_zero() {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(uptake: &StreamProgress) -> (usize, usize) {
        let count = lock(&uptake.0.count);
        (count.behind, count.streams)
    }

    #[test]
    fn every_stream_counts_once_for_every_publication() {
        let uptake = StreamProgress::default();
        uptake.publish(1);
        let (mut first, mut second) = (uptake.follow(), uptake.follow());
        assert_eq!(behind(&uptake), (0, 2), "they begin with the latest");
        uptake.publish(2);
        first.take(2);
        first.take(2);
        assert_eq!(behind(&uptake), (1, 2));
        uptake.publish(3);
        second.take(2);
        assert_eq!(behind(&uptake), (2, 2), "an older one does not count");
        second.take(3);
        drop(first);
        assert_eq!(behind(&uptake), (0, 1));
        uptake.publish(4);
        drop(second);
        assert_eq!(behind(&uptake), (0, 0), "one that ends is not waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_publication_waits_for_streams_and_no_longer_than_the_limit() {
        let uptake = StreamProgress::default();
        let mut stream = uptake.follow();
        uptake.publish(1);
        let published = Instant::now();
        uptake.due(published).await;
        assert_eq!(published.elapsed().as_millis(), coalescing::MAX_WAIT.as_millis());
        uptake.publish(2);
        let published = Instant::now();
        tokio::join!(uptake.due(published), async { stream.take(2) });
        assert!(published.elapsed().is_zero());
    }
}
