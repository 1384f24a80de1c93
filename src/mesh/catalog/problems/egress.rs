//! What is wrong between Egresses, groups and services.

use super::named;
use crate::catalog::Catalog;
use crate::policy::Routes;
use smc_api::osm::Egress;
use smc_api::osm::egress::EgressProtocol;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

/// Names the first object for each reason.
pub(super) fn check(catalog: &Catalog, egress: &Egress, problems: &mut Vec<Problem>) {
    let subject = named(Kind::Egress, &egress.id);
    let config = catalog.mesh_config();
    if config.egress {
        let message =
            "adds nothing: traffic.enableEgress of the MeshConfig lets every connection out of the mesh";
        problems.push(Problem::warning(&subject, "", message));
        return;
    }
    if config.ignores_egress {
        let message = "has no effect: featureFlags.enableEgressPolicy of the MeshConfig is false";
        problems.push(Problem::error(&subject, "", message));
        return;
    }
    beside_others(catalog, egress, problems);
    let is_empty = |group: &&NamespacedName| {
        catalog.http_route_group(group).is_none_or(|group| group.matches.is_empty())
    };
    let has_http = egress.ports.iter().any(|(_, protocol)| *protocol == EgressProtocol::Http);
    if let Some(groups) = egress.matches.as_ref().filter(|groups| has_http && !groups.is_empty()) {
        let missing = groups.iter().find(is_empty);
        if let Some(group) = missing.filter(|_| groups.iter().all(|group| is_empty(&group))) {
            let message = format!(
                "names HTTPRouteGroup {group}, which has no matches or does not exist (yet): no request in clear text \
                 passes"
            );
            problems.push(Problem::error(&subject, "spec.matches", message));
        } else if let Some(group) = missing {
            let message = format!(
                "names HTTPRouteGroup {group}, which has no matches or does not exist (yet): it adds no request"
            );
            problems.push(Problem::warning(&subject, "spec.matches", message));
        }
    }
    let in_mesh = |(_, service): &(&str, NamespacedName)| {
        catalog.service(&ServiceId::from(service.clone())).is_some() && catalog.monitors(service.namespace())
    };
    if let Some((host, service)) = egress.resolved_services().find(in_mesh) {
        let message = format!(
            "names {host}, which is Service {service} of the mesh: a TrafficTarget lets it be called. What goes there by \
             an Egress has no certificate, and is refused"
        );
        problems.push(Problem::warning(&subject, "spec.hosts", message));
    }
}

/// What an object is beside the others of its sources.
fn beside_others(catalog: &Catalog, egress: &Egress, problems: &mut Vec<Problem>) {
    let subject = named(Kind::Egress, &egress.id);
    let surveys = || {
        let surveys = egress.sources.iter();
        surveys.filter_map(|source| Some((source, catalog.index.egress_surveys.get(source)?)))
    };
    let without_room = surveys().filter(|(_, survey)| !survey.has_room_for(&egress.id));
    let mut cut = without_room.filter_map(|(source, survey)| Some((source, survey.cut.as_ref()?)));
    if let Some((source, first)) = cut.next() {
        let message = format!(
            "has no effect for ServiceAccount {source}, and {} others: its Egresses take more than there is room for, by \
             ports, networks, hosts and requests. From {first} on, by name, none has effect",
            cut.count()
        );
        problems.push(Problem::error(&subject, "spec", message));
    }
    // TLS is looked at before a connection goes on, so that a server that speaks first is waited for.
    let concerns = |port: &u16| {
        let of = |protocol| egress.ports.contains(&(*port, protocol));
        of(EgressProtocol::Https) || of(EgressProtocol::TcpServerFirst)
    };
    let delayed = surveys()
        .find_map(|(source, survey)| Some((source, survey.delayed.iter().find(|port| concerns(port))?)));
    if let Some((source, port)) = delayed {
        let message = format!(
            "has port {port}, which the Egresses of ServiceAccount {source} use for https and for tcp-server-first: a \
             server that speaks first is heard after some seconds"
        );
        problems.push(Problem::warning(&subject, "spec.ports", message));
    }
}
