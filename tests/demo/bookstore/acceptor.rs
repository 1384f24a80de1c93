//! Accepts a bounded number of connections, and closes them in order. Knows no protocol.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Pause after a failed accept. The usual cause is a lack of file descriptors, which only time
/// resolves.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Time limit for open connections to finish after shutdown began. Longer than a call's two
/// seconds; shorter than the five after which the lab kills a container.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Runs `serve` on each accepted connection, at most `connections_max` at once, until shutdown.
/// Then waits at most [`DRAIN_MAX`] for open connections, and drops the rest. Further clients wait
/// in the listen queue.
///
/// `serve` should end early on shutdown.
pub(super) async fn accept_each<S, F>(
    listener: TcpListener,
    connections_max: usize,
    shutdown: CancellationToken,
    serve: S,
) where
    S: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener, &slots) => {
                if let Some((stream, slot)) = accepted {
                    let served = serve(stream);
                    connections.spawn(async move {
                        served.await;
                        drop(slot);
                    });
                }
            }
        }
    }
    drop(listener);
    // After the time limit, dropping the set aborts the remaining connections.
    let _ = tokio::time::timeout(DRAIN_MAX, async { while connections.join_next().await.is_some() {} }).await;
}

async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    let Ok((stream, _peer)) = listener.accept().await else {
        tokio::time::sleep(ACCEPT_RETRY).await;
        return None;
    };
    // Requests are small and answered one by one; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    Some((stream, slot))
}
