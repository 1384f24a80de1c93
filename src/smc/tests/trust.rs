//! A new root, and the proxies whose trust it waits for.

use std::time::Duration;

use smc_proto::admin::v1 as pb;
use smc_testkit::ads::{ack, nack, subscribe};
use smc_testkit::eventually::{Patience, eventually};
use smc_xds::resource::ResourceType;

use super::client::Client;
use super::replica::{PATIENCE, Replica};
use super::{BUYER, STORE};

/// By which the buyer knows the store, and the store its callers.
const SECRETS: [&str; 2] = ["root-cert-for-mtls-outbound:shop/store", "root-cert-for-mtls-inbound"];

#[tokio::test]
async fn a_root_names_the_proxies_that_it_waits_for() {
    let replica = Replica::start().await;
    let mut clients = Vec::new();
    for pod in [BUYER, STORE] {
        let credentials = replica.bootstrap(pod).await;
        let mut client = Client::connect(&replica, &credentials).await;
        let mut asked = subscribe(&credentials, ResourceType::Secret, &[]);
        asked.resource_names_subscribe = SECRETS.map(str::to_owned).to_vec();
        client.send(asked).await;
        let first = client.receive().await;
        client.send(ack(&first)).await;
        clients.push(client);
    }
    let [buyer, store] = &mut clients[..] else { unreachable!("two clients") };

    replica.admin().await.rotate_ca(pb::RotateCaRequest { root: true, ..Default::default() }).await.unwrap();
    waits_for(&replica, &[BUYER, STORE]).await;

    let told = buyer.receive().await;
    buyer.send(ack(&told)).await;
    waits_for(&replica, &[STORE]).await;

    let told = store.receive().await;
    store.send(nack(&told, "no")).await;
    replica.counts(&["smc_xds_nacks_total{type=\"sds\"} 1"]).await;
    waits_for(&replica, &[STORE]).await;

    // A proxy that cannot be repaired is released.
    replica.release(STORE).await;
    waits_for(&replica, &[]).await;
    replica.stop().await;
}

/// Waits until the CA's status names exactly these workloads as blocking the root.
async fn waits_for(replica: &Replica, workloads: &[&str]) {
    let patience = Patience { limit: PATIENCE, pause: Duration::from_millis(50) };
    eventually(patience, &format!("a root that waits for {workloads:?}"), async || {
        let status = replica.admin().await.get_ca_status(pb::GetCaStatusRequest {}).await.unwrap();
        let rotation = status.into_inner().root_rotation.expect("a rotation of the root");
        let named = rotation.unacknowledged_proxies;
        if named == workloads { Ok(()) } else { Err(format!("{named:?}")) }
    })
    .await;
}
