//! Limits of the rate of requests, and of connections, as they are written.
//!
//! Owns what of them is left out, and why. A limit without a number or a unit is none. A status or a header
//! that Envoy refuses is left out alone: what it decorates still limits.

use smc_model::rate_limit::{Rate, RateUnit, RequestLimit, TOO_MANY_REQUESTS, is_status};
use smc_types::header_name::{is_header_name, is_of_a_connection};
use smc_types::text::truncated;

use super::super::policy::{MAX_HEADERS, entries, number, one_of, section};
use crate::reading::{Fields, Findings, Node};

/// What the headers of the answer of one limit take, together, in bytes. Each answer above the limit has
/// them, and is to cost less than what it refuses.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// Headers that a limit may not add, beside those of a connection: they say how an answer is read, or what a
/// call of gRPC came to. With `grpc-status: 0` a refusal would be a success.
const REFUSED: [&str; 5] =
    ["content-encoding", "grpc-message", "grpc-status", "grpc-status-details-bin", "host"];

/// The beginnings of the names of headers by which sidecars speak to each other.
const OF_SIDECARS: [&str; 2] = ["x-envoy-", "x-smc-"];

/// A limit of requests.
pub(super) fn read(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<RequestLimit> {
    let mut limit = section(fields, name, findings)?;
    let rate = rate(&mut limit, "requests", findings);
    let status = status(&mut limit, findings);
    let at = limit.path("responseHeadersToAdd");
    let mut headers: Vec<(String, String)> = Vec::new();
    for node in entries(&mut limit, "responseHeadersToAdd", MAX_HEADERS, false, findings) {
        headers.extend(header(node, findings));
    }
    limit.finish(findings);
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_HEADER_BYTES {
        findings.error(&at, format!("has more than {MAX_HEADER_BYTES} bytes; all of it is left out"));
        headers.clear();
    }
    Some(RequestLimit { rate: rate?, status, headers })
}

/// A limit of connections.
pub(super) fn of_connections(mut limit: Fields, findings: &mut Findings) -> Option<Rate> {
    let rate = rate(&mut limit, "connections", findings);
    limit.finish(findings);
    rate
}

/// How many of `counted` in a unit of time.
fn rate(limit: &mut Fields, counted: &str, findings: &mut Findings) -> Option<Rate> {
    if !limit.has(counted) {
        findings.error(&limit.path(counted), "is missing, so nothing is limited");
    }
    let amount = number(limit, counted, 1..=u32::MAX, findings);
    let unit = one_of(limit, "unit", &RateUnit::ALL.map(RateUnit::as_str), findings);
    let unit = RateUnit::ALL.into_iter().find(|known| unit.as_deref() == Some(known.as_str()));
    let burst = number(limit, "burst", 0..=u32::MAX, findings).unwrap_or(0);
    Some(Rate { amount: amount?, unit: unit?, burst })
}

fn status(limit: &mut Fields, findings: &mut Findings) -> u16 {
    let at = limit.path("responseStatusCode");
    let status = number(limit, "responseStatusCode", 400..=599, findings);
    let Some(status) = status.and_then(|status| u16::try_from(status).ok()) else { return TOO_MANY_REQUESTS };
    if !is_status(status) {
        let message =
            format!("is {status}, which Envoy cannot give: the answer is {TOO_MANY_REQUESTS} in its place");
        findings.warning(&at, message);
        return TOO_MANY_REQUESTS;
    }
    status
}

/// A header of the answer; `None` if it is left out.
fn header(node: Node, findings: &mut Findings) -> Option<(String, String)> {
    let path = node.path.clone();
    let mut header = node.object(findings)?;
    let [name, value] =
        ["name", "value"].map(|field| header.require(field, findings).and_then(|node| node.text(findings)));
    header.finish(findings);
    let (name, value) = (name?.to_ascii_lowercase(), value?);
    if let Some(reason) = refused_name(&name) {
        findings.error(&format!("{path}.name"), format!("is {:?}, {reason}", truncated(&name, 80)));
        return None;
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        findings.error(&format!("{path}.value"), "has characters other than those of ASCII that are printed");
        return None;
    }
    Some((name, value))
}

/// Why a header of this name is left out.
fn refused_name(name: &str) -> Option<&'static str> {
    // Envoy takes others, and clients end the connection for them.
    if !is_header_name(name) {
        Some("which is no name of a header")
    } else if is_of_a_connection(name) || REFUSED.contains(&name) {
        Some("which says how an answer is read")
    } else if OF_SIDECARS.iter().any(|prefix| name.starts_with(prefix)) {
        Some("by which sidecars speak to each other")
    } else {
        None
    }
}
