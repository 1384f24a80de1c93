//! The sidecars that were made for pods which have not appeared yet.
//!
//! Owns their bounds. A peer at the webhooks' port can claim that a pod is about to be made; each claim costs
//! a certificate and a Secret. The number of those without a pod is what bounds a liar, since the API
//! server's claims come true within moments. It also tells a pod that is admitted once more (reinvocation)
//! from a copy of a running one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_authority::rules::TIME_TO_APPEAR;
use smc_host::sync::lock;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;
use smc_xds::served_state::ServedState;
use thiserror::Error;

/// The most in one namespace: a Deployment that is scaled to thousands of pods at once has as many on the
/// way.
const MAX_PER_NAMESPACE: usize = 5_000;

/// The most in all namespaces: 300 bytes each here, and some 8 KiB each in the API server's storage. Beyond,
/// a namespace with fewer than another takes the place of the oldest there, and the namespace with the most
/// is refused. So N namespaces have at most ln(N) times as many Secrets, until all have equally many.
const MAX_TOTAL: usize = 20_000;

/// The least time between two looks for the pods that have appeared since. A look passes over all entries,
/// which takes milliseconds.
const PAUSE: Duration = Duration::from_secs(1);

/// No sidecar is made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{count} pods of this namespace that were admitted have not appeared, the most that it may have now")]
pub(crate) struct TooMany {
    count: usize,
}

/// The sidecars on their way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    proxies: BTreeMap<ProxyName, Entry>,
    /// The proxies of each namespace in the order in which they came.
    by_namespace: BTreeMap<Arc<str>, BTreeMap<u64, ProxyName>>,
    /// The namespaces by how many each has; the last has the most.
    crowds: BTreeSet<(usize, Reverse<Arc<str>>)>,
    latest: u64,
    swept: Option<Timestamp>,
}

#[derive(Debug)]
struct Entry {
    account: ServiceAccountId,
    since: Timestamp,
    number: u64,
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
        let here = state.count(&proxy.namespace);
        if here >= MAX_PER_NAMESPACE || state.proxies.len() >= MAX_TOTAL {
            state.sweep(now, served);
        }
        let here = state.count(&proxy.namespace);
        if here >= MAX_PER_NAMESPACE {
            return Err(TooMany { count: here });
        }
        if state.proxies.len() >= MAX_TOTAL {
            let most = state.crowds.last().map_or(0, |(count, _)| *count);
            // With one more it has no more than the other with one less: nothing goes to and fro.
            if here + 1 >= most {
                return Err(TooMany { count: here });
            }
            state.forget_oldest_of_the_largest();
        }
        state.insert(proxy.clone(), account.clone(), now);
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
        lock(&self.0).remove(proxy);
    }
}

impl State {
    fn count(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, BTreeMap::len)
    }

    fn insert(&mut self, proxy: ProxyName, account: ServiceAccountId, since: Timestamp) {
        self.remove(&proxy);
        self.latest += 1;
        let number = self.latest;
        self.change(&proxy.namespace, |own| {
            own.insert(number, proxy.clone());
        });
        self.proxies.insert(proxy, Entry { account, since, number });
    }

    fn remove(&mut self, proxy: &ProxyName) {
        let Some(entry) = self.proxies.remove(proxy) else { return };
        self.change(&proxy.namespace, |own| {
            own.remove(&entry.number);
        });
    }

    fn forget_oldest_of_the_largest(&mut self) {
        let largest = self.crowds.last().and_then(|(_, Reverse(name))| self.by_namespace.get(name));
        let oldest = largest.and_then(|own| own.first_key_value()).map(|(_, proxy)| proxy.clone());
        if let Some(oldest) = oldest {
            self.remove(&oldest);
        }
    }

    /// Forgets those whose pods appeared, or took too long; not more often than each [`PAUSE`].
    fn sweep(&mut self, now: Timestamp, served: Option<&ServedState>) {
        if self.swept.is_some_and(|swept| now.since(swept) < PAUSE) {
            return;
        }
        self.swept = Some(now);
        let gone = self.proxies.iter().filter(|(proxy, entry)| {
            now.since(entry.since) >= TIME_TO_APPEAR
                || served.is_some_and(|served| served.proxies.contains_key(*proxy))
        });
        for proxy in gone.map(|(proxy, _)| proxy.clone()).collect::<Vec<_>>() {
            self.remove(&proxy);
        }
    }

    /// Changes the proxies of a namespace, with what is counted of them.
    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut BTreeMap<u64, ProxyName>)) {
        let own = self.by_namespace.entry(Arc::clone(namespace)).or_default();
        self.crowds.remove(&(own.len(), Reverse(Arc::clone(namespace))));
        change(own);
        if own.is_empty() {
            self.by_namespace.remove(namespace);
        } else {
            self.crowds.insert((own.len(), Reverse(Arc::clone(namespace))));
        }
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
    fn at_the_total_the_namespace_with_the_most_is_refused_and_no_other() {
        let pending = Pending::default();
        let enter = |number: usize, namespace: &str| {
            pending.enter(&proxy(number as u128 + 1, namespace), &account(namespace), Timestamp(0), None)
        };
        let flooded = ["a", "b", "c", "d"];
        for number in 0..2 * MAX_PER_NAMESPACE {
            for namespace in flooded {
                assert_eq!(enter(number, namespace).is_ok(), number < MAX_PER_NAMESPACE, "{namespace}");
            }
        }
        for number in 0..1_000 {
            assert_eq!(enter(number, "fifth"), Ok(()));
        }
        let count = |namespace: &str| lock(&pending.0).count(namespace);
        assert_eq!(flooded.map(count), [MAX_PER_NAMESPACE - 250; 4]);
        for namespace in flooded {
            assert!(enter(2 * MAX_PER_NAMESPACE, namespace).is_err(), "{namespace} has the most");
        }
        // The oldest are forgotten, and asked about once more they are new.
        let expected = |number| pending.expects(&proxy(number, "a"), &account("a"), Timestamp(1), None);
        assert_eq!((expected(1), expected(MAX_PER_NAMESPACE as u128)), (false, true));
        // However many namespaces join in, it ends with all of them having the same.
        let mut entered = 0;
        for number in 0..MAX_PER_NAMESPACE {
            for namespace in 0..40 {
                entered += usize::from(enter(number, &format!("n{namespace}")).is_ok());
            }
        }
        assert!(entered < 2 * MAX_TOTAL, "{entered}");
        let state = lock(&pending.0);
        assert_eq!(state.proxies.len(), MAX_TOTAL);
        assert!(state.by_namespace.values().all(|own| own.len() <= MAX_TOTAL / 45 + 1));
        assert_eq!(state.crowds.len(), 45);
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
