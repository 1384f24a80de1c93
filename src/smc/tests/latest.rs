//! Of a pod's bootstraps the latest that was used counts; and what a release leaves of a sidecar.

use std::collections::BTreeMap;

use smc_proto::admin::v1 as pb;
use smc_testkit::ads::ack;
use smc_xds::resource::ResourceType;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::client::Client;
use super::replica::{PATIENCE, Replica};
use super::{BUYER, STORE};

async fn ca_status(replica: &Replica) -> pb::GetCaStatusResponse {
    replica.admin().await.get_ca_status(pb::GetCaStatusRequest {}).await.unwrap().into_inner()
}

/// A replica whose group has agreed on a time.
async fn agreed() -> Replica {
    let replica = Replica::start().await;
    let agreeing = async {
        while ca_status(&replica).await.agreed_time == 0 {
            sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, agreeing).await.expect("an agreed time");
    replica
}

#[tokio::test]
async fn a_later_bootstrap_takes_the_place_of_an_earlier_one() {
    let replica = agreed().await;
    let (first, second) = (replica.bootstrap(BUYER).await, replica.bootstrap(BUYER).await);
    let (mut before, _) = Client::served(&replica, &first, ResourceType::Cluster).await;
    let (mut after, response) = Client::served(&replica, &second, ResourceType::Cluster).await;
    after.send(ack(&response)).await;
    assert_eq!(before.ended().await, Code::PermissionDenied);
    assert_eq!(Client::refused(&replica, &first).await, Code::PermissionDenied);
    replica.declare_another_service();
    assert!(!after.receive().await.resources.is_empty(), "the later one goes on");
    replica.stop().await;
}

#[tokio::test]
async fn a_stolen_earlier_bootstrap_cuts_off_no_sidecar() {
    let replica = agreed().await;
    let (stolen, current) = (replica.bootstrap(BUYER).await, replica.bootstrap(BUYER).await);
    let (mut client, response) = Client::served(&replica, &current, ResourceType::Cluster).await;
    client.send(ack(&response)).await;
    assert_eq!(Client::refused(&replica, &stolen).await, Code::PermissionDenied);
    replica.declare_another_service();
    assert!(!client.receive().await.resources.is_empty());
    replica.stop().await;
}

/// The serial numbers of the service certificates, by service account.
async fn services(replica: &Replica) -> BTreeMap<String, String> {
    let certificates = ca_status(replica).await.service_certificates;
    certificates.into_iter().map(|issued| (issued.service_account, issued.serial)).collect()
}

#[tokio::test]
async fn a_release_replaces_the_key_of_the_service_account_if_it_may() {
    let replica = agreed().await;
    for (keep_keys, pod, changed) in [(true, BUYER, false), (false, STORE, true)] {
        let credentials = replica.bootstrap(pod).await;
        let (_client, _) = Client::served(&replica, &credentials, ResourceType::Cluster).await;
        let before = services(&replica).await;
        let request = pb::ReleaseProxyRequest { proxy: pod.to_owned(), keep_keys };
        let answer = replica.admin().await.release_proxy(request).await.unwrap().into_inner();
        let replaced: Vec<_> = answer.replaced.iter().map(|key| key.service_account.as_str()).collect();
        assert_eq!(replaced, if changed { vec![pod] } else { vec![] });
        let after = services(&replica).await;
        for (account, serial) in &before {
            assert_eq!(after[account] != *serial, changed && account == pod, "{account}");
        }
        assert!(answer.replaced.iter().all(|key| key.earlier_until > 0));
    }
    replica.stop().await;
}

#[tokio::test]
async fn a_root_that_waits_is_given_up_or_hastened() {
    let replica = agreed().await;
    let rotate = async |root, cancel, hasten| {
        replica.admin().await.rotate_ca(pb::RotateCaRequest { root, cancel, hasten }).await
    };
    for (cancel, hasten) in [(true, false), (false, true)] {
        let refused = rotate(false, cancel, hasten).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    }
    rotate(true, false, false).await.unwrap();
    assert!(ca_status(&replica).await.root_rotation.is_some());
    rotate(false, true, false).await.unwrap();
    assert_eq!(ca_status(&replica).await.root_rotation, None);

    let serial = rotate(true, false, false).await.unwrap().into_inner().serial;
    rotate(false, false, true).await.unwrap();
    let signing = async {
        while !ca_status(&replica).await.root_rotation.is_some_and(|rotation| rotation.signing) {
            sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, signing).await.expect("the new root signs");
    assert_eq!(ca_status(&replica).await.root_rotation.unwrap().root, serial);
    replica.stop().await;
}
