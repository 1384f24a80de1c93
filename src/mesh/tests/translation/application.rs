//! How a sidecar meets its application, and what its callers do when it does not.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::accesslog::v3::access_log_filter;
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, route};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use smc_mesh::translate::{Compiler, Input, Settings, TrustBundle};
use smc_testkit::mesh::*;
use smc_xds::names;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;

use super::{ACCOUNTS, a_may_call, chain, configured, get, parts, shop};

/// RFC 9110 section 9.2.2: without knowing a request's meaning, only one that was never applied may be
/// repeated.
#[test]
fn only_what_was_certainly_not_processed_is_sent_again() {
    let compiler = shop([a_may_call("shop/b1")]);
    let (a, b1) = (view(&compiler, "shop/a").unwrap(), view(&compiler, "shop/b1").unwrap());
    let host = |view: &View, name: &str| {
        let routes: RouteConfiguration = get(view, ResourceType::Route, name);
        let [host] = routes.virtual_hosts.try_into().unwrap();
        host
    };
    let outbound = host(&a, "outbound_shop/b_80");
    let policy = outbound.retry_policy.unwrap();
    let reasons: BTreeSet<_> = policy.retry_on.split(',').collect();
    let certain = ["connect-failure", "refused-stream", "reset-before-request", "retriable-headers"];
    assert_eq!(reasons, BTreeSet::from(certain));
    assert_eq!((policy.num_retries.unwrap().value, policy.retriable_status_codes.len()), (2, 0));
    let headers: Vec<_> = policy.retriable_headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(headers, [names::NOT_PROCESSED_HEADER]);
    assert_eq!(outbound.request_body_buffer_limit.unwrap().value, 65536);
    assert!(outbound.routes.iter().all(|route| match &route.action {
        Some(route::Action::Route(action)) => action.retry_policy.is_none(),
        _ => false,
    }));

    // An application cannot claim it, nor can the answer of another pod that it passes on.
    let inbound = host(&b1, "inbound_8080_http");
    assert_eq!(inbound.retry_policy, None);
    assert_eq!(inbound.response_headers_to_remove, [names::NOT_PROCESSED_HEADER]);
    let chain = chain(&b1, names::INBOUND_LISTENER, "inbound_8080_http");
    let manager: HttpConnectionManager = configured(&chain).unwrap();
    let [mapper] = manager.local_reply_config.unwrap().mappers.try_into().unwrap();
    let Some(access_log_filter::FilterSpecifier::ResponseFlagFilter(flags)) =
        mapper.filter.unwrap().filter_specifier
    else {
        panic!("not by a flag");
    };
    assert_eq!(flags.flags, ["UF"]);

    let settings = Settings { request_retries: 0, ..settings() };
    let mut compiler = Compiler::new(settings);
    compiler.apply([Input::Bundle(TrustBundle { pem: "roots".to_owned() })]);
    compiler.apply(ACCOUNTS.map(|account| certify(account, "chain", "key")));
    compiler.apply(parts());
    compiler.apply([a_may_call("shop/b1")]);
    let outbound = host(&view(&compiler, "shop/a").unwrap(), "outbound_shop/b_80");
    assert_eq!((outbound.retry_policy, outbound.request_body_buffer_limit), (None, None));
}

#[test]
fn both_listeners_bound_what_a_stream_keeps_for_a_slow_reader() {
    let compiler = shop([a_may_call("shop/b1")]);
    for (account, listener, name) in [
        ("shop/a", names::OUTBOUND_LISTENER, "outbound_shop/b_80_http"),
        ("shop/b1", names::INBOUND_LISTENER, "inbound_8080_http"),
    ] {
        let view = view(&compiler, account).unwrap();
        let manager: HttpConnectionManager = configured(&chain(&view, listener, name)).unwrap();
        let http2 = manager.http2_protocol_options.unwrap();
        assert_eq!(http2.initial_stream_window_size.unwrap().value, 1 << 20, "{name}");
        assert!(http2.override_stream_error_on_invalid_http_message.unwrap().value, "{name}");
    }
}

#[test]
fn a_new_local_proxy_mode_changes_the_applications_clusters_alone() {
    let mut compiler = shop([a_may_call("shop/b1")]);
    let versions = |compiler: &Compiler| {
        let b1 = view(compiler, "shop/b1").unwrap();
        let all = ResourceType::ALL.into_iter().flat_map(|kind| b1.all(kind).cloned().collect::<Vec<_>>());
        all.map(|resource| (resource.name.to_string(), resource.version)).collect::<BTreeSet<_>>()
    };
    let before = versions(&compiler);
    compiler.apply([pod_ip_mode()]);
    let after = versions(&compiler);
    let changed: Vec<_> = after.difference(&before).map(|(name, _)| name.as_str()).collect();
    assert_eq!(changed, ["local|8080|http"]);
    assert_eq!(before.len(), after.len());
    compiler.apply([mesh_config(false, false)]);
    assert_eq!(versions(&compiler), before);
}
