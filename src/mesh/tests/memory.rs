//! What requests cost in memory, counted by the allocator.
#![allow(clippy::unwrap_used, reason = "a test")]

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::Message;
use smc_testkit::allocations::{Counting, peak};
use smc_xds::resource::ResourceType;
use smc_xds::session::{MAX_NAMES, MAX_REQUEST_BYTES, NAME_OVERHEAD, Request, Scope, Session, Variant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `count` times `field`, as the content of field `number`.
fn within(number: u8, field: &[u8], count: usize) -> Vec<u8> {
    let mut message = vec![number << 3 | 2];
    prost::encoding::encode_varint((field.len() * count) as u64, &mut message);
    message.extend(field.repeat(count));
    message
}

const EMPTY_EXTENSION: [u8; 2] = [9 << 3 | 2, 0];

/// Requests that are as large as they may be, of everything that is small on the wire.
fn hostile() -> Vec<(&'static str, Variant, Vec<u8>)> {
    let half = MAX_REQUEST_BYTES / 2 - 8;
    let url = |variant| {
        let number = if variant == Variant::Delta { 2 } else { 4 };
        within(number, ResourceType::Endpoint.url().as_bytes(), 1)
    };
    let mut requests = Vec::new();
    for (variant, node) in [(Variant::Sotw, 2), (Variant::Delta, 1)] {
        requests.push(("empty extensions", variant, within(node, &EMPTY_EXTENSION, half)));
        requests.push(("empty locators", variant, [7 << 3 | 2, 0].repeat(half)));
        requests.push(("empty names", variant, [url(variant), [3 << 3 | 2, 0].repeat(half - 64)].concat()));
        requests.push(("unknown fields", variant, [15 << 3, 0].repeat(half)));
        requests.push(("a long name", variant, within(3, b"x", MAX_REQUEST_BYTES - 8)));
        requests.push(("a long address of a type", variant, within(4, b"x", MAX_REQUEST_BYTES - 8)));
        requests.push(("errors with details", variant, within(6, &[3 << 3 | 2, 0], half)));
        requests.push(("a long error", variant, within(7, &within(2, b"x", half), 1)));
    }
    requests.push(("empty entries", Variant::Delta, [5 << 3 | 2, 0].repeat(half)));
    requests.push(("one entry of empty keys", Variant::Delta, within(5, &[1 << 3 | 2, 0], half)));
    requests
}

#[test]
fn no_request_costs_memory_before_it_is_checked() {
    for (what, variant, bytes) in hostile() {
        let size = bytes.len();
        assert!(size <= MAX_REQUEST_BYTES, "{what}: {size}");
        let bytes = Bytes::from(bytes);
        let (answered, cost) = peak(|| {
            let mut session = Session::new(variant, Scope::Aggregated);
            Request::decode(variant, bytes).ok().map(|request| session.on_request(request, None).is_ok())
        });
        assert!(cost <= size / 16 + 8192, "{what} in {variant:?}: {cost} bytes for {size}, {answered:?}");
    }
    // What the generated message takes for the same: the test can tell.
    let node = within(2, &EMPTY_EXTENSION, 100_000);
    let size = node.len();
    let (message, cost) = peak(|| DiscoveryRequest::decode(&*node).unwrap());
    assert_eq!(message.node.unwrap_or_default().extensions.len(), 100_000);
    assert!(cost > 64 * size, "{cost} bytes for {size}");
}

/// The bound on names counts the memory that they take, not their length.
#[test]
fn names_take_what_they_are_counted_as() {
    for length in [6, 100] {
        let names: Vec<_> = (0..MAX_NAMES).map(|i| format!("{i:0length$}")).collect();
        let message = DeltaDiscoveryRequest {
            type_url: ResourceType::Endpoint.url().to_owned(),
            resource_names_subscribe: names,
            ..DeltaDiscoveryRequest::default()
        };
        let bytes = Bytes::from(message.encode_to_vec());
        let counted = MAX_NAMES * (length + NAME_OVERHEAD);
        let ((session, steps), cost) = peak(|| {
            let mut session = Session::new(Variant::Delta, Scope::Aggregated);
            let request = Request::decode(Variant::Delta, bytes).unwrap();
            let mut step = session.on_request(request, None).unwrap();
            let mut steps = 1;
            while step.more {
                step = session.proceed().unwrap();
                steps += 1;
            }
            (session, steps)
        });
        assert_eq!(session.held_bytes(), counted);
        assert!(cost <= 4 * counted, "{cost} bytes, counted as {counted}");
        assert!(steps >= MAX_NAMES / 1024, "{steps}: other tasks have their turn");
    }
}

#[test]
fn a_node_with_many_extensions_is_read() {
    // An Envoy with all of its extensions states some 400.
    let extension = |i| Extension { name: format!("envoy.filters.http.{i}"), ..Extension::default() };
    let node = Node { id: "a".to_owned(), extensions: (0..2000).map(extension).collect(), ..Node::default() };
    let message = DiscoveryRequest { node: Some(node), ..DiscoveryRequest::default() };
    let bytes = Bytes::from(message.encode_to_vec());
    let (request, cost) = peak(|| Request::decode(Variant::Sotw, bytes).unwrap());
    assert_eq!(request.node().unwrap().id(), "a");
    assert!(cost <= 64, "{cost}: what counts the references to the bytes");
}
