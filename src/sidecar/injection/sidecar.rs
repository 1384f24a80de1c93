//! Which proxy a Pod that is created gets, and for which account.
//!
//! Owns the difference between a Pod that is asked about once more, as API servers do after other webhooks,
//! and a copy of one: both carry the label of a proxy, and two pods never share one.

use serde_json::Value;
use smc_model::topology::Namespace;
use smc_types::ids::{InvalidName, ProxyName, ServiceAccountId};

use super::drawn::Drawn;
use super::error::InjectionError;
use super::pod::{Site, drawn_for, inject};
use super::settings::Settings;

/// A Pod with its sidecar.
#[derive(Debug, Clone, PartialEq)]
pub struct Sidecar {
    /// The Pod as it is to be created.
    pub pod: Value,
    /// Its proxy.
    pub proxy: ProxyName,
    /// Its service account, whose identity the proxy has.
    pub account: ServiceAccountId,
    /// Whether the proxy is new. Otherwise it is on its way, and its certificate and Secret are made already.
    pub is_new: bool,
}

/// Gives a Pod of `namespace` its sidecar. That is the one it carries if `expects` knows it, for this
/// account, as on its way; `fresh` otherwise.
///
/// # Errors
///
/// What the Pod says allows no sidecar.
pub fn sidecar(
    pod: &Value,
    namespace: &Namespace,
    settings: &Settings,
    fresh: Drawn,
    expects: impl FnOnce(&ProxyName, &ServiceAccountId) -> bool,
) -> Result<Sidecar, InjectionError> {
    let account = pod["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty());
    let account = ServiceAccountId::new(&namespace.name, account.unwrap_or("default"))?;
    let named = |drawn: Drawn| Ok::<_, InvalidName>((ProxyName::new(drawn.uuid, &namespace.name)?, drawn));
    let carried = drawn_for(pod, fresh).map(named).transpose()?;
    let known = carried.filter(|(proxy, _)| expects(proxy, &account));
    let is_new = known.is_none();
    let (proxy, drawn) = known.map_or_else(|| named(fresh), Ok)?;
    let site = Site { drawn, metrics: namespace.metrics, reinvoked: !is_new };
    Ok(Sidecar { pod: inject(pod, site, settings)?, proxy, account, is_new })
}
