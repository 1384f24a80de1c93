//! What openraft runs on: tokio, with the randomness that the replica was given.
//!
//! openraft draws how long a replica waits before it stands for election. Owns where that comes from, so that a
//! simulation repeats itself; everything else is tokio's.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::impls::TokioRuntime;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Gives random numbers.
pub type Draw = Arc<dyn Fn() -> u64 + Send + Sync>;

tokio::task_local! {
    static DRAW: Draw;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl Runtime {
    /// Runs `future`, and whatever it spawns on this runtime, with `draw`.
    pub(crate) fn drawing<F: Future>(draw: Draw, future: F) -> impl Future<Output = F::Output> {
        DRAW.scope(draw, future)
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        match DRAW.try_with(Arc::clone) {
            Ok(draw) => TokioRuntime::spawn(DRAW.scope(draw, future)),
            // Called by a task that is not openraft's. None of what openraft spawns for one draws anything.
            Err(_) => TokioRuntime::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> SmallRng {
        // A task that is not openraft's never comes here; were that to change, randomness is still random.
        let seed = DRAW.try_with(|draw| draw()).unwrap_or_else(|_| rand::random());
        SmallRng::seed_from_u64(seed)
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rand::Rng;

    use super::*;

    async fn drawn(start: u64) -> Vec<u64> {
        let next = AtomicU64::new(start);
        let draw: Draw = Arc::new(move || next.fetch_add(1, Ordering::Relaxed));
        let here_and_in_a_task = async {
            let here = Runtime::thread_rng().next_u64();
            let there = Runtime::spawn(async { Runtime::thread_rng().next_u64() }).await.unwrap();
            vec![here, there]
        };
        Runtime::drawing(draw, here_and_in_a_task).await
    }

    #[tokio::test]
    async fn what_is_drawn_follows_from_what_was_given_also_in_tasks() {
        assert_eq!(drawn(1).await, drawn(1).await);
        assert_ne!(drawn(1).await, drawn(7).await);
    }

    #[tokio::test]
    async fn whoever_was_given_nothing_still_draws_at_random() {
        let [one, other] = [(); 2].map(|()| Runtime::thread_rng().next_u64());
        assert_ne!(one, other);
    }
}
