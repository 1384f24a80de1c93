//! What replicas report of sidecars that are connected to none of them.

use std::time::Duration;

use smc_proto::admin::v1 as pb;
use smc_testkit::ads::Credentials;
use smc_xds::resource::ResourceType;

use super::client::Client;
use super::replica::{Limits, PATIENCE, Replica};

const LIMITS: fn() -> Limits = || Limits { time_to_connect: Duration::from_secs(1), ..Limits::default() };

const EXPECTED: &str = "smc_sidecars{state=\"expected\"} 2";

/// What the replica reports of the sidecars.
async fn problem(replica: &Replica) -> Option<pb::Problem> {
    let listed = replica.admin().await.list_problems(pb::ListProblemsRequest {}).await.unwrap();
    listed.into_inner().problems.into_iter().find(|problem| problem.object == "sidecars")
}

/// Waits until the report contains this text, or until there is none.
async fn reported(replica: &Replica, text: Option<&str>) {
    let reported = async {
        loop {
            let found = problem(replica).await.map(|problem| problem.message);
            if text.map_or(found.is_none(), |text| found.is_some_and(|found| found.contains(text))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, reported).await;
    assert!(waited.is_ok(), "{text:?} is not what is reported: {:?}", problem(replica).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_reports_a_sidecar_that_none_has_until_one_has_it() {
    let replicas = Replica::several_with(3, LIMITS()).await;
    for replica in &replicas {
        replica.declare_with_sidecar("here", "10.0.0.11");
        replica.declare_with_sidecar("away", "10.0.0.12");
    }
    let (here, away) = (replicas[0].bootstrap("shop/here").await, replicas[1].bootstrap("shop/away").await);
    let _here = Client::served(&replicas[1], &here, ResourceType::Cluster).await;
    for replica in &replicas {
        reported(replica, Some("1 of 2 not connected to any controller")).await;
        let found = problem(replica).await.unwrap();
        assert!(found.message.contains(": shop/away; see docs/install.md#not-connected"), "{found:?}");
        assert_eq!(found.severity(), pb::Severity::Warning, "{found:?}");
        replica.counts(&[EXPECTED, "smc_sidecars{state=\"connected\"} 1"]).await;
    }
    let _away = Client::served(&replicas[2], &away, ResourceType::Cluster).await;
    for replica in &replicas {
        reported(replica, None).await;
        replica.counts(&[EXPECTED, "smc_sidecars{state=\"connected\"} 2"]).await;
    }
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test]
async fn a_sidecar_of_another_authority_is_reported_as_refused() {
    let stranger = Replica::start().await;
    stranger.declare_with_sidecar("lost", "127.0.0.1");
    let foreign = stranger.bootstrap("shop/lost").await;
    // Who refuses whom: the sidecar the controller, as after a control plane was founded again, or the
    // controller the sidecar.
    for by_controller in [false, true] {
        let replica = Replica::start_with(LIMITS()).await;
        replica.declare_with_sidecar("lost", "127.0.0.1");
        let own = replica.bootstrap("shop/lost").await;
        let roots = if by_controller { &own.roots } else { &foreign.roots };
        let lost = Credentials { roots: roots.clone(), ..foreign.clone() };
        reported(
            &replica,
            Some("1 of 1 not connected to any controller for a minute or longer: shop/lost; see"),
        )
        .await;
        assert!(Client::try_connect(replica.xds, &lost).await.is_err());
        reported(&replica, Some("controllers refuse 1 of them, such as that of shop/lost")).await;
        assert_eq!(problem(&replica).await.unwrap().severity(), pb::Severity::Error);
        let _own = Client::served(&replica, &own, ResourceType::Cluster).await;
        reported(&replica, None).await;
        replica.stop().await;
    }
    stranger.stop().await;
}
