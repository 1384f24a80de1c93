//! The bytes of a response equal those that prost writes.

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::support::{CDS, EDS, LDS, Spec, resource, version};
use crate::session::{Response, Variant};

const SPECS: [Spec<'_>; 2] = [(EDS, "a", "one"), (EDS, "b", "two")];

fn response(variant: Variant) -> Response {
    Response {
        suffix: String::new(),
        variant,
        kind: EDS,
        version: if variant == Variant::Sotw { "v1".to_owned() } else { String::new() },
        nonce: "7".to_owned(),
        resources: SPECS.into_iter().map(resource).collect(),
        removed: if variant == Variant::Delta { vec!["gone".into(), "".into()] } else { Vec::new() },
    }
}

fn any(content: &str) -> Any {
    let value = Any { type_url: content.to_owned(), value: Vec::new() }.encode_to_vec();
    Any { type_url: EDS.url().to_owned(), value }
}

fn bytes(response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    response.encode(&mut bytes);
    assert_eq!(bytes.len(), response.encoded_len());
    bytes
}

#[test]
fn a_state_of_the_world_response_is_what_prost_writes() {
    let expected = DiscoveryResponse {
        version_info: "v1".to_owned(),
        resources: vec![any("one"), any("two")],
        type_url: EDS.url().to_owned(),
        nonce: "7".to_owned(),
        ..DiscoveryResponse::default()
    };
    let bytes = bytes(&response(Variant::Sotw));
    assert_eq!(DiscoveryResponse::decode(&*bytes).unwrap(), expected);
    assert_eq!(bytes, expected.encode_to_vec());
}

#[test]
fn a_delta_response_is_what_prost_writes() {
    let body = |spec: Spec<'_>| Resource {
        name: spec.1.to_owned(),
        version: version(spec),
        resource: Some(any(spec.2)),
        ..Resource::default()
    };
    let expected = DeltaDiscoveryResponse {
        resources: SPECS.map(body).to_vec(),
        type_url: EDS.url().to_owned(),
        removed_resources: vec!["gone".to_owned(), String::new()],
        nonce: "7".to_owned(),
        ..DeltaDiscoveryResponse::default()
    };
    let bytes = bytes(&response(Variant::Delta));
    assert_eq!(DeltaDiscoveryResponse::decode(&*bytes).unwrap(), expected);
    assert_eq!(bytes, expected.encode_to_vec());
}

#[test]
fn an_empty_delta_response_carries_its_type_and_nonce() {
    let empty = Response { resources: Vec::new(), removed: Vec::new(), ..response(Variant::Delta) };
    let decoded = DeltaDiscoveryResponse::decode(&*bytes(&empty)).unwrap();
    assert_eq!((decoded.type_url.as_str(), decoded.nonce.as_str()), (EDS.url(), "7"));
    assert!(decoded.resources.is_empty() && decoded.removed_resources.is_empty());
}

#[test]
fn a_cluster_says_which_endpoints_it_waits_for_and_nothing_else_does() {
    assert_eq!(resource((CDS, "a", "one")).warms_on.as_deref(), Some("a"));
    assert_eq!(resource((LDS, "a", "one")).warms_on, None);
    assert_eq!(resource((EDS, "a", "one")).warms_on, None);
}

#[test]
fn debug_output_shows_no_content() {
    let shown = format!("{:?}", response(Variant::Delta));
    assert!(shown.contains("eds:a@") && !shown.contains("two"), "{shown}");
}

#[test]
fn large_resources_are_shared_between_streams_and_small_ones_copied() {
    let large = "l".repeat(4000);
    let resources = vec![resource((CDS, "a", "1")), resource((CDS, "b", &large)), resource((CDS, "c", "1"))];
    for suffix in ["", "@7"] {
        let one =
            Response { resources: resources.clone(), suffix: suffix.to_owned(), ..response(Variant::Delta) };
        let parts = one.parts(b"head");
        assert_eq!(parts.len(), 3, "before, the large one, behind");
        assert!(resources[1].delta().as_ptr_range().contains(&parts[1].as_ptr()), "the same memory");
        assert_eq!(parts.concat(), [b"head".to_vec(), bytes(&one)].concat());
        assert_eq!(one.encoded_len(), bytes(&one).len());
    }
}
