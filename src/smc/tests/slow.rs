//! Clients that answer late.

use smc_testkit::ads::ack;
use smc_xds::resource::ResourceType;

use super::client::Client;
use super::replica::Replica;
use super::{BUYER, STORE};

/// Each change replaces the service of the one before.
#[tokio::test]
async fn a_client_that_answers_late_gets_the_latest_and_nothing_between() {
    let replica = Replica::start().await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    let (mut late, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    let (mut prompt, response) = Client::served(&replica, &store, ResourceType::Cluster).await;
    prompt.send(ack(&response)).await;
    for n in 1..=8 {
        replica.declare_another_service_as(&format!("number-{n}"));
        loop {
            let response = prompt.receive().await;
            prompt.send(ack(&response)).await;
            if response.resources.iter().any(|cluster| cluster.name.contains(&format!("number-{n}"))) {
                break;
            }
        }
    }
    late.send(ack(&first)).await;
    let second = late.receive().await;
    let names: Vec<_> = second.resources.iter().map(|cluster| cluster.name.as_str()).collect();
    assert!(names.iter().any(|name| name.contains("number-8")), "{names:?}");
    assert!(!names.iter().any(|name| (1..8).any(|n| name.contains(&format!("number-{n}")))), "{names:?}");
    late.send(ack(&second)).await;

    replica.declare_another_service_as("number-9");
    let third = late.receive().await;
    let names: Vec<_> = third.resources.iter().map(|cluster| cluster.name.as_str()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.contains("number-9")), "{names:?}");
    replica.stop().await;
}
