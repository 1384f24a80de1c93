//! A controller and an API server whose clocks differ: the controller says so, and nothing opens.

use smc_test_kubernetes::{Cluster, ClusterOptions, injector_webhook};
use smc_testkit::held_port::HeldPort;

use super::{NAMESPACES, PATIENCE};
use crate::controller::{Controller, refusal};
use crate::shared;

const HOUR: i64 = 3600;

/// Waits until the controller's problems are as wanted.
async fn problems(cluster: &Cluster, controller: &Controller, words: &str, wanted: bool) {
    let listed = || async {
        let text = controller.smc(&["mesh", "problems"])?;
        if text.contains(words) == wanted { Ok(()) } else { Err(text) }
    };
    let waited = cluster.wait(&format!("{words}: {wanted}"), PATIENCE, listed).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_says_that_its_clock_is_not_that_of_the_api_server() {
    for (ahead, words, refused) in [
        (HOUR, "60 minutes ahead of the API server's", Some("expired or is not yet valid")),
        (-HOUR, "60 minutes behind the API server's", None),
    ] {
        let Some(programs) = shared::programs() else { return };
        let cluster = Cluster::start(ClusterOptions::api_only(programs)).await.unwrap();
        let port = HeldPort::loopback();
        let webhooks = port.address;
        cluster.apply(NAMESPACES).await.unwrap();
        cluster.apply(&injector_webhook(webhooks)).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let clock = directory.path().join("clock");
        std::fs::write(&clock, format!("{ahead} 0 0")).unwrap();
        let controller = Controller::with_clock(&clock, &cluster, webhooks);
        problems(&cluster, &controller, words, true).await;
        let asked = || async {
            let refusal = refusal(&cluster).await?;
            let is_expected = match (refused, &refusal) {
                (Some(words), Some(refusal)) => refusal.contains(words),
                (None, None) => true,
                _ => false,
            };
            if is_expected { Ok(()) } else { Err(format!("{refusal:?}")) }
        };
        let waited = cluster.wait(&format!("{words}: {refused:?}"), PATIENCE, asked).await;
        waited.unwrap_or_else(|error| panic!("{}", error.chain()));

        std::fs::remove_file(&clock).unwrap();
        problems(&cluster, &controller, "API server's; set the clocks", false).await;
        drop(controller);
        cluster.stop().await.unwrap();
    }
}
