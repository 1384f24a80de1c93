//! What a replica that is alone forgets of its ledger.

use std::time::Duration;

use smc_authority::ledger::Rules;
use smc_issuing::Issuer;
use smc_types::ids::ServiceAccountId;
use smc_types::time::Timestamp;

use super::*;
use crate::lone_ca::LoneCa;

const START: Timestamp = Timestamp(1_800_000_000);

/// More than one command forgets.
const GONE: usize = MAX_FORGOTTEN_TOGETHER + 10;

struct Alone {
    lone: LoneCa,
    forgetter: IdentityForgetter,
    unused: UnusedIdentities,
    wanted: watch::Sender<WantedCertificates>,
    served: watch::Sender<Option<Arc<ServedState>>>,
}

fn account(namespace: &str, n: usize) -> ServiceAccountId {
    ServiceAccountId::new(namespace, &format!("account-{n}")).unwrap()
}

impl Alone {
    /// A replica whose ledger has certificates of two namespaces: one account, and [`GONE`].
    async fn start() -> Self {
        let lone = LoneCa::start(START).await;
        let LoneCa { ca, group, env, .. } = &lone;
        ca.issue_service(&account("shop", 0), None).await.unwrap();
        for n in 0..GONE {
            ca.issue_service(&account("gone", n), None).await.unwrap();
        }
        let (wanted, wanted_receiver) = watch::channel(WantedCertificates {
            accounts: (0..GONE).map(|n| account("gone", n)).chain([account("shop", 0)]).collect(),
            lifetime: None,
        });
        let (served, served_receiver) = watch::channel(Some(Arc::default()));
        let forgetter = IdentityForgetter {
            ca: Arc::clone(ca),
            group: Arc::clone(group),
            wanted: wanted_receiver,
            served: served_receiver,
            env: env.clone(),
        };
        Self { lone, forgetter, unused: UnusedIdentities::default(), wanted, served }
    }

    /// The task, for so many minutes.
    async fn minutes(&mut self, minutes: usize) {
        for _ in 0..minutes {
            let due = self.forgetter.check(&mut self.unused);
            self.forgetter.forget(due).await;
            self.lone.clock.advance(Duration::from_mins(1));
        }
    }

    /// The numbers of certificates and of sealed keys.
    fn on_record(&self) -> (usize, usize) {
        let ledger = self.forgetter.group.local();
        ledger.read(|ledger| (ledger.service_certificates().count(), ledger.keys().count()))
    }
}

#[tokio::test]
async fn what_a_namespace_leaves_behind_is_forgotten_after_an_hour() {
    let mut alone = Alone::start().await;
    let (all, keys) = alone.on_record();
    assert_eq!(all, GONE + 1);
    alone.lone.use_rules(Rules::Second).await;
    alone.minutes(90).await;
    alone.wanted.send_modify(|wanted| wanted.accounts = [account("shop", 0)].into());
    alone.minutes(90).await;
    assert_eq!(alone.on_record(), (all, keys), "a member of the group does not know how");

    alone.lone.use_rules(Rules::Third).await;
    alone.served.send_replace(None);
    alone.minutes(1).await;
    assert_eq!(alone.on_record(), (all, keys), "the sources have not synced");
    alone.served.send_replace(Some(Arc::default()));
    alone.minutes(1).await;
    assert_eq!(alone.on_record(), (1, keys - GONE));
    let ca = &alone.forgetter.ca;
    assert_eq!(ca.service(&account("gone", 0)).unwrap(), None);
    assert!(ca.service(&account("shop", 0)).unwrap().is_some());
    // One that comes back has another key.
    ca.issue_service(&account("gone", 0), None).await.unwrap();
    assert_eq!(alone.on_record().0, 2);
    alone.forgetter.group.stop().await;
}

#[tokio::test]
async fn a_mesh_without_a_workload_forgets_nothing() {
    let mut alone = Alone::start().await;
    alone.lone.use_rules(Rules::LATEST).await;
    alone.wanted.send_replace(WantedCertificates::default());
    alone.minutes(200).await;
    assert_eq!(alone.on_record().0, GONE + 1);
    alone.forgetter.group.stop().await;
}
