//! Breaks the rules for limits of connections.

use envoy_types::pb::envoy::config::core::v3::{RuntimeFeatureFlag, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::filters::network::local_ratelimit::v3::LocalRateLimit;

use super::*;
use smc_types::ids::ServiceId;

fn configured(change: impl FnOnce(&mut LocalRateLimit)) -> String {
    let name = names::connection_limit("inbound_90_tcp", &ServiceId::new("shop", "b").unwrap());
    broken(ResourceType::ExtensionConfig, &name, |extension: &mut TypedExtensionConfig| {
        let config = extension.typed_config.as_mut().unwrap();
        let mut filter = LocalRateLimit::decode(&*config.value).unwrap();
        change(&mut filter);
        *config = pack_any(filter);
    })
}

#[test]
fn a_limit_counts_every_connection_in_a_bucket_of_its_own() {
    for (change, words) in [
        (
            (|limit| limit.runtime_enabled = Some(RuntimeFeatureFlag::default())) as fn(&mut LocalRateLimit),
            "only some connections",
        ),
        (|limit| limit.token_bucket = None, "only some connections"),
        (|limit| limit.share_key = "key".to_owned(), "shares a bucket"),
    ] {
        let found = configured(change);
        assert!(found.contains(words), "{words}: {found}");
    }
    let other = broken(
        ResourceType::ExtensionConfig,
        &names::connection_limit("inbound_90_tcp", &ServiceId::new("shop", "b").unwrap()),
        |extension: &mut TypedExtensionConfig| extension.typed_config = Some(pack_any(Rbac::default())),
    );
    assert!(other.contains("no limit of connections"), "{other}");
}

#[test]
fn a_limit_stands_before_all_else_and_in_no_other_place() {
    for chain in ["inbound_80_http", "inbound_90_tcp", "ingress_80_https"] {
        let last = inbound(|chain| chain.filters.rotate_left(1), chain);
        assert!(last.contains("after something else"), "{chain}: {last}");
        let of_another_kind = inbound(
            |chain| {
                let Some(filter::ConfigType::ConfigDiscovery(source)) = &mut chain.filters[0].config_type
                else {
                    panic!("by ECDS")
                };
                source.type_urls = vec![Rbac::type_url()];
            },
            chain,
        );
        assert!(of_another_kind.contains("another kind"), "{chain}: {of_another_kind}");
        let misnamed = inbound(|chain| chain.filters[0].name = "other".to_owned(), chain);
        assert!(misnamed.contains("another kind"), "{chain}: {misnamed}");
    }
}
