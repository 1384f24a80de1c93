//! Replicas of one group, each a whole server.

use smc_xds::resource::ResourceType;
use tonic::Code;

use super::client::Client;
use super::replica::Replica;
use super::{BUYER, STORE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_replica_issued_or_released_a_moment_ago_every_other_one_knows() {
    let replicas = Replica::several(3).await;
    for round in 0..9 {
        let (here, there) = (&replicas[round % 3], &replicas[(round + 1) % 3]);
        let pod = [BUYER, STORE][round % 2];
        let bootstrap = here.bootstrap(pod).await;
        let (client, first) = Client::served(there, &bootstrap, ResourceType::Cluster).await;
        assert!(!first.resources.is_empty());
        drop(client);
        here.release(pod).await;
        assert_eq!(Client::refused(there, &bootstrap).await, Code::PermissionDenied);
    }
    for replica in replicas {
        replica.stop().await;
    }
}
