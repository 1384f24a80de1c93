//! Which bucket counts a request: a reading of the filters as Envoy runs them, by hand.

use super::*;
use envoy_types::pb::envoy::r#type::v3::StatusCode;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use smc_model::access_log::AccessLog;
use smc_model::declared::Declared;
use smc_model::rate_limit::{RateUnit, RouteLimit, TOO_MANY_REQUESTS, is_status};
use smc_model::sidecar_settings::LocalProxyMode;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::AppProtocol;
use std::collections::BTreeSet;
use std::sync::Arc;

const WEB: &str = "web.shop.svc.cluster.local";
const V2: &str = "web-v2.shop.svc.cluster.local";

pub(in crate::translate) fn id(name: &str) -> ServiceId {
    ServiceId::new("shop", name).unwrap()
}

fn port(services: &[&str]) -> InboundPort {
    let services = services.iter().map(|name| id(name)).collect();
    InboundPort { port: 8080, protocol: AppProtocol::Http, services }
}

fn requests(amount: u32) -> RequestLimit {
    let rate = Rate { amount, unit: RateUnit::Minute, burst: 5 };
    RequestLimit { rate, status: TOO_MANY_REQUESTS, headers: Vec::new() }
}

fn limits(amount: Option<u32>, paths: &[(&str, u32)]) -> LocalRateLimits {
    let route = |(path, amount): &(&str, u32)| RouteLimit {
        path: Pattern::prefix(path).unwrap(),
        limit: requests(*amount),
    };
    let routes = paths.iter().map(route).collect();
    LocalRateLimits { requests: amount.map(requests), routes, ..LocalRateLimits::default() }
}

/// What a port lets in where its services have these limits.
pub(in crate::translate) fn intent(limits: Vec<(&str, LocalRateLimits)>) -> InboundIntent {
    let limits = limits.into_iter().map(|(name, limits)| {
        let by = ObjectRef::Namespaced(Kind::UpstreamTrafficSetting, format!("shop/{name}").parse().unwrap());
        (id(name), Declared { what: Arc::new(limits), by })
    });
    InboundIntent {
        external_authorization: None,
        ports: Vec::new(),
        ingress: Vec::new(),
        limits: limits.collect(),
        without_room: Vec::new(),
        left_out: BTreeSet::new(),
        local_proxy_mode: LocalProxyMode::Localhost,
        access_log: AccessLog::default(),
        tracing: None,
        tls: None,
    }
}

fn decoded(filter: &core::TypedExtensionConfig) -> LocalRateLimit {
    LocalRateLimit::decode(&*filter.typed_config.as_ref().unwrap().value).unwrap()
}

/// The sizes of the buckets that count a request which names `called` by SNI, on the route of this metadata.
/// The bucket for all is named only if no other counts.
fn counted(filters: &[core::TypedExtensionConfig], called: &str, route: Option<&core::Metadata>) -> Vec<u32> {
    let mut buckets = Vec::new();
    for filter in filters.iter().map(decoded) {
        let of = filter.rate_limits.iter().filter_map(|limit| evaluated(limit, called, route));
        let of: Vec<_> = of.collect();
        let matching = filter.descriptors.iter().filter(|descriptor| of.contains(&descriptor.entries));
        let mut matching: Vec<_> =
            matching.map(|descriptor| size(descriptor.token_bucket.as_ref())).collect();
        if matching.is_empty() {
            matching.push(size(filter.token_bucket.as_ref()));
        }
        buckets.extend(matching.into_iter().filter(|size| *size < u32::MAX));
    }
    buckets
}

fn size(bucket: Option<&TokenBucket>) -> u32 {
    bucket.unwrap().max_tokens
}

fn evaluated(limit: &RateLimit, called: &str, route: Option<&core::Metadata>) -> Option<Vec<Entry>> {
    let actions = limit.actions.iter().map(|action| match action.action_specifier.as_ref().unwrap() {
        ActionSpecifier::GenericKey(key) => Some(entry(&key.descriptor_key, key.descriptor_value.clone())),
        ActionSpecifier::Extension(extension) => {
            let Any { value, .. } = extension.typed_config.as_ref().unwrap();
            Some(entry(&expression::Descriptor::decode(&**value).unwrap().descriptor_key, called.to_owned()))
        }
        ActionSpecifier::Metadata(metadata) => {
            let [PathSegment { segment: Some(path_segment::Segment::Key(key)) }] =
                &metadata.metadata_key.as_ref().unwrap().path[..]
            else {
                panic!("one key")
            };
            let field = route.and_then(|route| route.filter_metadata[METADATA].fields.get(key));
            let named = field.map(|field| {
                let Some(value::Kind::StringValue(text)) = field.kind.clone() else { panic!("no text") };
                text
            });
            let otherwise = Some(metadata.default_value.clone()).filter(|text| !text.is_empty());
            Some(entry(&metadata.descriptor_key, named.or(otherwise)?))
        }
        other => panic!("{other:?}"),
    });
    actions.collect()
}

#[test]
fn a_port_without_a_limit_has_no_filter() {
    let (port, intent) = (port(&["web"]), intent(vec![("other", limits(Some(1), &[]))]));
    let none = PortLimits::new(&port, &intent);
    assert!(none.filters(Caller::Mesh, "p").is_empty() && none.paths().next().is_none());
    assert!(none.objects().is_empty());
}

#[test]
fn on_a_port_of_another_protocol_no_request_is_counted() {
    let intent = intent(vec![("web", limits(Some(1), &[("/a", 1)]))]);
    let tcp = InboundPort { protocol: AppProtocol::Tcp, ..port(&["web"]) };
    let none = PortLimits::new(&tcp, &intent);
    assert!(none.filters(Caller::Mesh, "p").is_empty() && none.paths().next().is_none());
}

#[test]
fn a_path_with_a_limit_of_its_own_counts_in_the_place_of_the_service() {
    let (port, intent) = (port(&["web"]), intent(vec![("web", limits(Some(10), &[("/a", 20), ("/b", 30)]))]));
    let limits = PortLimits::new(&port, &intent);
    let paths: Vec<_> = limits.paths().collect();
    let texts: Vec<_> = paths.iter().map(|(path, _)| path.as_prefix()).collect();
    assert_eq!(texts, ["/a", "/b"]);
    for caller in [Caller::Mesh, Caller::Ingress] {
        let filters = limits.filters(caller, "p");
        for called in [WEB, "made-up", ""] {
            assert_eq!(counted(&filters, called, None), [15], "{caller:?} {called}: the burst comes on top");
            assert_eq!(counted(&filters, called, Some(&paths[0].1)), [25]);
            assert_eq!(counted(&filters, called, Some(&paths[1].1)), [35]);
        }
    }
}

#[test]
fn where_services_share_a_port_the_called_one_counts() {
    let (port, intent) = (port(&["web", "web-v2"]), intent(vec![("web-v2", limits(Some(10), &[]))]));
    let limits = PortLimits::new(&port, &intent);
    let filters = limits.filters(Caller::Mesh, "p");
    assert_eq!(counted(&filters, V2, None), [15]);
    assert_eq!(counted(&filters, WEB, None), [0; 0]);
    let filters = limits.filters(Caller::Ingress, "p");
    assert_eq!(counted(&filters, "whatever.example.com", None), [15], "an ingress names what it likes");
}

/// A sidecar that is not the mesh's own names what it likes.
#[test]
fn a_name_that_is_made_up_escapes_no_limit_where_each_service_has_one() {
    let both = intent(vec![("web", limits(Some(10), &[])), ("web-v2", limits(Some(20), &[]))]);
    let port = port(&["web", "web-v2"]);
    let limits = PortLimits::new(&port, &both);
    let filters = limits.filters(Caller::Mesh, "p");
    assert_eq!((counted(&filters, WEB, None), counted(&filters, V2, None)), (vec![15], vec![25]));
    assert_eq!(counted(&filters, "made-up", None), [15]);
    let filters = limits.filters(Caller::Ingress, "p");
    assert_eq!(counted(&filters, "made-up", None), [15, 25], "all limits of the port");
}

/// A limit of another service is not lifted by a path that its neighbour names.
#[test]
fn a_path_displaces_the_limit_of_its_own_service_alone() {
    let both =
        intent(vec![("web", limits(Some(10), &[("/a", 20)])), ("web-v2", limits(Some(40), &[("/a", 30)]))]);
    let port = port(&["web", "web-v2"]);
    let limits = PortLimits::new(&port, &both);
    let filters = limits.filters(Caller::Mesh, "p");
    let paths: Vec<_> = limits.paths().map(|(_, metadata)| metadata).collect();
    // Envoy takes the first route that matches; paths count by whichever name.
    for (called, path, expected) in
        [(WEB, 0, vec![25]), (WEB, 1, vec![15, 35]), (V2, 0, vec![25, 45]), (V2, 1, vec![35])]
    {
        let mut found = counted(&filters, called, Some(&paths[path]));
        found.sort_unstable();
        assert_eq!(found, expected, "{called} {path}");
    }
    let filters = limits.filters(Caller::Ingress, "p");
    let mut found = counted(&filters, "made-up", Some(&paths[0]));
    found.sort_unstable();
    assert_eq!(found, [25, 45], "the path, and the limit of the other service");
}

/// Whatever the answers are, each request is counted by its own limits, and by no bucket of a filter that has
/// none for it.
#[test]
fn no_answer_of_a_limit_makes_another_count() {
    for (web_status, v2_status, path_status) in
        [(429, 429, 429), (429, 503, 429), (503, 429, 429), (429, 429, 503), (429, 503, 500), (503, 503, 429)]
    {
        let (mut web, mut v2) = (limits(Some(10), &[("/a", 20)]), limits(Some(40), &[]));
        web.requests.as_mut().unwrap().status = web_status;
        web.routes[0].limit.status = path_status;
        v2.requests.as_mut().unwrap().status = v2_status;
        let both = intent(vec![("web", web), ("web-v2", v2)]);
        let port = port(&["web", "web-v2"]);
        let limits = PortLimits::new(&port, &both);
        let filters = limits.filters(Caller::Mesh, "p");
        let path = limits.paths().next().unwrap().1;
        let counted = |called, route| {
            let mut counted = counted(&filters, called, route);
            counted.sort_unstable();
            counted
        };
        let answers = (web_status, v2_status, path_status);
        assert_eq!(counted(WEB, None), [15], "{answers:?}");
        assert_eq!(counted(V2, None), [45], "{answers:?}");
        assert_eq!(counted(WEB, Some(&path)), [25], "{answers:?}");
        assert_eq!(counted(V2, Some(&path)), [25, 45], "{answers:?}");
        assert_eq!(counted("made-up", None), [15], "{answers:?}");
        assert_eq!(counted("made-up", Some(&path)), [15, 25], "{answers:?}");
    }
}

/// Connections from before refer to a filter by its name.
#[test]
fn a_filter_never_gets_the_limit_of_another_service() {
    let filters = |intent: &InboundIntent| {
        let port = port(&["api", "web"]);
        let filters = PortLimits::new(&port, intent).filters(Caller::Mesh, "p");
        filters.into_iter().map(|filter| filter.name).collect::<Vec<_>>()
    };
    let web = || ("web", limits(Some(10), &[]));
    let mut api = limits(Some(20), &[]);
    api.requests.as_mut().unwrap().status = 503;
    assert_eq!(filters(&intent(vec![web()])), ["rate_limit_p_shop/web"]);
    let both = filters(&intent(vec![("api", api), web()]));
    assert_eq!(both, ["rate_limit_p_shop/api", "rate_limit_p_shop/web", "rate_limit_p_others"]);
    let mut paths = limits(None, &[("/a", 20)]);
    assert_eq!(filters(&intent(vec![("web", paths.clone())])), ["rate_limit_p_shop/web_0"]);
    paths.requests = Some(RequestLimit { status: 503, ..requests(1) });
    let both = filters(&intent(vec![("web", paths)]));
    assert_eq!(both, ["rate_limit_p_shop/web", "rate_limit_p_shop/web_0"]);
}

#[test]
fn limits_with_different_answers_are_filters_of_their_own() {
    let mut own = limits(Some(10), &[("/a", 20), ("/b", 30)]);
    own.routes[0].limit.status = 503;
    own.routes[1].limit.headers = vec![
        ("x-why".to_owned(), "100 %".to_owned()),
        ("x-two".to_owned(), "a".to_owned()),
        ("x-two".to_owned(), "b".to_owned()),
    ];
    let (port, intent) = (port(&["web"]), intent(vec![("web", own)]));
    let limits = PortLimits::new(&port, &intent);
    let filters = limits.filters(Caller::Mesh, "p");
    let names: Vec<_> = filters.iter().map(|filter| &*filter.name).collect();
    assert_eq!(names, ["rate_limit_p_shop/web", "rate_limit_p_shop/web_0", "rate_limit_p_shop/web_1"]);
    let answers: Vec<_> = filters.iter().map(decoded).collect();
    let answers: Vec<_> = answers
        .iter()
        .map(|limit| (limit.status.as_ref().unwrap().code, &limit.response_headers_to_add))
        .collect();
    assert_eq!(answers.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [429, 503, 429]);
    let added: Vec<_> = answers[2].1.iter().map(|one| one.header.as_ref().unwrap()).collect();
    let added: Vec<_> = added.iter().map(|header| (&*header.key, &*header.value)).collect();
    assert_eq!(added, [("x-why", "100 %%"), ("x-two", "a"), ("x-two", "b")]);
    let paths: Vec<_> = limits.paths().map(|(_, metadata)| metadata).collect();
    for (route, bucket) in [(None, 15), (Some(&paths[0]), 25), (Some(&paths[1]), 35)] {
        assert_eq!(counted(&filters, WEB, route), [bucket]);
    }
}

#[test]
fn the_ends_of_what_can_be_written_are_within_what_envoy_takes() {
    for (amount, burst, most) in [(1, 0, 1), (u32::MAX, u32::MAX, u32::MAX), (1, u32::MAX, u32::MAX)] {
        for (unit, seconds) in RateUnit::ALL.into_iter().zip([1, 60, 3600]) {
            let bucket = bucket(Rate { amount, unit, burst });
            assert_eq!((bucket.max_tokens, bucket.fill_interval), (most, Some(proto::seconds(seconds))));
        }
    }
}

#[test]
fn the_statuses_are_those_of_envoy() {
    for status in 0..=999 {
        let known = StatusCode::try_from(i32::from(status)).is_ok() && status >= 400;
        assert_eq!(is_status(status), known, "{status}");
    }
}
