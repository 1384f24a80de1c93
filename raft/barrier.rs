//! One look at the leader for all who want one.
//!
//! Owns the sharing: whoever asks for a barrier while one is under way waits for the next, together with all the others
//! who came meanwhile. So ten thousand proxies that connect at once cost a few round trips. Refuses to share one that
//! began before it was asked for, since that may have missed what was acknowledged in between.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// See the module. `T` is what a look comes to.
#[derive(Debug)]
pub(crate) struct SharedBarrier<T> {
    /// How many looks have begun.
    begun: AtomicU64,
    /// The last one that ended, and what it came to. Who holds it looks.
    last: Mutex<Option<(u64, T)>>,
}

impl<T: Clone> SharedBarrier<T> {
    pub(crate) fn new() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// What a look comes to that begins after this call. Who stops waiting holds up nobody.
    pub(crate) async fn pass(&self, look: impl Future<Output = T>) -> T {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((number, came)) = &*last
            && *number > before
        {
            return came.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let came = look.await;
        *last = Some((number, came.clone()));
        came
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use tokio::sync::{Notify, Semaphore};
    use tokio::task::yield_now;

    use super::*;

    /// Everything else that can run has run.
    async fn settled() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn those_who_come_during_a_look_share_the_next_one_and_not_that_one() {
        let barrier = Arc::new(SharedBarrier::new());
        let (looks, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (barrier, looks, gate) = (Arc::clone(&barrier), Arc::clone(&looks), Arc::clone(&gate));
            tokio::spawn(async move {
                let look = async {
                    let number = looks.fetch_add(1, Ordering::SeqCst) + 1;
                    gate.acquire().await.unwrap().forget();
                    number
                };
                barrier.pass(look).await
            })
        };
        let first = ask();
        settled().await;
        let others: Vec<_> = (0..100).map(|_| ask()).collect();
        settled().await;
        gate.add_permits(1);
        assert_eq!(first.await.unwrap(), 1);
        gate.add_permits(1);
        for other in others {
            assert_eq!(other.await.unwrap(), 2, "a look that began before the question answered it");
        }
        assert_eq!(looks.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn who_gives_up_in_the_middle_of_a_look_leaves_it_to_the_next() {
        let barrier = Arc::new(SharedBarrier::new());
        let started = Arc::new(Notify::new());
        let stuck = {
            let (barrier, started) = (Arc::clone(&barrier), Arc::clone(&started));
            tokio::spawn(async move {
                let look = async {
                    started.notify_one();
                    std::future::pending().await
                };
                barrier.pass(look).await
            })
        };
        started.notified().await;
        let waiting = {
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move { barrier.pass(async { 7 }).await })
        };
        settled().await;
        stuck.abort();
        assert_eq!(waiting.await.unwrap(), 7);
    }
}
