//! The async runtime that openraft runs on: tokio, with election jitter from a seed.
//!
//! Owns the source of openraft's randomness, which openraft uses to spread election timeouts and for
//! nothing secret. openraft cannot take an error there, so the replica draws one seed from its
//! [`smc_host::env::Entropy`] when it starts, and every task that openraft spawns has a generator of its
//! own, seeded by its parent's. A simulation that gives the same seed therefore repeats the same elections.
//! Everything else is tokio's.

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::impls::TokioRuntime;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

tokio::task_local! {
    static JITTER: RefCell<SmallRng>;
}

/// tokio, with a seeded random generator in each task.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl Runtime {
    /// Runs `future`, and every task that it spawns on this runtime, with generators that follow from `seed`.
    pub(crate) fn seeded<F: Future>(seed: u64, future: F) -> impl Future<Output = F::Output> {
        JITTER.scope(RefCell::new(SmallRng::seed_from_u64(seed)), future)
    }

    /// A generator that follows from this task's; `None` in a task that openraft did not spawn.
    fn fork() -> Option<SmallRng> {
        JITTER.try_with(|parent| SmallRng::seed_from_u64(parent.borrow_mut().next_u64())).ok()
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
        match Self::fork() {
            Some(jitter) => TokioRuntime::spawn(JITTER.scope(RefCell::new(jitter), future)),
            // A caller outside openraft's tasks. openraft spawns nothing for it that needs random numbers.
            None => TokioRuntime::spawn(future),
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
        // openraft asks only in tasks of its own; should that change, the jitter is still random.
        Self::fork().unwrap_or_else(|| SmallRng::seed_from_u64(rand::random()))
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
    use super::*;

    async fn drawn(seed: u64) -> Vec<u64> {
        let here_and_in_a_task = async {
            let here = Runtime::thread_rng().next_u64();
            let there = Runtime::spawn(async { Runtime::thread_rng().next_u64() }).await.unwrap();
            vec![here, there]
        };
        Runtime::seeded(seed, here_and_in_a_task).await
    }

    #[tokio::test]
    async fn random_numbers_follow_from_the_seed_in_spawned_tasks_too() {
        assert_eq!(drawn(1).await, drawn(1).await);
        assert_ne!(drawn(1).await, drawn(7).await);
        let [here, there] = drawn(1).await[..] else { unreachable!() };
        assert_ne!(here, there);
    }

    #[tokio::test]
    async fn a_task_without_a_seed_still_draws_at_random() {
        let [one, other] = [(); 2].map(|()| Runtime::thread_rng().next_u64());
        assert_ne!(one, other);
    }
}
