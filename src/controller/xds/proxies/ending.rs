//! The requested end of streams: a selection of them, at once or at a pace.

use std::num::NonZeroU32;
use std::sync::Arc;

use smc_authority::pki::SerialNumber;
use smc_host::sync::lock;
use smc_mesh::connections::EndSchedule;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Proxies;
use crate::registry::release_watcher::EndReleased;
use crate::xds::open_stream::{OpenStream, StopReason};

impl Proxies {
    /// Ends the open streams that `select` returns true for, and returns their number. O(streams).
    pub fn end(&self, select: impl Fn(&OpenStream) -> bool, reason: StopReason) -> usize {
        let selected = self.selected(select);
        for stream in &selected {
            stream.stop(reason);
        }
        selected.len()
    }

    /// Ends the open streams that `select` returns true for at a steady rate, so that the proxies do
    /// not all reconnect at once. Returns the number of streams ended: when all are, or when `shutdown`
    /// is cancelled.
    ///
    /// The streams are selected once, at the beginning, and ended in the order of their proxies' names,
    /// oldest first. The whole takes at most [`EndSchedule::duration`]: a stream that ends by itself
    /// meanwhile takes no time.
    pub async fn end_paced(
        &self,
        select: impl Fn(&OpenStream) -> bool,
        reason: StopReason,
        per_second: NonZeroU32,
        shutdown: &CancellationToken,
    ) -> usize {
        // Weak, so that a stream that ends by itself is freed and skipped.
        let selected: Vec<_> = self.selected(select).iter().map(Arc::downgrade).collect();
        let schedule = EndSchedule::new(per_second);
        let start = Instant::now();
        let mut ended = 0;
        for stream in selected {
            if stream.strong_count() == 0 {
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return ended,
                () = sleep_until(start + schedule.delay(ended)) => {}
            }
            if let Some(stream) = stream.upgrade() {
                stream.stop(reason);
                ended += 1;
            }
        }
        ended
    }

    fn selected(&self, select: impl Fn(&OpenStream) -> bool) -> Vec<Arc<OpenStream>> {
        self.streams().into_values().flatten().filter(|stream| select(stream)).collect()
    }
}

impl EndReleased for Proxies {
    /// O(streams + connections).
    fn end_released(&self, is_released: &dyn Fn(&SerialNumber) -> bool) {
        let connections: Vec<_> = {
            let table = lock(&self.table);
            let certificates = table.bounds.certificates();
            certificates
                .filter_map(|(id, serial)| Some((serial, table.connections.get(&id)?.close.clone())))
                .collect()
        };
        self.end(|stream| is_released(&stream.admission.serial), StopReason::Released);
        for (_, close) in connections.iter().filter(|(serial, _)| is_released(serial)) {
            close.cancel();
        }
    }
}

#[cfg(test)]
mod tests;
