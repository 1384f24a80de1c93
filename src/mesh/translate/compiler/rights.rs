//! A right that one identity has and another, which may call the same services, has not: in random meshes,
//! each is served the half of its own intent.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::catalog::properties::{ACCOUNTS, events, furnished};
use smc_types::ids::TrustDomain;
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
        let intent = OutboundIntents::default().of(&self.catalog, &class.account);
        let (topology, bundle) = (self.catalog.topology(), self.bundle.as_ref().unwrap());
        let families = Families::new(class.ipv4, class.ipv6);
        let mut interner = Interner::default();
        let part = outbound::translate(&intent, topology, &self.settings, bundle, families, &mut interner);
        content(&part.snapshot)
    }

    /// Checks that each class is served its own half, and the right exactly where its identity has it.
    fn check(&self, rights: &BTreeSet<ServiceAccountId>) {
        for (class, state) in &self.classes {
            assert_eq!(state.outbound.is_some(), self.certificates.contains_key(&class.account));
            let Some(half) = &state.outbound else { continue };
            assert_eq!(content(&half.snapshot), self.owed(class), "{}", class.account);
            let passes = half.snapshot.clusters.contains_key(names::PASSTHROUGH_CLUSTER);
            let may_pass = self.catalog.mesh_config().egress || rights.contains(&class.account);
            assert_eq!(passes, may_pass, "{}", class.account);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_right_of_one_identity_reaches_no_other(
        before in events(40),
        after in events(10),
        rights in subsequence(&ACCOUNTS[..], 0..=ACCOUNTS.len()),
    ) {
        let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
        let rights: BTreeSet<ServiceAccountId> = rights.iter().map(|name| name.parse().unwrap()).collect();
        compiler.catalog.passing_through.clone_from(&rights);
        let furnished = furnished().into_iter().map(SourceEvent::Upsert);
        let inputs = furnished.chain(before).map(Input::Source);
        let bundle = Input::Bundle(TrustBundle { pem: "roots".to_owned() });
        compiler.apply(inputs.chain([bundle]).chain(certified()));
        compiler.check(&rights);
        for event in after {
            compiler.apply([Input::Source(event)]);
            compiler.check(&rights);
        }
    }
}
