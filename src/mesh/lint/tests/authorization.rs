//! Breaks the rules for what asks a server whether a request may pass.

use envoy_types::pb::envoy::config::core::v3::{
    RuntimeFractionalPercent, TypedExtensionConfig, grpc_service::TargetSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{ExtAuthz, ext_authz::Services};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;

use super::*;

fn configured(change: impl FnOnce(&mut ExtAuthz)) -> String {
    broken(
        ResourceType::ExtensionConfig,
        names::EXTERNAL_AUTHORIZATION,
        |extension: &mut TypedExtensionConfig| {
            let config = extension.typed_config.as_mut().unwrap();
            let mut filter = ExtAuthz::decode(&*config.value).unwrap();
            change(&mut filter);
            *config = pack_any(filter);
        },
    )
}

#[test]
fn a_server_is_asked_about_every_request() {
    let other = configured(|filter| {
        let Some(Services::GrpcService(service)) = &mut filter.services else { panic!("gRPC") };
        let Some(TargetSpecifier::EnvoyGrpc(server)) = &mut service.target_specifier else {
            panic!("Envoy's")
        };
        server.cluster_name = "shop/a|80".to_owned();
    });
    assert!(other.contains("asks another server"), "{other}");
    let some = configured(|filter| filter.filter_enabled = Some(RuntimeFractionalPercent::default()));
    assert!(some.contains("only some requests"), "{some}");
    let free = configured(|filter| filter.decoder_header_mutation_rules = None);
    assert!(free.contains("change any header"), "{free}");
    let path = configured(|filter| {
        filter.decoder_header_mutation_rules.as_mut().unwrap().disallow_system = None;
    });
    assert!(path.contains("change any header"), "{path}");
    let passing = configured(|filter| filter.status_on_error = None);
    assert!(passing.contains("than a refusal"), "{passing}");
    let limit = broken(
        ResourceType::ExtensionConfig,
        names::EXTERNAL_AUTHORIZATION,
        |extension: &mut TypedExtensionConfig| {
            extension.typed_config = Some(pack_any(LocalRateLimit::default()));
        },
    );
    assert!(limit.contains("does not ask"), "{limit}");
    let unasked = inbound_http(|manager| {
        manager.http_filters.retain(|filter| filter.name != names::EXTERNAL_AUTHORIZATION);
    });
    assert!(unasked.contains("not of the others"), "{unasked}");
    let in_its_place = inbound_http(|manager| {
        let filter = manager.http_filters.iter_mut().find(|one| one.name == names::EXTERNAL_AUTHORIZATION);
        let Some(http_filter::ConfigType::ConfigDiscovery(source)) = &mut filter.unwrap().config_type else {
            panic!("by ECDS")
        };
        source.type_urls = vec![LocalRateLimit::type_url()];
    });
    assert!(in_its_place.contains("another kind"), "{in_its_place}");
}
