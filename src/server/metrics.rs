//! The metrics of one replica, in the OpenMetrics text format.
//!
//! Owns their names, labels and buckets. Every label has few values: `smc proxy` and `smc mesh` show what is
//! known per proxy and per object.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use smc_types::problem::{Problem, Severity};
use smc_types::time::Timestamp;
use smc_xds::resource::ResourceType;
use smc_xds::session::Variant;

/// One label and its value.
type Label = [(&'static str, &'static str); 1];
type Counters = Family<Label, Counter>;
type Gauges = Family<Label, Gauge>;
type Histograms = Family<Label, Histogram, fn() -> Histogram>;

/// The metrics of one replica. Cheap to clone; every replica of a process has its own.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    proxies: Gauge,
    streams: Gauges,
    streams_ended: Counters,
    held_back: Counters,
    pushes: Counters,
    pushed_resources: Counters,
    acks: Counters,
    nacks: Counters,
    convergence: Histograms,
    recompute: Histogram,
    problems: Gauges,
    handshakes_failed: Counter,
    connections: Gauge,
    connections_refused: Counter,
    refusals: Counters,
    certificates: Gauges,
    expiry: Gauges,
    source_synced: Gauge,
    source_stale: Gauge,
    source_heard: Gauge,
    source_lists: Counters,
    source_watches: Counters,
    source_restored: Counter,
    clock_offset: Gauge,
    clock_agrees: Gauge,
    injections: Counters,
    injection: Histogram,
    without_sidecar: Gauge,
    sidecars: Gauges,
}

/// 100 µs to about 26 s.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("smc");
        let mut metrics = Self {
            registry: Arc::default(),
            proxies: Gauge::default(),
            streams: Gauges::default(),
            streams_ended: Counters::default(),
            held_back: Counters::default(),
            pushes: Counters::default(),
            pushed_resources: Counters::default(),
            acks: Counters::default(),
            nacks: Counters::default(),
            convergence: Histograms::new_with_constructor(latency),
            recompute: latency(),
            problems: Gauges::default(),
            handshakes_failed: Counter::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            refusals: Counters::default(),
            certificates: Gauges::default(),
            expiry: Gauges::default(),
            source_synced: Gauge::default(),
            source_stale: Gauge::default(),
            source_heard: Gauge::default(),
            source_lists: Counters::default(),
            source_watches: Counters::default(),
            source_restored: Counter::default(),
            clock_offset: Gauge::default(),
            clock_agrees: Gauge::default(),
            injections: Counters::default(),
            injection: latency(),
            without_sidecar: Gauge::default(),
            sidecars: Gauges::default(),
        };
        let m = &metrics;
        registry.register("proxies_connected", "Proxies with an open stream", m.proxies.clone());
        registry.register("xds_streams", "Open xDS streams", m.streams.clone());
        registry.register("xds_streams_ended", "Ended xDS streams by reason", m.streams_ended.clone());
        let help = "Streams whose proxy held newer resources than this replica, by what ended the wait";
        registry.register("xds_held_back", help, m.held_back.clone());
        registry.register("xds_pushes", "Responses sent", m.pushes.clone());
        registry.register("xds_pushed_resources", "Resources sent", m.pushed_resources.clone());
        registry.register("xds_acks", "Responses acknowledged", m.acks.clone());
        registry.register("xds_nacks", "Responses rejected by a proxy", m.nacks.clone());
        let help = "From sending a response to its acknowledgement";
        registry.register("xds_convergence_seconds", help, m.convergence.clone());
        let help = "From a change of the mesh to its new resources";
        registry.register("recompute_seconds", help, m.recompute.clone());
        registry.register("problems", "Problems of the declared mesh", m.problems.clone());
        let help = "Connections that did not authenticate";
        registry.register("handshake_failures", help, m.handshakes_failed.clone());
        let help = "Open connections, including those in the TLS handshake";
        registry.register("connections", help, m.connections.clone());
        let help = "Connections closed because there were too many";
        registry.register("connections_refused", help, m.connections_refused.clone());
        registry.register("refusals", "Proxies refused by reason", m.refusals.clone());
        registry.register("certificates", "Certificates in the ledger", m.certificates.clone());
        let help = "When the first certificate in use of its kind expires, seconds since the epoch";
        registry.register("certificate_expiry_timestamp_seconds", help, m.expiry.clone());
        m.register_source(&mut registry);
        let help = "Seconds that this replica's clock is ahead of the group's";
        registry.register("clock_offset_seconds", help, m.clock_offset.clone());
        let help = "Whether this replica's clock is not known to be wrong; otherwise it issues nothing";
        registry.register("clock_agrees", help, m.clock_agrees.clone());
        registry.register("injections", "Pods that the injector was asked about", m.injections.clone());
        let help = "From the question about a pod to its answer";
        registry.register("injection_seconds", help, m.injection.clone());
        let help = "Pods of the mesh that were made without a sidecar";
        registry.register("pods_without_sidecar", help, m.without_sidecar.clone());
        let help = "Sidecars of the whole mesh that should be connected, and those of them that are";
        registry.register("sidecars", help, m.sidecars.clone());
        metrics.registry = Arc::new(registry);
        metrics
    }

    /// The metrics of a Kubernetes source. They stay at zero without one.
    fn register_source(&self, registry: &mut Registry) {
        let help = "Whether everything was read from the Kubernetes API since the start";
        registry.register("source_synced", help, self.source_synced.clone());
        let help = "Whether the served mesh may be outdated, since the Kubernetes API cannot be read";
        registry.register("source_stale", help, self.source_stale.clone());
        let help = "When the Kubernetes API said something last, seconds since the epoch";
        registry.register("source_last_event_timestamp_seconds", help, self.source_heard.clone());
        let help = "Lists of the Kubernetes API after the first one, by kind";
        registry.register("source_relists", help, self.source_lists.clone());
        let help = "Watches of the Kubernetes API after the first one, by kind";
        registry.register("source_watch_restarts", help, self.source_watches.clone());
        let help =
            "Times that the Kubernetes API went back to an older state, after which everything is listed";
        registry.register("source_restored", help, self.source_restored.clone());
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail. If an encoder failed, the text would lack the `# EOF` that
        // OpenMetrics requires, and the scraper would refuse it.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// A pod that the injector was asked about.
    pub fn injection(&self, result: &'static str) {
        self.injections.get_or_create(&[("result", result)]).inc();
    }

    /// From the question about a pod to its answer.
    pub fn injection_took(&self, duration: Duration) {
        self.injection.observe(duration.as_secs_f64());
    }

    /// Pods of the mesh that were made without a sidecar.
    pub fn pods_without_sidecar(&self, count: usize) {
        self.without_sidecar.set(gauge_value(count));
    }

    /// How many sidecars the whole mesh expects, and has. Without a count the gauges are removed: stale ones
    /// would hide that none can connect.
    pub(crate) fn sidecars(&self, count: Option<(u64, u64)>) {
        let value = |count| i64::try_from(count).unwrap_or(i64::MAX);
        match count {
            Some((expected, connected)) => {
                for (state, count) in [("expected", expected), ("connected", connected)] {
                    self.sidecars.get_or_create(&[("state", state)]).set(value(count));
                }
            }
            None => self.sidecars.clear(),
        }
    }

    pub(crate) fn proxies_connected(&self, count: usize) {
        self.proxies.set(gauge_value(count));
    }

    pub(crate) fn stream_opened(&self, variant: Variant) {
        self.streams.get_or_create(&[("variant", variant_name(variant))]).inc();
    }

    pub(crate) fn stream_ended(&self, variant: Variant, reason: &'static str) {
        self.streams.get_or_create(&[("variant", variant_name(variant))]).dec();
        self.streams_ended.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn held_back(&self, outcome: &'static str) {
        self.held_back.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn pushed(&self, kind: ResourceType, resources: usize) {
        self.pushes.get_or_create(&of(kind)).inc();
        self.pushed_resources.get_or_create(&of(kind)).inc_by(u64::try_from(resources).unwrap_or(u64::MAX));
    }

    pub(crate) fn acked(&self, kind: ResourceType, since_pushed: Option<Duration>) {
        self.acks.get_or_create(&of(kind)).inc();
        if let Some(span) = since_pushed {
            self.convergence.get_or_create(&of(kind)).observe(span.as_secs_f64());
        }
    }

    pub(crate) fn rejected(&self, kind: ResourceType) {
        self.nacks.get_or_create(&of(kind)).inc();
    }

    pub(crate) fn recomputed(&self, span: Duration) {
        self.recompute.observe(span.as_secs_f64());
    }

    pub(crate) fn problems(&self, problems: &[Problem]) {
        for (severity, label) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
            let count = problems.iter().filter(|problem| problem.severity == severity).count();
            self.problems.get_or_create(&[("severity", label)]).set(gauge_value(count));
        }
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }

    pub(crate) fn connections(&self, count: usize) {
        self.connections.set(gauge_value(count));
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn certificates(&self, state: &'static str, count: usize) {
        self.certificates.get_or_create(&[("kind", state)]).set(gauge_value(count));
    }

    /// How good the state of the source is.
    pub fn source_state(&self, synced: bool, stale: bool) {
        self.source_synced.set(synced.into());
        self.source_stale.set(stale.into());
    }

    /// When the API server said something last.
    pub fn source_heard(&self, now: Timestamp) {
        self.source_heard.set(now.0);
    }

    /// A kind was listed once more.
    pub fn source_listed_again(&self, kind: &'static str) {
        self.source_lists.get_or_create(&[("kind", kind)]).inc();
    }

    /// A watch was opened once more.
    pub fn source_watched_again(&self, kind: &'static str) {
        self.source_watches.get_or_create(&[("kind", kind)]).inc();
    }

    /// The API server went back to an older state.
    pub fn source_went_back(&self) {
        self.source_restored.inc();
    }

    pub(crate) fn clock(&self, offset: i64, agrees: bool) {
        self.clock_offset.set(offset);
        self.clock_agrees.set(agrees.into());
    }

    /// Removes the gauge if there is no certificate of that kind: a stale one would read as expired.
    pub(crate) fn certificate_expiry(&self, kind: &'static str, at: Option<Timestamp>) {
        let label = [("kind", kind)];
        match at {
            Some(at) => _ = self.expiry.get_or_create(&label).set(at.0),
            None => _ = self.expiry.remove(&label),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

fn of(kind: ResourceType) -> Label {
    [("type", kind.short())]
}

/// A variant's name in metrics and tables.
fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "sotw",
        Variant::Delta => "delta",
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use smc_types::problem::Subject;

    use super::*;

    #[test]
    fn the_text_is_open_metrics_and_has_what_was_counted() {
        let metrics = Metrics::new();
        metrics.pushed(ResourceType::Cluster, 3);
        metrics.problems(&[Problem::error(Subject::Mesh, "", "bad")]);
        let text = metrics.text();
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in [
            "smc_xds_pushes_total{type=\"cds\"} 1",
            "smc_xds_pushed_resources_total{type=\"cds\"} 3",
            "smc_problems{severity=\"error\"} 1",
            "smc_problems{severity=\"warning\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_expiry_is_shown_while_there_is_a_certificate() {
        let metrics = Metrics::new();
        metrics.certificate_expiry("service", Some(Timestamp(7)));
        let line = "smc_certificate_expiry_timestamp_seconds{kind=\"service\"} 7";
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.certificate_expiry("service", None);
        assert!(!metrics.text().contains("kind=\"service\""), "{}", metrics.text());
    }

    #[test]
    fn the_counts_of_sidecars_are_there_while_they_are_known() {
        let metrics = Metrics::new();
        let shown = || -> Vec<String> {
            let text = metrics.text();
            text.lines().filter(|line| line.starts_with("smc_sidecars")).map(str::to_owned).collect()
        };
        assert_eq!(shown(), Vec::<String>::new());
        metrics.sidecars(Some((3, 2)));
        let mut both = shown();
        both.sort();
        assert_eq!(both, ["smc_sidecars{state=\"connected\"} 2", "smc_sidecars{state=\"expected\"} 3"]);
        metrics.sidecars(None);
        assert_eq!(shown(), Vec::<String>::new());
    }

    #[test]
    fn two_replicas_in_one_process_count_apart() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.handshake_failed();
        assert!(one.text().contains("smc_handshake_failures_total 1"));
        assert!(other.text().contains("smc_handshake_failures_total 0"));
    }
}
