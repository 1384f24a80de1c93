//! What a caller does for a service that fails, what it may ask of one at a time, and how much a service lets
//! in over time.
//!
//! Owns which Retry holds for a caller and a service, and which UpstreamTrafficSetting for a service: of
//! several, the first by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Catalog;
use super::index::set;
use super::problems::check::Check;
use super::problems::found::Around;
use smc_api::osm::upstream_traffic_setting::UpstreamHost;
use smc_api::osm::{Retry, UpstreamTrafficSetting};
use smc_model::connection_settings::ConnectionSettings;
use smc_model::declared::Declared;
use smc_model::outbound_intent::{CallableServices, ServiceRetries};
use smc_model::rate_limit::LocalRateLimits;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};

impl Catalog {
    /// When calls of `source` to these services are sent again.
    pub(super) fn retries(&self, source: &ServiceAccountId, services: &CallableServices) -> ServiceRetries {
        if self.mesh_config().ignores_retries || !self.index.retries_of.contains_key(source) {
            return ServiceRetries::new();
        }
        // Objects may name any number of services; those that it may call are bounded by what exists.
        let retries = services.keys().filter_map(|service| {
            let retry = self.retries.get(self.retry_for(source, service)?)?;
            let by = ObjectRef::Namespaced(Kind::Retry, retry.id.clone());
            Some((service.clone(), Declared { what: retry.policy.clone(), by }))
        });
        retries.collect()
    }

    /// The Retry that holds for calls of an account to a service.
    pub(super) fn retry_for(
        &self,
        source: &ServiceAccountId,
        service: &ServiceId,
    ) -> Option<&NamespacedName> {
        self.index.retries_of.get(source)?.get(service)?.first()
    }

    /// What a service can bear of each caller, and the object that says so: `GetBackpressurePolicy` of the
    /// first design.
    pub fn backpressure(&self, service: &ServiceId) -> Option<Declared<ConnectionSettings>> {
        let setting = self.setting_of(service)?;
        let by = ObjectRef::Namespaced(Kind::UpstreamTrafficSetting, setting.id.clone());
        let says_something = setting.connections != ConnectionSettings::default();
        says_something.then_some(Declared { what: setting.connections, by })
    }

    /// How much each sidecar of a service lets in over time, and the object that says so.
    pub fn rate_limits(&self, service: &ServiceId) -> Option<Declared<Arc<LocalRateLimits>>> {
        let setting = self.setting_of(service)?;
        let by = ObjectRef::Namespaced(Kind::UpstreamTrafficSetting, setting.id.clone());
        let limits = Arc::clone(&setting.rate_limits);
        (!limits.is_empty()).then_some(Declared { what: limits, by })
    }

    /// The UpstreamTrafficSetting that holds for a service.
    pub(super) fn setting_of(&self, service: &ServiceId) -> Option<&UpstreamTrafficSetting> {
        let names = self.index.settings_of.get(service)?;
        self.upstream_settings.get(names.first()?).map(Arc::as_ref)
    }

    /// The service that an UpstreamTrafficSetting is about. `None` for a host that is none, and for a full
    /// name in a domain that is not the mesh's.
    pub(super) fn service_of_setting<'a>(
        &self,
        setting: &'a UpstreamTrafficSetting,
    ) -> Option<&'a ServiceId> {
        let UpstreamHost::Service { id, domain } = &setting.host else { return None };
        domain.as_ref().is_none_or(|domain| self.is_own_domain(domain)).then_some(id)
    }

    pub(super) fn set_retry(&mut self, id: &NamespacedName, new: Option<Arc<Retry>>) {
        if self.retries.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::Retry(id.clone()));
        let old = self.retries.remove(id);
        for (retry, present) in [(&old, false), (&new, true)] {
            let Some(retry) = retry else { continue };
            self.pending.affected.accounts.insert(retry.source.clone());
            let mut precedes = false;
            for service in &retry.destinations {
                self.index.file_retry(retry, service, present);
                let of_pair = self.index.retries_of.get(&retry.source).and_then(|of| of.get(service));
                let (first, last) = of_pair.map_or((None, None), |names| (names.first(), names.last()));
                precedes |= first.is_some_and(|first| first >= id) && last.is_some_and(|last| last > id);
            }
            // Those after it say which one holds.
            if precedes {
                self.found.due_around(Around::RetriesOf(retry.source.clone()));
            }
        }
        if let Some(new) = new {
            self.retries.insert(id.clone(), new);
        }
    }

    pub(super) fn set_upstream_setting(
        &mut self,
        id: &NamespacedName,
        new: Option<Arc<UpstreamTrafficSetting>>,
    ) {
        let old = self.upstream_settings.get(id);
        if old == new.as_ref() {
            return;
        }
        self.found.due(Check::UpstreamTrafficSetting(id.clone()));
        let service = |setting: Option<&Arc<UpstreamTrafficSetting>>| {
            setting.and_then(|setting| self.service_of_setting(setting)).cloned()
        };
        let (before, after) = (service(old), service(new.as_ref()));
        let services: BTreeSet<_> = before.iter().chain(&after).cloned().collect();
        let said = |catalog: &Self, service| (catalog.backpressure(service), catalog.rate_limits(service));
        let was: Vec<_> = services.iter().map(|service| said(self, service)).collect();
        for (service, present) in [(before, false), (after, true)] {
            if let Some(service) = service {
                set(&mut self.index.settings_of, service, id.clone(), present);
            }
        }
        match new {
            Some(new) => self.upstream_settings.insert(id.clone(), new),
            None => self.upstream_settings.remove(id),
        };
        for (service, (backpressure, rate_limits)) in services.into_iter().zip(was) {
            self.found.due_around(Around::SettingsOf(service.clone()));
            if self.rate_limits(&service) != rate_limits {
                let limited = self.accounts_behind(&service);
                self.pending.affected.inbound.extend(limited);
            }
            // In permissive mode all accounts mention it: only where it says something else than before.
            if self.backpressure(&service) != backpressure {
                self.rewire([service]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
