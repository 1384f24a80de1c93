//! Who may reach whom: between identities, and from an identity to services.
//!
//! Owns what a source is told about. It is no guard: the destination's sidecar decides on each request, so
//! a source may be told of a service of which it can use only some ports or routes.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{grant, grants};
use crate::catalog::{AppProtocol, Catalog};
use crate::ids::{ServiceAccountId, ServiceId};

/// Whether some traffic from `source` to this port of `destination`'s workloads might be allowed. On an
/// HTTP port single requests may still be refused.
pub fn may_connect(
    catalog: &Catalog,
    source: &ServiceAccountId,
    destination: &ServiceAccountId,
    port: u16,
    protocol: AppProtocol,
) -> bool {
    catalog.mesh_config().permissive
        || grants(catalog, destination)
            .iter()
            .any(|grant| grant.sources.contains(source) && grant.applies_to(port, protocol))
}

/// The identities that may reach `destination` in some way. In permissive mode, all that run in the mesh.
pub fn allowed_inbound_accounts(
    catalog: &Catalog,
    destination: &ServiceAccountId,
) -> BTreeSet<ServiceAccountId> {
    if catalog.mesh_config().permissive {
        return catalog.accounts().cloned().collect();
    }
    grants(catalog, destination).into_iter().flat_map(|grant| grant.sources).collect()
}

/// The identities that `source` may reach in some way. In permissive mode, all that run in the mesh.
pub fn allowed_outbound_accounts(catalog: &Catalog, source: &ServiceAccountId) -> BTreeSet<ServiceAccountId> {
    if catalog.mesh_config().permissive {
        return catalog.accounts().cloned().collect();
    }
    let targets = catalog.traffic_targets_from(source);
    let granted = targets.filter(|target| grant(catalog, target).is_some());
    granted.map(|target| target.destination.clone()).collect()
}

/// The services that `source` may call, each with the identities behind it that it may reach. These are
/// the services that such an identity is behind, and the roots of splits that lead to one (for which the
/// set may be empty). Leaves that it may not reach are no callable services, though a split of a root that
/// is callable may name them.
pub fn outbound_services(
    catalog: &Catalog,
    source: &ServiceAccountId,
) -> BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> {
    let mut services: BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> = BTreeMap::new();
    for account in allowed_outbound_accounts(catalog, source) {
        for service in catalog.services_behind_account(&account) {
            services.entry(service.clone()).or_default().insert(account.clone());
        }
    }
    let roots: Vec<ServiceId> = services
        .keys()
        .flat_map(|leaf| catalog.splits_into(leaf))
        .filter(|split| catalog.service(&split.root).is_some())
        .map(|split| split.root.clone())
        .collect();
    for root in roots {
        services.entry(root).or_default();
    }
    services
}
