//! What is declared in namespaces that are not in the mesh.

use super::named;
use crate::catalog::Catalog;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

/// Policy is about pods and services of its own namespace, so outside of the mesh it has no effect.
pub(super) fn check(catalog: &Catalog, problems: &mut Vec<Problem>) {
    let of = |kind: Kind| move |name| (kind, name);
    let policy = (catalog.traffic_targets.keys().map(of(Kind::TrafficTarget)))
        .chain(catalog.http_route_groups.keys().map(of(Kind::HttpRouteGroup)))
        .chain(catalog.tcp_routes.keys().map(of(Kind::TcpRoute)))
        .chain(catalog.traffic_splits.keys().map(of(Kind::TrafficSplit)));
    let outside = policy.filter(|(_, name): &(Kind, &NamespacedName)| !catalog.monitors(name.namespace()));
    for (kind, name) in outside {
        let message = format!(
            "is {}, which is not in the mesh: without its label openservicemesh.io/monitored-by this has no effect",
            name.namespace()
        );
        problems.push(Problem::warning(named(kind, name), "metadata.namespace", message));
    }
}
