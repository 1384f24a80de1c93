//! The requested end of streams: a selection of them.

use std::sync::Arc;

use smc_authority::pki::SerialNumber;
use smc_host::sync::lock;

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

    fn selected(&self, select: impl Fn(&OpenStream) -> bool) -> Vec<Arc<OpenStream>> {
        self.all_streams().into_iter().filter(|stream| select(stream)).collect()
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
