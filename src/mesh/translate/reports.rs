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
use smc_model::access_log::AccessLog;
use smc_model::declared::Declared;
use smc_model::tracing::Tracing;
use smc_xds::resource::ResourceType;

/// The lines of its log, and the spans of its traces.
pub(super) struct Reports {
    /// The lines of the log.
    pub(super) log: Logs,
    /// The spans of traces.
    pub(super) tracing: Option<manager::Tracing>,
}

impl Reports {
    /// Makes the reports of a listener, and adds the cluster `collector`, to which spans go. `tracing` is
    /// `None` as well if the listener has no requests. What the reports are made of joins `objects`, those of
    /// the listener.
    pub(super) fn of(
        log: &AccessLog,
        tracing: Option<&Declared<Arc<Tracing>>>,
        collector: &str,
        families: Families,
        draft: &mut Draft<'_>,
        objects: &mut Objects,
    ) -> Self {
        objects.extend(provenance::log(log));
        let tracing = tracing.map(|Declared { what, by }| {
            let server = cluster::collector(collector, &what.collector, families);
            draft.add(ResourceType::Cluster, collector, &server, &Objects::from([by.clone()]));
            objects.insert(by.clone());
            tracing::of_manager(what, collector)
        });
        Self { log: Logs::of(log), tracing }
    }
}
