//! Asking a server whether a request may pass: Envoy's filter for external authorization.
//!
//! Owns what the server is shown of a request, and what its answer may change. It is shown the method, the
//! path as the rules of policy saw it, the headers and the caller's identity, and no body: a request whose
//! body it waited for would not reach an application that answers before the end of one, as in gRPC and with
//! `Expect: 100-continue`. The configuration comes by itself (ECDS): an edit ends no connection, and no
//! listener that asks takes a request before it has it.

use std::sync::Arc;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutationRules;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{ExtAuthz, ext_authz};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher;
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};
use envoy_types::util::pack_any;
use prost::Name;

use super::cluster;
use super::draft::Draft;
use super::proto::{self, Families};
use super::provenance::Objects;
use smc_model::declared::Declared;
use smc_model::external_authorization::ExternalAuthorization;
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// Headers of a request by which the mesh says to the application who calls. Envoy's own and the host are not
/// changed in any case, and neither are the path and the method, on which the rules of policy have judged.
const UNCHANGED: &str = "x-forwarded-client-cert|x-forwarded-for|x-smc-.*";

/// Adds the cluster of the server and the configuration of the filter, and returns the filter.
pub(super) fn translate(
    declared: &Declared<Arc<ExternalAuthorization>>,
    families: Families,
    draft: &mut Draft<'_>,
) -> HttpFilter {
    let name = names::EXTERNAL_AUTHORIZATION;
    let objects = Objects::from([declared.by.clone()]);
    let server = cluster::outside(name, declared.what.server.as_ref(), AppProtocol::Http2, families);
    draft.add(ResourceType::Cluster, name, &server, &objects);
    let config = core::TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack_any(filter(&declared.what))),
    };
    draft.add(ResourceType::ExtensionConfig, name, &config, &objects);
    proto::discovered_filter(name.to_owned(), ExtAuthz::type_url())
}

fn filter(declared: &ExternalAuthorization) -> ExtAuthz {
    let server = core::grpc_service::EnvoyGrpc {
        cluster_name: names::EXTERNAL_AUTHORIZATION.to_owned(),
        authority: declared.server.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..core::grpc_service::EnvoyGrpc::default()
    };
    ExtAuthz {
        services: Some(ext_authz::Services::GrpcService(core::GrpcService {
            timeout: Some(proto::duration(declared.timeout)),
            target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(server)),
            ..core::GrpcService::default()
        })),
        transport_api_version: core::ApiVersion::V3.into(),
        failure_mode_allow: declared.failure_mode_allow,
        status_on_error: Some(HttpStatus { code: StatusCode::Forbidden.into() }),
        stat_prefix: declared.stat_prefix.clone(),
        validate_mutations: true,
        decoder_header_mutation_rules: Some(HeaderMutationRules {
            disallow_system: Some(proto::switch(true)),
            disallow_expression: Some(RegexMatcher {
                regex: UNCHANGED.to_owned(),
                ..RegexMatcher::default()
            }),
            ..HeaderMutationRules::default()
        }),
        ..ExtAuthz::default()
    }
}
