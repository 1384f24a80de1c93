//! The end of a controller: the signals that ask for it, and what happens where it does not come.
//!
//! Owns the last resort. A shutdown is carried out by tasks, and a thread that computes for minutes runs
//! none; a runtime waits for its threads before it is gone. Whatever computes, the process ends.

use std::future::Future;
use std::time::Duration;

use nix::sys::signal::{Signal as Kill, kill};
use nix::unistd::Pid;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

/// How long an end may take beside the time in which sidecars are handed over: the 45 seconds of a replica
/// that leaves the group, and some. With the drain it is within the 75 seconds that the kubelet waits.
const LIMIT: Duration = Duration::from_secs(50);

/// How long threads that still compute are waited for at the very end. What has to be on disk is there: the
/// group has stopped.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// The signals that end a controller.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on; in a runtime.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns at the next signal.
    pub(super) async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ends the process where a signal has not done so after `drain_limit` and [`LIMIT`]. It runs on `runtime`,
/// whose threads nothing keeps busy, until the handle is dropped.
pub(super) fn at_latest(runtime: &Handle, drain_limit: Duration) -> std::io::Result<AbortOnDropHandle<()>> {
    let _entered = runtime.enter();
    let mut signals = Signals::new()?;
    let limit = drain_limit.saturating_add(LIMIT);
    Ok(AbortOnDropHandle::new(runtime.spawn(async move {
        overdue(signals.any(), limit).await;
        error!(?limit, "the controller did not end in time; it is killed. Its disk loses nothing by that");
        // Not `exit`: libraries would tidy up under threads that still run.
        let _ = kill(Pid::this(), Kill::SIGKILL);
    })))
}

/// Returns so long after the signal.
async fn overdue(signalled: impl Future<Output = ()>, limit: Duration) {
    signalled.await;
    sleep(limit).await;
}

/// Ends a runtime whose last task is done. Dropping it would wait for what computes, or blocks, for ever.
pub(super) fn leave(runtime: Runtime) {
    runtime.shutdown_timeout(LEFT_BEHIND);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_still_computes_does_not_hold_up_the_end() {
        for blocking in [false, true] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let (stop, (began, begun), (ended, end)) =
                (Arc::new(AtomicBool::new(false)), channel(), channel());
            let stopped = Arc::clone(&stop);
            let compute = move || {
                began.send(()).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            if blocking {
                drop(runtime.spawn_blocking(compute));
            } else {
                drop(runtime.spawn(async move { compute() }));
            }
            begun.recv().unwrap();
            std::thread::spawn(move || {
                leave(runtime);
                ended.send(()).unwrap();
            });
            let left = end.recv_timeout(LEFT_BEHIND * 30);
            stop.store(true, Ordering::Relaxed);
            assert!(left.is_ok(), "blocking: {blocking}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_overdue_some_time_after_the_signal_and_never_without() {
        let limit = Duration::from_secs(20);
        let day = Duration::from_hours(24);
        assert!(tokio::time::timeout(day, overdue(std::future::pending(), limit)).await.is_err());
        for (after, expected) in [(limit / 2, false), (limit * 2, true)] {
            let came = tokio::time::timeout(after, overdue(std::future::ready(()), limit)).await;
            assert_eq!(came.is_ok(), expected, "{after:?}");
        }
    }
}
