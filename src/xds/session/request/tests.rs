//! Requests are read as prost reads the generated messages, and what is none is refused.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::rpc::Status;
use proptest::prelude::*;
use prost::Message;

use super::*;

fn read(variant: Variant, message: &impl Message) -> Request {
    Request::decode(variant, message.encode_to_vec().into()).unwrap()
}

fn names(request: &Request, list: NameList) -> Vec<(String, String)> {
    let names = request.names(list, 0).map(|(name, version)| (name.to_owned(), version.to_owned()));
    names.collect()
}

fn without_versions(names: &[String]) -> Vec<(String, String)> {
    names.iter().map(|name| (name.clone(), String::new())).collect()
}

fn any_names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[a-z*é]{0,4}", 0..6)
}

fn any_node() -> impl Strategy<Value = Option<core::Node>> {
    let version = prop_oneof![
        Just(None),
        "[0-9.]{0,6}".prop_map(|text| Some(core::node::UserAgentVersionType::UserAgentVersion(text))),
        any::<[u8; 3]>().prop_map(|[major, minor, patch]| {
            let version = SemanticVersion {
                major_number: major.into(),
                minor_number: minor.into(),
                patch: patch.into(),
            };
            let build = core::BuildVersion { version: Some(version), metadata: None };
            Some(core::node::UserAgentVersionType::UserAgentBuildVersion(build))
        }),
    ];
    let node =
        ("[a-z]{0,8}", "[a-z]{0,8}", version, 0..3_usize).prop_map(|(id, agent, version, extensions)| {
            core::Node {
                id,
                cluster: "c".to_owned(),
                user_agent_name: agent,
                extensions: vec![core::Extension { name: "x".to_owned(), ..Default::default() }; extensions],
                user_agent_version_type: version,
                ..Default::default()
            }
        });
    proptest::option::of(node)
}

fn agent(node: &core::Node) -> String {
    use core::node::UserAgentVersionType::{UserAgentBuildVersion, UserAgentVersion};
    let version = match &node.user_agent_version_type {
        None => String::new(),
        Some(UserAgentVersion(text)) => text.clone(),
        Some(UserAgentBuildVersion(build)) => {
            let v = build.version.unwrap();
            format!("{}.{}.{}", v.major_number, v.minor_number, v.patch)
        }
    };
    format!("{} {version}", node.user_agent_name)
}

fn same_node(request: &Request, node: Option<&core::Node>) -> Result<(), TestCaseError> {
    let read = request.node().map(|node| (node.id().to_owned(), node.user_agent()));
    prop_assert_eq!(read, node.map(|node| (node.id.clone(), agent(node))));
    Ok(())
}

fn error(message: &str) -> Status {
    Status { code: 3, message: message.to_owned(), details: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_delta_request_is_read_as_prost_reads_it(
        (subscribed, unsubscribed, held) in (any_names(), any_names(), any_names()),
        (url, nonce, failed, node) in ("[a-z]{0,4}", "[0-9]{0,4}", any::<bool>(), any_node()),
    ) {
        let message = DeltaDiscoveryRequest {
            node: node.clone(),
            type_url: url.clone(),
            response_nonce: nonce.clone(),
            resource_names_subscribe: subscribed.clone(),
            resource_names_unsubscribe: unsubscribed.clone(),
            initial_resource_versions: held.iter().map(|name| (name.clone(), format!("v{name}"))).collect(),
            error_detail: failed.then(|| error("no")),
            ..Default::default()
        };
        let request = read(Variant::Delta, &message);
        prop_assert_eq!((request.type_url(), request.response_nonce()), (url.as_str(), nonce.as_str()));
        prop_assert_eq!(request.error(), failed.then_some("no"));
        prop_assert_eq!(names(&request, NameList::Subscribed), without_versions(&subscribed));
        prop_assert_eq!(names(&request, NameList::Unsubscribed), without_versions(&unsubscribed));
        let mut versions = names(&request, NameList::Held);
        versions.sort();
        let mut expected: Vec<_> = message.initial_resource_versions.into_iter().collect();
        expected.sort();
        prop_assert_eq!(versions, expected);
        let total = request.total(NameList::Subscribed);
        prop_assert_eq!(total.count, subscribed.len());
        prop_assert_eq!(total.longest, subscribed.iter().map(String::len).max().unwrap_or(0));
        prop_assert_eq!(total.wildcard, subscribed.iter().any(|name| name == "*"));
        same_node(&request, node.as_ref())?;
    }

    #[test]
    fn a_sotw_request_is_read_as_prost_reads_it(
        (subscribed, url, version, nonce) in (any_names(), "[a-z]{0,4}", "[0-9a-f]{0,4}", "[0-9]{0,4}"),
        (failed, node) in (any::<bool>(), any_node()),
    ) {
        let message = DiscoveryRequest {
            node: node.clone(),
            type_url: url.clone(),
            version_info: version.clone(),
            response_nonce: nonce.clone(),
            resource_names: subscribed.clone(),
            error_detail: failed.then(|| error("")),
            ..Default::default()
        };
        let request = read(Variant::Sotw, &message);
        prop_assert_eq!((request.type_url(), request.response_nonce()), (url.as_str(), nonce.as_str()));
        prop_assert_eq!(request.version_info(), version.as_str());
        prop_assert_eq!(request.error(), failed.then_some(""), "without a message it is a NACK all the same");
        prop_assert_eq!(names(&request, NameList::Subscribed), without_versions(&subscribed));
        same_node(&request, node.as_ref())?;
    }

    /// Whatever the bytes, they are read or refused. What is read has names that can be gone through in
    /// parts.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0..64_u8], 0..80),
    ) {
        for variant in [Variant::Sotw, Variant::Delta] {
            let Ok(request) = Request::decode(variant, bytes.clone().into()) else { continue };
            for list in [NameList::Held, NameList::Subscribed, NameList::Unsubscribed] {
                let (mut parts, mut position) = (Vec::new(), 0);
                loop {
                    let mut one = request.names(list, position);
                    let Some((name, version)) = one.next() else { break };
                    parts.push((name.to_owned(), version.to_owned()));
                    position = one.position();
                }
                prop_assert_eq!(parts.len(), request.total(list).count);
                prop_assert_eq!(parts, names(&request, list));
            }
        }
    }
}

#[test]
fn what_is_no_request_is_refused_with_the_reason() {
    let table: [(&[u8], RequestError); 7] = [
        // A length beyond the end; a group; a number of which the end is missing.
        (&[0x1a, 5, b'a'], RequestError::Malformed),
        (&[0x1b, 0x1c], RequestError::Malformed),
        (&[0x80], RequestError::Malformed),
        // A number where a name belongs; a name that is no text; the same within a node and an entry.
        (&[0x18, 7], RequestError::WrongType(3)),
        (&[0x1a, 1, 0xff], RequestError::NotText(3)),
        (&[0x0a, 3, 0x0a, 1, 0xff], RequestError::NotText(1)),
        (&[0x2a, 2, 0x10, 1], RequestError::WrongType(2)),
    ];
    for (bytes, reason) in table {
        let refused = Request::decode(Variant::Delta, Bytes::copy_from_slice(bytes)).unwrap_err();
        assert_eq!(refused, reason, "{bytes:?}");
    }
}

#[test]
fn more_fields_than_full_lists_have_are_refused_at_every_depth() {
    let full = (MAX_FIELDS - 1) * 2;
    // Empty extensions of a node, unknown fields, and empty keys of one entry: two bytes each.
    let within = |number: u8, field: [u8; 2], bytes: usize| {
        let mut message = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes as u64, &mut message);
        message.extend(field.repeat(bytes / 2));
        Bytes::from(message)
    };
    for (number, field) in [(1, [9 << 3 | 2, 0]), (5, [1 << 3 | 2, 0])] {
        Request::decode(Variant::Delta, within(number, field, full)).unwrap();
        let refused = Request::decode(Variant::Delta, within(number, field, full + 2)).unwrap_err();
        assert_eq!(refused, RequestError::TooManyFields);
    }
    let unknown = Bytes::from([15 << 3, 0].repeat(MAX_FIELDS + 1));
    assert_eq!(Request::decode(Variant::Sotw, unknown).unwrap_err(), RequestError::TooManyFields);
}
