//! The facts about one resource, while it is read.
//!
//! Owns what both readers of content share: references, faults, the clients of a listener, and the form of
//! an identity.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::Facts;
use smc_xds::resource::ResourceType;

/// The listener of connections from the application.
const OUTBOUND_LISTENER: &str = "outbound-listener";
/// The listener of Envoy's statistics.
const STATISTICS_LISTENER: &str = "inbound-prometheus-listener";

/// The prefix of the names of what an ingress may have: filter chains, route configurations.
pub(super) const INGRESS: &str = "ingress_";

/// The prefix of the names of validation contexts for an ingress.
pub(super) const INGRESS_VALIDATION: &str = "root-cert-for-ingress:";

/// The prefix of those where a client need not have a certificate.
pub(super) const OPTIONAL_INGRESS_VALIDATION: &str = "root-cert-for-optional-ingress:";

/// The name of the cluster of the server that is asked whether a request may pass, and of what the filter
/// that asks is configured with.
pub(super) const EXTERNAL_AUTHORIZATION: &str = "external-authorization";

/// The clusters of the server that takes traces, for what each listener reports.
pub(super) const INBOUND_TRACES: &str = "inbound-traces";
pub(super) const OUTBOUND_TRACES: &str = "outbound-traces";

/// The same for the server that is sent what each listener logs.
pub(super) const INBOUND_LOGS: &str = "inbound-logs";
pub(super) const OUTBOUND_LOGS: &str = "outbound-logs";

/// The clusters of servers outside of the mesh that sidecars themselves call.
pub(super) const SERVERS: [&str; 5] =
    [EXTERNAL_AUTHORIZATION, INBOUND_TRACES, OUTBOUND_TRACES, INBOUND_LOGS, OUTBOUND_LOGS];

/// The clients of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// The application beside the proxy.
    Application,
    /// A reader of the statistics, such as Prometheus.
    Scraper,
    /// What policy lets in from outside of the mesh.
    Ingress,
    /// Any other client.
    Others,
}

impl Client {
    pub(super) fn of(listener: &str) -> Self {
        match listener {
            OUTBOUND_LISTENER => Self::Application,
            STATISTICS_LISTENER => Self::Scraper,
            _ => Self::Others,
        }
    }
}

/// Collects the facts about one resource.
#[derive(Default)]
pub(super) struct Reader {
    references: BTreeSet<(ResourceType, Arc<str>)>,
    faults: Vec<String>,
    /// Whether a server is asked about the requests of a chain, for each of a listener's that has requests
    /// from other pods.
    pub(super) asks: BTreeSet<bool>,
}

impl Reader {
    /// The facts that were collected.
    pub(super) fn facts(self) -> Facts {
        Facts { references: self.references.into_iter().collect(), faults: self.faults }
    }

    /// Adds a fault.
    pub(super) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Adds a reference to another resource.
    pub(super) fn refer(&mut self, kind: ResourceType, name: &str) {
        if name.is_empty() {
            self.fault(format!("refers to a {} without a name", kind.short()));
        } else {
            self.references.insert((kind, name.into()));
        }
    }

    /// Checks Envoy's bounds: at least one cluster, and weights that sum to 1 to 2³²−1.
    pub(super) fn weights<'a>(&mut self, parts: impl Iterator<Item = (&'a str, u32)>) {
        let mut sum = 0_u64;
        for (cluster, weight) in parts {
            sum += u64::from(weight);
            self.refer(ResourceType::Cluster, cluster);
        }
        if sum == 0 || sum > u64::from(u32::MAX) {
            self.fault(format!("has weights that sum to {sum}"));
        }
    }
}

/// Whether a matcher accepts one SPIFFE ID, or a prefix of SPIFFE IDs that includes the whole trust domain.
pub(super) fn names_identities(matcher: &StringMatcher) -> bool {
    let Some(pattern) = &matcher.match_pattern else { return false };
    let (text, is_prefix) = match pattern {
        MatchPattern::Exact(text) => (text, false),
        MatchPattern::Prefix(text) => (text, true),
        _ => return false,
    };
    let Some((domain, path)) = text.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    !domain.is_empty() && (is_prefix || !path.is_empty())
}

/// The number in a wrapper.
pub(super) fn wrapped(number: UInt32Value) -> u32 {
    number.value
}
