//! What one identity has and another, which may call the same services, has not, as a Retry does: in random
//! meshes, each is served the half of its own intent.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::super::*;
use crate::catalog::Object;
use crate::catalog::fixtures::retry;
use crate::catalog::properties::{ACCOUNTS, SERVICES, events, furnished, remaining};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use smc_model::egress::EgressHost;
use smc_types::ids::TrustDomain;
use smc_types::object_ref::ObjectRef;
use smc_xds::names;
use smc_xds::resource::Version;

type Content = BTreeMap<(ResourceType, Arc<str>), Version>;

fn content(snapshot: &Snapshot) -> Content {
    snapshot.resources().map(|one| ((one.kind, Arc::clone(&one.name)), one.version)).collect()
}

fn certified() -> impl Iterator<Item = Input> {
    let certificate = ServiceCertificate { chain_pem: "chain".to_owned(), key_pem: "key".to_owned().into() };
    ACCOUNTS.iter().map(move |account| Input::Certificate(account.parse().unwrap(), certificate.clone()))
}

impl Compiler {
    /// What the class is owed as its outbound half, made for it alone.
    fn owed(&self, class: &ProxyClass) -> Content {
        let intent = OutboundIntents::default().of(&self.catalog, class);
        let (topology, bundle) = (self.catalog.topology(), self.bundle.as_ref().unwrap());
        let families = Families::new(class.ipv4, class.ipv6);
        let mut interner = Interner::default();
        let part = outbound::translate(&intent, topology, &self.settings, bundle, families, &mut interner);
        content(&part.snapshot)
    }

    /// Checks that each class is served its own half, that requests are sent again where one of these objects
    /// says so, and nowhere else, and that hosts outside of the mesh are reached by those whom one lets.
    fn check(&self, objects: &BTreeMap<ObjectRef, Object>) {
        for (class, state) in &self.classes {
            assert_eq!(state.outbound.is_some(), self.certificates.contains_key(&class.account));
            let Some(half) = &state.outbound else { continue };
            assert_eq!(content(&half.snapshot), self.owed(class), "{}", class.account);
            for name in half.snapshot.clusters.keys() {
                let Some(host) = name.strip_prefix("egress|").and_then(|rest| rest.split('|').next()) else {
                    continue;
                };
                let names = |named: &EgressHost| matches!(named, EgressHost::Named(named) if named == host);
                let lets_out = |object: &Object| {
                    let Object::Egress(egress) = object else { return false };
                    let hosts = egress.hosts.as_ref();
                    egress.sources.contains(&class.account)
                        && (egress.networks.is_some() && host == "dialled"
                            || egress.networks.is_none()
                                && hosts.is_some_and(|hosts| hosts.iter().any(names)))
                };
                assert!(objects.values().any(lets_out), "{} reaches {name}", class.account);
            }
            for (name, route) in &half.snapshot.routes {
                let any = Any::decode(&*route.any()).unwrap();
                let route = RouteConfiguration::decode(&*any.value).unwrap();
                let policy = route.virtual_hosts[0].retry_policy.as_ref();
                if !policy.is_some_and(|policy| policy.retry_on.contains("5xx")) {
                    continue;
                }
                let declares = |object: &Object| {
                    let Object::Retry(retry) = object else { return false };
                    let mut services = retry.destinations.iter();
                    retry.source == class.account
                        && services.any(|id| {
                            **name == *names::outbound_route(id, 80)
                                || **name == *names::outbound_route(id, 81)
                        })
                };
                assert!(objects.values().any(declares), "{} sends again what {name} leads to", class.account);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_one_identity_has_alone_reaches_no_other(
        before in events(40),
        after in events(10),
        sources in subsequence(&ACCOUNTS[..], 0..=ACCOUNTS.len()),
    ) {
        let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
        let retries = sources.into_iter().map(|source| retry(&format!("{source}-again"), source, &SERVICES, 3));
        let furnished = furnished().into_iter().chain(retries).map(SourceEvent::Upsert);
        let mut events: Vec<_> = furnished.chain(before).collect();
        let inputs = events.iter().cloned().map(Input::Source);
        let bundle = Input::Bundle(TrustBundle { pem: "roots".to_owned() });
        compiler.apply(inputs.chain([bundle]).chain(certified()));
        compiler.check(&remaining(&events));
        for event in after {
            events.push(event.clone());
            compiler.apply([Input::Source(event)]);
            compiler.check(&remaining(&events));
        }
    }
}
