//! What a listener reports of its requests and connections.
//!
//! Owns that it is made once for all chains of a listener, and what it is made of.

use std::sync::Arc;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager as manager;

use super::access_log::Logs;
use super::draft::Draft;
use super::proto::Families;
use super::provenance::{self, Objects};
use super::{cluster, tracing};
use smc_model::access_log::{AccessLog, LogCollector};
use smc_model::declared::Declared;
use smc_model::tracing::Tracing;
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// Whose listener reports. Each half of a snapshot has clusters of its own for the collectors, so that
/// neither waits for the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Half {
    Inbound,
    Outbound,
}

impl Half {
    /// The clusters of the collectors of traces and of logs.
    fn collectors(self) -> (&'static str, &'static str) {
        match self {
            Self::Inbound => (names::INBOUND_TRACES, names::INBOUND_LOGS),
            Self::Outbound => (names::OUTBOUND_TRACES, names::OUTBOUND_LOGS),
        }
    }
}

/// The lines of its log, and the spans of its traces.
pub(super) struct Reports {
    /// The lines of the log.
    pub(super) log: Logs,
    /// The spans of traces.
    pub(super) tracing: Option<manager::Tracing>,
}

impl Reports {
    /// Makes the reports of a listener, and adds the clusters to which they go. `tracing` is `None` as well
    /// if the listener has no requests. What the reports are made of joins `objects`, those of the listener.
    pub(super) fn of(
        log: &AccessLog,
        tracing: Option<&Declared<Arc<Tracing>>>,
        half: Half,
        families: Families,
        draft: &mut Draft<'_>,
        objects: &mut Objects,
    ) -> Self {
        objects.extend(provenance::log(log));
        let (traces, logs) = half.collectors();
        if let Some(LogCollector { server: Declared { what, by }, .. }) = &log.collector {
            let server = cluster::log_collector(logs, what, families);
            draft.add(ResourceType::Cluster, logs, &server, &Objects::from([by.clone()]));
        }
        let tracing = tracing.map(|Declared { what, by }| {
            let server = cluster::trace_collector(traces, &what.collector, families);
            draft.add(ResourceType::Cluster, traces, &server, &Objects::from([by.clone()]));
            objects.insert(by.clone());
            tracing::of_manager(what, traces)
        });
        Self { log: Logs::of(log, logs), tracing }
    }
}
