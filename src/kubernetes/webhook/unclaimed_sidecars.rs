//! The sidecars that were made for pods which have not appeared yet.
//!
//! Owns their bounds. A peer at the webhooks' port can claim that a pod is about to be made; each claim costs
//! a certificate and a Secret. The number of those without a pod is what bounds a liar, since the API
//! server's claims come true within moments. It also tells a pod that is admitted once more (reinvocation)
//! from a copy of a running one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::sync::lock;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;
use smc_xds::served_state::ServedState;
use thiserror::Error;

/// How long a pod may take to appear. The API server stores it within its own limit of half a minute for a
/// request; the rest is for the news of it. Afterwards the Secret is collected.
pub(crate) const TIME_TO_APPEAR: Duration = Duration::from_mins(5);

/// The most in one namespace: a Deployment that is scaled to thousands of pods at once has as many on the
/// way.
const MAX_PER_NAMESPACE: usize = 5_000;

/// The most in all namespaces: 300 bytes each here, and some 8 KiB each in the API server's storage.
const MAX_TOTAL: usize = 20_000;

/// No sidecar is made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{count} pods that were admitted have not appeared, the most that {scope} may have")]
pub(crate) struct TooMany {
    count: usize,
    scope: &'static str,
}

/// The sidecars on their way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    proxies: BTreeMap<ProxyName, Entry>,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Entry {
    account: ServiceAccountId,
    since: Timestamp,
}

impl Pending {
    /// Enters a sidecar, unless there are too many. Forgets those whose pods appeared in `served`, or took
    /// too long, before it refuses.
    pub(crate) fn enter(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
        now: Timestamp,
        served: Option<&ServedState>,
    ) -> Result<(), TooMany> {
        let mut state = lock(&self.0);
        if state.full(&proxy.namespace).is_some() {
            state.forget(|proxy, entry| {
                now.since(entry.since) >= TIME_TO_APPEAR
                    || served.is_some_and(|served| served.proxies.contains_key(proxy))
            });
        }
        if let Some(full) = state.full(&proxy.namespace) {
            return Err(full);
        }
        *state.by_namespace.entry(Arc::clone(&proxy.namespace)).or_default() += 1;
        state.proxies.insert(proxy.clone(), Entry { account: account.clone(), since: now });
        Ok(())
    }

    /// Whether a sidecar of this identity is on its way: its Pod is asked about once more. If the pod is in
    /// the mesh already (`served`), the question is about a copy of it.
    pub(crate) fn expects(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
        now: Timestamp,
        served: Option<&ServedState>,
    ) -> bool {
        if served.is_some_and(|served| served.proxies.contains_key(proxy)) {
            return false;
        }
        let state = lock(&self.0);
        let fresh = |entry: &&Entry| now.since(entry.since) < TIME_TO_APPEAR && entry.account == *account;
        state.proxies.get(proxy).as_ref().is_some_and(fresh)
    }

    /// Forgets a sidecar that was not made after all.
    pub(crate) fn withdraw(&self, proxy: &ProxyName) {
        lock(&self.0).forget(|other, _| other == proxy);
    }
}

impl State {
    fn full(&self, namespace: &str) -> Option<TooMany> {
        let here = self.by_namespace.get(namespace).copied().unwrap_or_default();
        if here >= MAX_PER_NAMESPACE {
            return Some(TooMany { count: here, scope: "a namespace" });
        }
        let count = self.proxies.len();
        (count >= MAX_TOTAL).then_some(TooMany { count, scope: "a replica" })
    }

    fn forget(&mut self, gone: impl Fn(&ProxyName, &Entry) -> bool) {
        let by_namespace = &mut self.by_namespace;
        self.proxies.retain(|proxy, entry| {
            let keep = !gone(proxy, entry);
            if !keep && let Some(count) = by_namespace.get_mut(&proxy.namespace) {
                *count -= 1;
            }
            keep
        });
        by_namespace.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use smc_types::ids::ProxyUuid;

    use super::*;

    fn proxy(number: u128, namespace: &str) -> ProxyName {
        let uuid = format!("{number:032x}").parse::<ProxyUuid>().unwrap();
        ProxyName::new(uuid, namespace).unwrap()
    }

    fn account(namespace: &str) -> ServiceAccountId {
        ServiceAccountId::new(namespace, "store").unwrap()
    }

    #[test]
    fn too_many_pods_that_never_came_stop_their_own_namespace_only() {
        let pending = Pending::default();
        let enter = |number: usize, namespace: &str, now: i64| {
            pending.enter(&proxy(number as u128 + 1, namespace), &account(namespace), Timestamp(now), None)
        };
        for number in 0..MAX_PER_NAMESPACE {
            enter(number, "shop", 0).unwrap();
        }
        assert!(enter(MAX_PER_NAMESPACE, "shop", 299).is_err());
        assert_eq!(enter(0, "other", 299), Ok(()));
        assert_eq!(enter(MAX_PER_NAMESPACE, "shop", 300), Ok(()), "the others took too long");
        pending.withdraw(&proxy(1, "other"));
        let state = lock(&pending.0);
        assert_eq!((state.proxies.len(), state.by_namespace.len()), (1, 1));
    }

    #[test]
    fn a_sidecar_is_expected_for_its_own_identity_and_for_a_while() {
        let pending = Pending::default();
        let one = proxy(1, "shop");
        pending.enter(&one, &account("shop"), Timestamp(0), None).unwrap();
        assert!(pending.expects(&one, &account("shop"), Timestamp(10), None));
        assert!(!pending.expects(&one, &account("shop"), Timestamp(300), None));
        assert!(!pending.expects(
            &one,
            &ServiceAccountId::new("shop", "thief").unwrap(),
            Timestamp(10),
            None
        ));
        assert!(!pending.expects(&proxy(2, "shop"), &account("shop"), Timestamp(10), None));
        pending.withdraw(&one);
        assert!(!pending.expects(&one, &account("shop"), Timestamp(10), None));
    }
}
