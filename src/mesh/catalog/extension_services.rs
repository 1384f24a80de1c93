//! ExtensionServices: the servers outside of the mesh that other objects name.
//!
//! Owns which objects may name one: those of its own namespace, and all, where it is in the control plane's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Catalog;
use super::index::set;
use super::problems::check::Check;
use super::problems::found::Around;
use smc_api::osm::{ExtensionService, Telemetry};
use smc_model::declared::Declared;
use smc_model::outside_server::ExtensionServer;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};

impl Catalog {
    pub(super) fn set_extension_service(&mut self, id: &NamespacedName, new: Option<Arc<ExtensionService>>) {
        let old = self.extension_services.get(id);
        if old == new.as_ref() {
            return;
        }
        let host = |service: &Arc<ExtensionService>| service.server.server.service();
        let (was_at, is_at) = (old.and_then(host), new.as_ref().and_then(host));
        let telemetries: BTreeSet<_> = self.telemetries_naming(id).collect();
        let accounts = self.accounts_logging_by(&telemetries);
        self.pending.affected.accounts.extend(accounts);
        self.found.due(Check::ExtensionService(id.clone()));
        self.found.due_around(Around::TelemetriesNaming(id.clone()));
        for (at, present) in [(was_at, false), (is_at, true)] {
            if let Some(at) = at {
                set(&mut self.index.extended_at, at, id.clone(), present);
            }
        }
        match new {
            Some(new) => self.extension_services.insert(id.clone(), new),
            None => self.extension_services.remove(id),
        };
    }

    /// The Telemetries that may name this ExtensionService, and do. Looks at those of its namespace, and at
    /// all where that is the control plane's.
    pub(super) fn telemetries_naming<'a>(
        &'a self,
        service: &'a NamespacedName,
    ) -> impl Iterator<Item = NamespacedName> + 'a {
        let of_mesh = self.is_own(service.namespace());
        let of_all = of_mesh.then(|| self.telemetries.values()).into_iter().flatten();
        let of_its_own = self.telemetries.get(service.namespace()).filter(|_| !of_mesh);
        let names = |telemetry: &Telemetry| {
            telemetry.collector.as_ref().is_some_and(|collector| collector.service == *service)
        };
        let telemetries = of_all.chain(of_its_own).flat_map(BTreeMap::values);
        telemetries.filter(move |telemetry| names(telemetry)).map(|telemetry| telemetry.id.clone())
    }

    /// The collector that is sent what is logged by a Telemetry.
    pub(super) fn collector(&self, telemetry: &Telemetry) -> Option<Declared<Arc<ExtensionServer>>> {
        let named = &telemetry.collector.as_ref()?.service;
        let service = self.extension_services.get(named).filter(|_| self.may_name(&telemetry.id, named))?;
        let by = ObjectRef::Namespaced(Kind::ExtensionService, service.id.clone());
        Some(Declared { what: Arc::clone(&service.server), by })
    }

    /// Whether an object may name this ExtensionService.
    pub(super) fn may_name(&self, object: &NamespacedName, service: &NamespacedName) -> bool {
        object.namespace() == service.namespace() || self.is_own(service.namespace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Object;
    use crate::catalog::fixtures::{
        account, extension_service, namespace, pod, port, sent_to, service, telemetry,
    };
    use smc_model::topology::Namespace;
    use smc_types::proxy_class::AppProtocol::Tcp;

    const IN_THE_MESH: &str = "otel.shop.svc.cluster.local";

    fn shop() -> Catalog {
        Catalog::of([
            namespace("shop"),
            namespace("away"),
            Object::from(pod("shop/web", "shop/one", "web", "10.0.0.1")),
            Object::from(pod("away/web", "away/one", "web", "10.0.0.3")),
            sent_to(telemetry("shop/log", None, None), "shop/otel", "x"),
            sent_to(telemetry("away/log", None, None), "smc-system/otel", "x"),
        ])
    }

    /// Where the sidecars of `shop/web` and `away/web` send what they log.
    fn collectors(catalog: &Catalog) -> [Option<String>; 2] {
        ["shop/web", "away/web"].map(|pod| {
            let class = catalog.class(&pod.parse::<NamespacedName>().unwrap().into()).unwrap();
            let collector = catalog.access_log(class).collector?;
            Some(format!("{} by {}", collector.server.what.server, collector.server.by))
        })
    }

    /// The fields of what is wrong with a kind.
    fn problems(catalog: &Catalog, kind: Kind) -> Vec<String> {
        let all = catalog.problems().into_iter();
        let of_kind = all.filter(|problem| problem.subject.to_string().starts_with(kind.as_str()));
        of_kind.map(|problem| format!("{} {}", problem.subject, problem.field)).collect()
    }

    #[test]
    fn a_collector_is_in_the_same_namespace_or_in_the_control_planes() {
        let mut catalog = shop();
        assert_eq!(collectors(&catalog), [None, None]);
        assert_eq!(problems(&catalog, Kind::Telemetry).len(), 2, "there is none yet");
        let affected = catalog.declare(extension_service("smc-system/otel", "all.example"));
        assert_eq!(affected.accounts, [account("away/one")].into());
        let affected = catalog.declare(extension_service("shop/otel", "shop.example"));
        assert_eq!(affected.accounts, [account("shop/one")].into());
        assert_eq!(
            collectors(&catalog),
            [
                "shop.example:4317 by ExtensionService shop/otel",
                "all.example:4317 by ExtensionService smc-system/otel"
            ]
            .map(|text| Some(text.to_owned()))
        );
        assert_eq!(problems(&catalog, Kind::Telemetry), [""; 0]);

        let affected = catalog.declare(extension_service("away/otel", "away.example"));
        assert!(affected.is_empty(), "nothing names it: {affected:?}");
        catalog.declare(sent_to(telemetry("shop/log", None, None), "away/otel", "x"));
        assert_eq!(collectors(&catalog)[0], None, "of another tenant");
        assert_eq!(
            problems(&catalog, Kind::Telemetry),
            ["Telemetry shop/log spec.accessLog.openTelemetry.extensionService"]
        );
        let affected = catalog.declare(extension_service("away/otel", "other.example"));
        assert!(affected.is_empty(), "{affected:?}");
        let affected = catalog.withdraw(Kind::ExtensionService, "smc-system/otel");
        assert_eq!(affected.accounts, [account("away/one")].into());
        assert_eq!(collectors(&catalog), [None, None]);
    }

    #[test]
    fn a_server_that_is_a_service_of_the_mesh_is_said() {
        let mut catalog = shop();
        catalog.declare(extension_service("shop/otel", IN_THE_MESH));
        assert_eq!(problems(&catalog, Kind::ExtensionService), [""; 0]);
        catalog.recheck();
        catalog.declare(Object::from(service("shop/otel", "otel", &[port(4317, Tcp)])));
        assert_eq!(problems(&catalog, Kind::ExtensionService), ["ExtensionService shop/otel spec.host"]);
        catalog.recheck();
        let Object::Namespace(out) = namespace("shop") else { unreachable!("a namespace") };
        catalog.declare(Object::Namespace(Namespace { monitored: false, ..out }));
        assert_eq!(
            problems(&catalog, Kind::ExtensionService),
            ["ExtensionService shop/otel metadata.namespace"]
        );
        catalog.declare(namespace("shop"));
        catalog.recheck();
        catalog.declare(extension_service("shop/otel", "otel.example"));
        assert_eq!(problems(&catalog, Kind::ExtensionService), [""; 0]);
    }
}
