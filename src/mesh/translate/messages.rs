//! How messages of HTTP pass a sidecar.
//!
//! Owns the bounds on headers and on what waits for a reader, and which forms of HTTP/1 are taken. The
//! sidecar of a caller takes what old and odd clients send, and writes HTTP/1.1 with a `Host`. The sidecar
//! that judges requests takes no such form: what policy reads is what its application reads.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::{http_match, proto};

/// The most that the header of a message may take, in KiB. Envoy's default is 60, and applications send
/// more: a cookie with groups has 70, a token in an answer 90. A sidecar keeps the header of each request
/// that arrives, and this is a quarter of what it keeps of a body on a connection anyway.
const HEADER_KB: u32 = 256;

/// The most lines that the header of a message may have. Envoy's default is 100; some servers take any
/// number, and most of those that count take less than this.
const HEADER_LINES: u32 = 1000;

/// What a stream of HTTP/2 may send before its reader has taken it, in bytes. A sidecar keeps that much of
/// each stream whose reader is slow. With Envoy's default of 16 MiB, forty slow readers of one caller took
/// 750 MiB; this is what Envoy keeps of a connection of HTTP/1.1. Within a cluster a packet returns in a
/// millisecond, so that a stream carries a gigabyte a second.
const STREAM_WINDOW: u32 = 1 << 20;

/// What a client may offer to change to by `Upgrade` and a sidecar does not carry, each name by itself: all
/// but `websocket`. It has nine letters, and the first suffices here: an expression of all nine takes a
/// sidecar 9 KiB for each service, and this one 2. A name of nine letters that begins with it is refused,
/// and none is registered.
const OTHER_UPGRADES: &str = r"[^Ww]\C*|\C{0,8}|\C{10,}";

/// The bounds on requests, for a connection manager.
pub(super) fn request_limits(manager: core::HttpProtocolOptions) -> core::HttpProtocolOptions {
    core::HttpProtocolOptions { max_headers_count: Some(proto::number(HEADER_LINES)), ..manager }
}

/// The bound on the bytes of a request's header.
pub(super) fn request_header_kb() -> u32 {
    HEADER_KB
}

/// The bounds on answers, for a cluster.
pub(super) fn answer_limits() -> core::HttpProtocolOptions {
    core::HttpProtocolOptions {
        max_response_headers_kb: Some(proto::number(HEADER_KB)),
        ..request_limits(core::HttpProtocolOptions::default())
    }
}

/// HTTP/1 between sidecars, and to applications.
pub(super) fn http1() -> core::Http1ProtocolOptions {
    core::Http1ProtocolOptions { enable_trailers: true, ..core::Http1ProtocolOptions::default() }
}

/// HTTP/2 between sidecars, and to and from applications. A message that is no HTTP ends its stream, and not
/// the connection with the streams of others.
pub(super) fn http2() -> core::Http2ProtocolOptions {
    core::Http2ProtocolOptions {
        initial_stream_window_size: Some(proto::number(STREAM_WINDOW)),
        override_stream_error_on_invalid_http_message: Some(proto::switch(true)),
        ..core::Http2ProtocolOptions::default()
    }
}

/// HTTP/1 of the application beside the sidecar of a caller: also HTTP/1.0, in which a request without
/// `Host` gets this one, and with offers to change to another protocol, which a server may ignore (RFC 9110
/// §7.8).
pub(super) fn http1_of_clients(host: &str) -> core::Http1ProtocolOptions {
    core::Http1ProtocolOptions {
        accept_http_10: true,
        default_host_for_http_10: host.to_owned(),
        ignore_http_11_upgrade: vec![StringMatcher {
            match_pattern: Some(MatchPattern::SafeRegex(http_match::regex(OTHER_UPGRADES))),
            ignore_case: false,
        }],
        ..http1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_upgrade_but_that_to_a_websocket_is_ignored() {
        let expression = format!(r"\A(?:{})\z", OTHER_UPGRADES.replace(r"\C", r"[\x00-\xff]"));
        let expression = regex::bytes::RegexBuilder::new(&expression).unicode(false).build().unwrap();
        for (name, ignored) in [
            ("websocket", false),
            ("WebSocket", false),
            ("TLS/1.2", true),
            ("h2c", true),
            ("HTTP/3.0", true),
            ("connect-udp", true),
            ("websockets", true),
            ("websocke", true),
            ("w", true),
            ("", true),
        ] {
            assert_eq!(expression.is_match(name.as_bytes()), ignored, "{name}");
        }
    }
}
