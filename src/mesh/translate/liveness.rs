//! Peers that are gone without a word.
//!
//! Owns how a sidecar notices that a pod cannot be reached any more. A node that loses its power or its
//! network closes no connection and refuses none, and Kubernetes takes its pods out of Services a minute
//! later.
//!
//! - The kernel probes a TCP connection on which nothing is sent, from both ends (RFC 9293, section 3.8.4).
//! - HTTP/2 connections are pinged (RFC 9113, section 6.7), so that requests which wait for an answer end.
//! - A pod to which connections fail several times in a row gets no more of them for a while.
//!
//! How an application answers, and how long it takes, is no reason for any of it: a sidecar answers probes
//! and pings on its own, and a connection that came to be is no failure.

use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::cluster::v3::{OutlierDetection, UpstreamConnectionOptions};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::{messages, proto};

/// How long nothing is sent before a connection is probed, and between two probes, in seconds; and after how
/// many without an answer it is given up. Ten seconds in all; a link that loses one packet of ten loses five
/// in a row once in a hundred thousand times.
const QUIET_SECONDS: u32 = 5;
const PROBE_SECONDS: u32 = 1;
const PROBES: u32 = 5;

/// How often an HTTP/2 connection is pinged, and how long an answer may take, in seconds: six in all. A
/// round trip takes milliseconds, and a packet that is lost is sent again within one second.
const PING_SECONDS: i64 = 3;

/// Failures in a row that leave a pod out. One connection attempt that times out has lost three packets.
const FAILURES: u32 = 2;

/// How long a pod is left out first, in seconds, and how much longer each further time: Envoy's default.
/// Kubernetes needs 40 seconds and more to notice a lost node. A pod that was removed and comes back, as one
/// that was not ready, is not left out.
const LEFT_OUT_SECONDS: i64 = 30;

/// Probes of the kernel.
pub(super) fn tcp_keepalive() -> core::TcpKeepalive {
    core::TcpKeepalive {
        keepalive_probes: Some(proto::number(PROBES)),
        keepalive_time: Some(proto::number(QUIET_SECONDS)),
        keepalive_interval: Some(proto::number(PROBE_SECONDS)),
    }
}

/// Of the connections that a cluster makes.
pub(super) fn of_connections() -> UpstreamConnectionOptions {
    UpstreamConnectionOptions { tcp_keepalive: Some(tcp_keepalive()), ..UpstreamConnectionOptions::default() }
}

/// HTTP/2 with pings.
pub(super) fn http2() -> core::Http2ProtocolOptions {
    core::Http2ProtocolOptions {
        connection_keepalive: Some(core::KeepaliveSettings {
            interval: Some(proto::seconds(PING_SECONDS)),
            timeout: Some(proto::seconds(PING_SECONDS)),
            ..core::KeepaliveSettings::default()
        }),
        ..messages::http2()
    }
}

/// Leaves out pods to which no connection comes to be; with [`balanced`], as many as there are.
pub(super) fn ejection() -> OutlierDetection {
    let never = || Some(proto::number(0_u32));
    OutlierDetection {
        // What an application answers is counted apart, and has no effect.
        split_external_local_origin_errors: true,
        enforcing_consecutive_5xx: never(),
        enforcing_consecutive_gateway_failure: never(),
        enforcing_success_rate: never(),
        enforcing_local_origin_success_rate: never(),
        consecutive_local_origin_failure: Some(proto::number(FAILURES)),
        enforcing_consecutive_local_origin_failure: Some(proto::number(100_u32)),
        base_ejection_time: Some(proto::seconds(LEFT_OUT_SECONDS)),
        max_ejection_percent: Some(proto::number(100_u32)),
        ..OutlierDetection::default()
    }
}

/// Where all pods are left out, none is: one that is back must not wait for its time. Envoy would take all of
/// them as soon as half are left out.
pub(super) fn balanced() -> CommonLbConfig {
    CommonLbConfig { healthy_panic_threshold: Some(Percent { value: 1.0 }), ..CommonLbConfig::default() }
}
