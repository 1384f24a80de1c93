//! What is wrong between UpstreamTrafficSettings and services.

use super::named;
use super::retries::without_http;
use crate::catalog::Catalog;
use smc_api::osm::UpstreamTrafficSetting;
use smc_api::osm::upstream_traffic_setting::UpstreamHost;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, setting: &UpstreamTrafficSetting, problems: &mut Vec<Problem>) {
    let subject = named(Kind::UpstreamTrafficSetting, &setting.id);
    let namespace = setting.id.namespace();
    for field in &setting.not_enforced {
        let message = "is checked, and not enforced yet: it limits nothing";
        problems.push(Problem::error(&subject, *field, message));
    }
    let message = match (&setting.host, catalog.service_of_setting(setting)) {
        (UpstreamHost::Outside(host), _) => format!(
            "is {host:?}, which is no service of namespace {namespace} by its full name, such as \
             NAME.{namespace}.svc.cluster.local: for an Egress, which is not enforced yet, so it limits nothing"
        ),
        (UpstreamHost::Service { domain, .. }, None) => format!(
            "is in the domain {:?}, which is not that of the mesh: it limits nothing",
            domain.as_deref().unwrap_or_default()
        ),
        (_, Some(id)) => {
            if catalog.service(id).is_none() {
                let message = format!("is Service {id}, which does not exist (yet)");
                problems.push(Problem::warning(&subject, "spec.host", message));
            }
            // Calls of a split's root are made by the names of its backends.
            let split = setting.rate_limits.counts_requests() && !catalog.splits_of(id).is_empty();
            if split {
                let message = format!(
                    "is Service {id}, whose calls TrafficSplits send to others: these are counted by the limits of the \
                     Service that they are sent to"
                );
                problems.push(Problem::warning(&subject, "spec.rateLimit", message));
            }
            if let Some(other) = catalog.setting_of(id).filter(|other| other.id < setting.id) {
                format!(
                    "is Service {id}, for which UpstreamTrafficSetting {} holds: the first by name does",
                    other.id
                )
            } else if setting.rate_limits.counts_requests() && without_http(catalog, id) {
                format!(
                    "is Service {id}, none of whose ports carries HTTP: no request is counted. Name the port http, \
                     or set its appProtocol"
                )
            } else {
                return;
            }
        }
    };
    problems.push(Problem::error(&subject, "spec.host", message));
}
