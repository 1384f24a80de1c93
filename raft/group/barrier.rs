//! One read of the leader's index, shared by all callers that wait for one.
//!
//! Owns the sharing: callers that ask for a barrier while one is running wait for the next one together. So
//! ten thousand proxies that connect at once cost a few round trips. A caller never shares a barrier that
//! began before its call, which may have missed what was acknowledged in between.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// Shares the results of barriers; `T` is the result.
#[derive(Debug)]
pub(crate) struct SharedBarrier<T> {
    /// How many barriers have begun.
    begun: AtomicU64,
    /// The number and result of the last one that ended. Locked while one runs.
    last: Mutex<Option<(u64, T)>>,
}

impl<T: Clone> SharedBarrier<T> {
    pub(crate) fn new() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// The result of a barrier that begins after this call; `run` runs it if no other caller does. A caller
    /// may be dropped at any time: the next one then runs its own.
    pub(crate) async fn pass(&self, run: impl Future<Output = T>) -> T {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((number, result)) = &*last
            && *number > before
        {
            return result.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = run.await;
        *last = Some((number, result.clone()));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use tokio::sync::{Notify, Semaphore};
    use tokio::task::yield_now;

    use super::*;

    /// Lets every other task run until it waits.
    async fn settled() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn callers_during_a_barrier_share_the_next_one_and_not_that_one() {
        let barrier = Arc::new(SharedBarrier::new());
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (barrier, runs, gate) = (Arc::clone(&barrier), Arc::clone(&runs), Arc::clone(&gate));
            tokio::spawn(async move {
                let run = async {
                    let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
                    gate.acquire().await.unwrap().forget();
                    number
                };
                barrier.pass(run).await
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
            assert_eq!(other.await.unwrap(), 2, "a barrier that began before the call answered it");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_the_barrier_to_the_next() {
        let barrier = Arc::new(SharedBarrier::new());
        let started = Arc::new(Notify::new());
        let stuck = {
            let (barrier, started) = (Arc::clone(&barrier), Arc::clone(&started));
            tokio::spawn(async move {
                let run = async {
                    started.notify_one();
                    std::future::pending().await
                };
                barrier.pass(run).await
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
