//! What of outside the mesh an identity may reach, as messages of the administration API.

use std::collections::BTreeMap;

use smc_mesh::catalog::Catalog;
use smc_model::cidr::IpNet;
use smc_model::egress::{EgressHost, EgressRoute, EgressTarget, EgressWay};
use smc_proto::admin::v1 as pb;
use smc_types::ids::ServiceAccountId;

use super::policy_report::http_match;

/// What `account` may reach. The answer is bounded as what Egresses come to is.
pub(super) fn egress(catalog: &Catalog, account: &ServiceAccountId) -> pb::ListEgressResponse {
    if catalog.mesh_config().egress {
        return pb::ListEgressResponse { everything: true, ..pb::ListEgressResponse::default() };
    }
    let ports = catalog.egress(account);
    let ports = ports.iter().map(|(&number, port)| pb::EgressPort {
        number: number.into(),
        ways: port.networks.iter().flat_map(|(network, way)| ways(network, way)).collect(),
        declared_by: port.declared_by.iter().map(ToString::to_string).collect(),
    });
    pb::ListEgressResponse {
        everything: false,
        ports: ports.collect(),
        left_out: catalog.egress_left_out(account).map(ToString::to_string).collect(),
    }
}

fn ways(network: &IpNet, way: &EgressWay) -> Vec<pb::EgressWay> {
    let headed = |protocol: pb::EgressProtocol, host: &EgressHost, target| pb::EgressWay {
        network: network.to_string(),
        protocol: protocol.into(),
        host: host.to_string(),
        resolved: target == EgressTarget::Resolved,
        requests: Vec::new(),
    };
    let unnamed = |protocol| pb::EgressWay {
        host: String::new(),
        ..headed(protocol, &EgressHost::Any, EgressTarget::Dialled)
    };
    let (tls, http) = match way {
        EgressWay::Anything => return vec![unnamed(pb::EgressProtocol::Any)],
        EgressWay::ByName { tls, http } if tls.is_empty() && http.is_empty() => {
            return vec![unnamed(pb::EgressProtocol::None)];
        }
        EgressWay::ByName { tls, http } => (tls, http),
    };
    let tls = tls.iter().map(|(host, target)| headed(pb::EgressProtocol::Tls, host, *target));
    let http = http.iter().flat_map(|(host, routes)| {
        let mut by_target: BTreeMap<EgressTarget, Vec<&EgressRoute>> = BTreeMap::new();
        for route in routes {
            by_target.entry(route.target).or_default().push(route);
        }
        by_target.into_iter().map(|(target, routes)| pb::EgressWay {
            requests: routes.iter().filter_map(|route| route.matched.as_ref()).map(http_match).collect(),
            ..headed(pb::EgressProtocol::Http, host, target)
        })
    });
    tls.chain(http).collect()
}
