//! The requested end of streams: a selection of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use smc_authority::pki::SerialNumber;
use smc_host::sync::lock;
use smc_types::ids::ProxyUuid;

use super::Proxies;
use crate::registry::release_watcher::EndReleased;
use crate::xds::open_stream::{OpenStream, StopReason};

impl Proxies {
    /// Ends the open streams that `select` returns true for, and returns their number. O(streams).
    pub fn end(&self, select: impl Fn(&OpenStream) -> bool, reason: StopReason) -> usize {
        stop(self.all_streams().into_iter().filter(|stream| select(stream)), reason)
    }

    /// Ends the open streams of these proxies, and returns their number. O(proxies with a stream), for a
    /// hand-off that ends some of them every few milliseconds.
    pub(crate) fn end_of(&self, proxies: &BTreeSet<ProxyUuid>, reason: StopReason) -> usize {
        let selected: Vec<_> = {
            let table = lock(&self.table);
            let of_them = table.streams.iter().filter(|(proxy, _)| proxies.contains(&proxy.uuid));
            of_them.flat_map(|(_, streams)| streams.values().cloned()).collect()
        };
        stop(selected, reason)
    }
}

fn stop(streams: impl IntoIterator<Item = Arc<OpenStream>>, reason: StopReason) -> usize {
    let mut stopped = 0;
    for stream in streams {
        stream.stop(reason);
        stopped += 1;
    }
    stopped
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
