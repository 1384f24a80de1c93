//! Telemetries: which holds for a sidecar, and what it logs.
//!
//! Owns the precedence. A Telemetry concerns pods of its own namespace. One in the control plane's namespace
//! concerns the pods of every namespace for which no Telemetry of their own holds. Of the Telemetries of a
//! namespace, one that selects a pod by its labels comes before those that mean all, and of those of one rank
//! the first by name holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Catalog;
use super::index::selects;
use super::problems::check::Check;
use super::problems::found::Around;
use smc_api::osm::Telemetry;
use smc_model::access_log::{AccessLog, LogCollector, Logged};
use smc_model::declared::Declared;
use smc_model::topology::Workload;
use smc_types::ids::{NamespacedName, ServiceAccountId, WorkloadId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::ProxyClass;

/// The most Telemetries of a namespace that are heeded, the first by name. Each is compared with the labels
/// of each pod.
pub(super) const MAX_HEEDED: usize = 64;

impl Catalog {
    pub(super) fn set_telemetry(&mut self, id: &NamespacedName, new: Option<Arc<Telemetry>>) {
        if self.telemetry(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::Telemetry(id.clone()));
        self.found.due_around(Around::TelemetriesIn(id.namespace().to_owned()));
        self.pending.telemetries.insert(id.clone());
        let own = self.telemetries.entry(id.namespace().to_owned()).or_default();
        match new {
            Some(new) => own.insert(id.clone(), new),
            None => own.remove(id),
        };
        if own.is_empty() {
            self.telemetries.remove(id.namespace());
        }
    }

    /// The Telemetry of this name.
    pub(super) fn telemetry(&self, id: &NamespacedName) -> Option<&Arc<Telemetry>> {
        self.telemetries.get(id.namespace())?.get(id)
    }

    /// The Telemetries of a namespace that are heeded.
    pub(super) fn heeded_telemetries(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &Arc<Telemetry>> + Clone {
        self.telemetries.get(namespace).into_iter().flat_map(BTreeMap::values).take(MAX_HEEDED)
    }

    /// The Telemetry that holds for a workload.
    pub(super) fn telemetry_of(&self, workload: &Workload) -> Option<&NamespacedName> {
        let of = |namespace| {
            let mut heeded = self.heeded_telemetries(namespace);
            let of_all = heeded.clone().find(|one| one.selector.is_empty());
            heeded.find(|one| selects(&one.selector, &workload.labels)).or(of_all).map(|one| &one.id)
        };
        of(workload.id.namespace()).or_else(|| of(self.mesh_namespace.as_str()))
    }

    /// The workloads that these Telemetries may concern for which another one holds than their class says.
    pub(super) fn logging_otherwise(&self, telemetries: &BTreeSet<NamespacedName>) -> Vec<WorkloadId> {
        let mut namespaces: BTreeSet<_> = telemetries.iter().map(NamespacedName::namespace).collect();
        if namespaces.iter().any(|namespace| self.is_own(namespace)) {
            namespaces = self.index.workloads_in.keys().map(AsRef::as_ref).collect();
        }
        let workloads = namespaces.into_iter().filter_map(|name| self.index.workloads_in.get(name)).flatten();
        let differs = |id: &&WorkloadId| {
            let workload = self.workloads.get(*id);
            let class = self.class(id);
            workload.zip(class).is_some_and(|(one, class)| self.telemetry_of(one) != class.telemetry.as_ref())
        };
        workloads.filter(differs).cloned().collect()
    }

    /// The identities of sidecars that log by one of these Telemetries.
    pub(super) fn accounts_logging_by(
        &self,
        telemetries: &BTreeSet<NamespacedName>,
    ) -> BTreeSet<ServiceAccountId> {
        let classes = telemetries.iter().filter_map(|id| self.index.logging.get(id)).flatten();
        classes.map(|class| class.account.clone()).collect()
    }

    /// What the sidecars of a class log. Which requests, its namespace decides, and then the mesh; where
    /// neither does, all, if a Telemetry asks for a log, and failures otherwise.
    pub(super) fn access_log(&self, class: &ProxyClass) -> AccessLog {
        let namespace = self.namespaces.get(class.account.namespace());
        let decided = namespace.and_then(|namespace| namespace.access_log).or(self.mesh_config().access_log);
        let telemetry = class.telemetry.as_ref().and_then(|id| self.telemetry(id));
        let undecided = if telemetry.is_some() { Logged::All } else { Logged::Failures };
        let logged = decided.unwrap_or(undecided);
        let Some(telemetry) = telemetry.filter(|_| logged != Logged::Off) else {
            return AccessLog { logged, ..AccessLog::default() };
        };
        let by = || ObjectRef::Namespaced(Kind::Telemetry, telemetry.id.clone());
        let format = telemetry.format.clone().map(|what| Declared { what, by: by() });
        let collector = telemetry.collector.as_ref().and_then(|collector| {
            let attributes = Declared { what: collector.attributes.clone(), by: by() };
            Some(LogCollector { server: self.collector(telemetry)?, attributes })
        });
        AccessLog { logged, format, collector }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Object;
    use crate::catalog::fixtures::{account, class, machine, name, namespace, pod, telemetry};
    use smc_api::osm::MeshConfig;
    use smc_model::log_format::LogFormat;
    use smc_model::topology::Namespace;

    fn shop() -> Catalog {
        Catalog::of([
            namespace("shop"),
            namespace("away"),
            Object::from(pod("shop/web", "shop/one", "web", "10.0.0.1")),
            Object::from(pod("shop/api", "shop/one", "api", "10.0.0.2")),
            Object::from(pod("away/web", "away/one", "web", "10.0.0.3")),
        ])
    }

    /// The Telemetries that hold for the sidecars of `shop/web`, `shop/api` and `away/web`.
    fn holding(catalog: &Catalog) -> [Option<String>; 3] {
        ["shop/web", "shop/api", "away/web"].map(|pod| {
            let telemetry = catalog.class(&name(pod).into()).unwrap().telemetry.as_ref();
            telemetry.map(ToString::to_string)
        })
    }

    /// What is wrong with Telemetries.
    fn problems(catalog: &Catalog) -> Vec<String> {
        let all = catalog.problems().into_iter().map(|problem| problem.to_string());
        all.filter(|text| text.contains("Telemetry")).collect()
    }

    #[test]
    fn labels_come_before_the_namespace_and_names_decide_the_rest() {
        let mut catalog = shop();
        let mut after = |object: Object| {
            catalog.declare(object);
            holding(&catalog)
        };
        let some = |names: [&str; 3]| names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        assert_eq!(after(telemetry("shop/m", None, None)), some(["shop/m", "shop/m", ""]));
        assert_eq!(after(telemetry("shop/z", Some("web"), None)), some(["shop/z", "shop/m", ""]));
        assert_eq!(after(telemetry("shop/y", Some("web"), None)), some(["shop/y", "shop/m", ""]));
        assert_eq!(after(telemetry("shop/a", Some("none"), None)), some(["shop/y", "shop/m", ""]));
        assert_eq!(after(telemetry("shop/l", None, None)), some(["shop/y", "shop/l", ""]));
        assert_eq!(
            after(Object::from(pod("shop/api", "shop/one", "web", "10.0.0.2"))),
            some(["shop/y", "shop/y", ""])
        );
        catalog.withdraw(Kind::Telemetry, "shop/y");
        assert_eq!(holding(&catalog), some(["shop/z", "shop/z", ""]));
    }

    #[test]
    fn one_of_the_control_planes_namespace_holds_where_no_other_does() {
        let mut catalog = shop();
        let some = |names: [&str; 3]| names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        catalog.declare(telemetry("smc-system/all", None, Some("%PROTOCOL%")));
        assert_eq!(holding(&catalog), some(["smc-system/all"; 3]));
        catalog.declare(telemetry("smc-system/web", Some("web"), None));
        assert_eq!(holding(&catalog), some(["smc-system/web", "smc-system/all", "smc-system/web"]));
        catalog.declare(telemetry("shop/web", Some("web"), None));
        assert_eq!(holding(&catalog), some(["shop/web", "smc-system/all", "smc-system/web"]));
        assert_eq!(problems(&catalog), Vec::<String>::new());

        let affected = catalog.declare(telemetry("smc-system/all", None, Some("%DURATION%")));
        assert_eq!(affected.accounts, [account("shop/one")].into());
        let affected = catalog.declare(telemetry("smc-system/web", Some("web"), Some("%DURATION%")));
        assert_eq!(affected.accounts, [account("away/one")].into());

        catalog.declare(telemetry("shop/all", None, None));
        assert_eq!(holding(&catalog), some(["shop/web", "shop/all", "smc-system/web"]));
        let [problem] = problems(&catalog).try_into().unwrap();
        assert!(problem.contains("smc-system/all") && problem.contains("holds for no sidecar"), "{problem}");
        catalog.withdraw(Kind::Telemetry, "shop/all");
        catalog.withdraw(Kind::Telemetry, "smc-system/web");
        assert_eq!(holding(&catalog), some(["shop/web", "smc-system/all", "smc-system/all"]));
        assert_eq!(problems(&catalog), Vec::<String>::new());
    }

    /// Machines have no labels.
    #[test]
    fn a_machine_logs_by_what_means_the_whole_namespace() {
        let mut catalog = shop().and([Object::from(machine("shop/m", "shop/one", &["web"], "10.0.0.9"))]);
        catalog.declare(telemetry("shop/web", Some("web"), None));
        let id = WorkloadId::machine(name("shop/m"));
        assert_eq!(catalog.class(&id).unwrap().telemetry, None);
        catalog.declare(telemetry("shop/all", None, None));
        assert_eq!(catalog.class(&id).unwrap().telemetry, Some(name("shop/all")));
    }

    #[test]
    fn a_new_format_concerns_those_that_log_by_it() {
        let mut catalog = shop();
        catalog.declare(telemetry("shop/web", Some("web"), Some("%PROTOCOL%")));
        let affected = catalog.declare(telemetry("shop/web", Some("web"), Some("%DURATION%")));
        assert_eq!(affected.accounts, [account("shop/one")].into());
        assert!(affected.proxies.is_empty() && !affected.everything);
        let affected = catalog.declare(telemetry("shop/none", Some("none"), Some("%DURATION%")));
        assert!(affected.is_empty(), "{affected:?}");
        let web = catalog.class(&name("shop/web").into()).unwrap();
        let format = catalog.access_log(web).format.unwrap();
        assert_eq!(format.what, LogFormat::parse("%DURATION%").unwrap());
        assert_eq!(format.by.to_string(), "Telemetry shop/web");
    }

    #[test]
    fn the_namespace_the_mesh_and_then_a_telemetry_decide_what_is_logged() {
        let mut catalog = shop();
        catalog.declare(telemetry("shop/web", Some("web"), None));
        let logged = |catalog: &Catalog| {
            ["shop/web", "shop/api", "away/web"].map(|pod| {
                let class = catalog.class(&name(pod).into()).unwrap();
                catalog.access_log(class).logged
            })
        };
        assert_eq!(logged(&catalog), [Logged::All, Logged::Failures, Logged::Failures]);
        let config = MeshConfig { access_log: Some(Logged::Failures), ..MeshConfig::default() };
        let affected = catalog.declare(Object::MeshConfig(name("smc-system/osm-mesh-config"), config));
        assert!(affected.everything);
        assert_eq!(logged(&catalog), [Logged::Failures; 3]);
        let Object::Namespace(shop) = namespace("shop") else { unreachable!("a namespace") };
        let affected =
            catalog.declare(Object::Namespace(Namespace { access_log: Some(Logged::Off), ..shop }));
        assert_eq!(affected.accounts, [account("shop/one")].into());
        assert_eq!(logged(&catalog), [Logged::Off, Logged::Off, Logged::Failures]);
        assert_eq!(catalog.access_log(&class("shop/other")).format, None);
    }

    #[test]
    fn a_telemetry_that_holds_for_no_sidecar_says_so() {
        let mut catalog = shop();
        catalog.declare(telemetry("shop/all", None, None));
        catalog.declare(telemetry("shop/web", Some("web"), None));
        assert_eq!(problems(&catalog), Vec::<String>::new());
        catalog.declare(telemetry("shop/web-2", Some("web"), None));
        catalog.declare(telemetry("shop/none", Some("none"), None));
        let found = problems(&catalog);
        assert_eq!(found.len(), 2, "{found:?}");
        for (name, words) in [("shop/none", "holds for no sidecar"), ("shop/web-2", "means the same pods")] {
            assert!(found.iter().any(|text| text.contains(name) && text.contains(words)), "{found:?}");
        }
        catalog.declare(Object::from(pod("shop/none", "shop/one", "none", "10.0.0.4")));
        assert_eq!(problems(&catalog).len(), 1);
        catalog.recheck();
        catalog.withdraw(Kind::Telemetry, "shop/web-2");
        assert_eq!(problems(&catalog), Vec::<String>::new());
    }

    #[test]
    fn beyond_as_many_as_are_heeded_none_has_an_effect() {
        let mut catalog = shop();
        for number in 0..MAX_HEEDED {
            catalog.declare(telemetry(&format!("shop/a{number:03}"), Some("none"), None));
        }
        catalog.declare(telemetry("shop/b", Some("web"), None));
        assert_eq!(holding(&catalog), [None, None, None]);
        let found = problems(&catalog);
        assert!(found.iter().any(|text| text.contains("shop/b") && text.contains("the first 64")));
        catalog.withdraw(Kind::Telemetry, "shop/a000");
        assert_eq!(holding(&catalog)[0].as_deref(), Some("shop/b"));
    }
}
