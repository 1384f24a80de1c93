//! What is wrong between Telemetries, with the pods that they select, and with the collectors that they name.

use super::named;
use crate::catalog::Catalog;
use crate::catalog::telemetry::MAX_HEEDED;
use smc_api::osm::Telemetry;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

const FIELD: &str = "spec.selector";
const COLLECTOR: &str = "spec.accessLog.openTelemetry.extensionService";

pub(super) fn check(catalog: &Catalog, telemetry: &Telemetry, problems: &mut Vec<Problem>) {
    let subject = named(Kind::Telemetry, &telemetry.id);
    let mut heeded = catalog.heeded_telemetries(telemetry.id.namespace());
    let earlier = heeded.clone().filter(|other| other.id < telemetry.id).count();
    if earlier == MAX_HEEDED {
        let message = format!(
            "has no effect: of the Telemetries of a namespace the first {MAX_HEEDED} by name are heeded"
        );
        problems.push(Problem::error(&subject, "", message));
        return;
    }
    let rival = heeded.find(|other| other.id < telemetry.id && other.selector == telemetry.selector);
    if let Some(rival) = rival {
        let message =
            format!("has no effect: Telemetry {} means the same pods, and the first by name holds", rival.id);
        problems.push(Problem::error(&subject, FIELD, message));
    }
}

/// Whether the collector that it names can be sent anything.
pub(super) fn check_collector(catalog: &Catalog, telemetry: &Telemetry, problems: &mut Vec<Problem>) {
    let Some(service) = telemetry.collector.as_ref().map(|collector| &collector.service) else { return };
    let subject = named(Kind::Telemetry, &telemetry.id);
    if !catalog.may_name(&telemetry.id, service) {
        let message = format!(
            "is {service}, of a namespace that is neither this one nor the control plane's: no collector is sent what is logged"
        );
        problems.push(Problem::error(&subject, COLLECTOR, message));
    } else if !catalog.extension_services.contains_key(service) {
        let message = format!(
            "is ExtensionService {service}, which does not exist (yet): no collector is sent what is logged"
        );
        problems.push(Problem::warning(&subject, COLLECTOR, message));
    }
}

/// Whether it holds for a sidecar at all. One that is not declared yet holds for none.
pub(super) fn check_sidecars(catalog: &Catalog, id: &NamespacedName, problems: &mut Vec<Problem>) {
    if problems.is_empty() && !catalog.index.logging.contains_key(id) {
        let of = if catalog.is_own(id.namespace()) { "" } else { " of its namespace" };
        let message =
            format!("holds for no sidecar (yet): it selects no pod{of} that has one, or others come first");
        problems.push(Problem::warning(named(Kind::Telemetry, id), FIELD, message));
    }
}
