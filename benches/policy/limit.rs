//! Owns how far what a limit lets in is from what it says, under many times as much load, also while other
//! policy is edited.

use std::time::Duration;

use serde_json::{Map, Value, json};
use smc_benches::{Result, rounded};
use tokio::time::{Instant, sleep};

use crate::scene::{Scene, setting};

/// The limit, in requests a second, and the connections of the client, which asks many times as often.
const LIMIT: u32 = 300;
const CONNECTIONS: u16 = 8;

/// How often other policy is edited.
const EDITS: Duration = Duration::from_secs(1);

/// What the caller may ask of the last one. Each edition is another route configuration of its sidecar.
fn target(edition: u32) -> String {
    format!(
        "apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {{name: all, namespace: bench}}
spec:
  matches: [{{name: all, pathRegex: '/({edition})?.*', methods: ['*']}}]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{name: last, namespace: bench}}
spec:
  destination: {{kind: ServiceAccount, name: last, namespace: bench}}
  sources: [{{kind: ServiceAccount, name: caller, namespace: bench}}]
  rules: [{{kind: HTTPRouteGroup, name: all}}]
"
    )
}

/// How far it is from what it says, in percent of that.
pub(crate) async fn measure(scene: &Scene, rounds: u32, each: Duration) -> Result<Value> {
    let lines = format!("rateLimit: {{local: {{http: {{requests: {LIMIT}, unit: second}}}}}}");
    let limited = |wanted: bool| {
        async move || Ok((scene.load("/ok", CONNECTIONS, EDITS).await?.failures > 0) == wanted)
    };
    scene.declare("target.yaml", &target(0)).await?;
    scene.set_permissive(false).await?;
    scene.apply("policy.yaml", &setting(&lines), limited(true)).await?;
    // Connections from before the limit are drained, within five seconds in the lab.
    sleep(Duration::from_secs(6)).await;
    let mut figures = Map::new();
    for edited in [false, true] {
        let (mut let_in, mut asked, mut seconds) = (0_u32, 0_u32, 0.0);
        for _ in 0..rounds {
            // Uses up what the bucket holds.
            scene.load("/ok", CONNECTIONS, EDITS).await?;
            let begun = Instant::now();
            let load = scene.load("/ok", CONNECTIONS, each);
            let result = if edited {
                tokio::select! { result = load => result?, failed = edits(scene) => return failed }
            } else {
                load.await?
            };
            seconds += begun.elapsed().as_secs_f64();
            let_in += u32::try_from(result.requests)?;
            asked += u32::try_from(result.requests + result.failures)?;
        }
        let meant = f64::from(LIMIT) * seconds;
        let error = 100.0 * (f64::from(let_in) - meant) / meant;
        let load = f64::from(asked) / meant;
        let name = if edited { "limit_error_percent_edited" } else { "limit_error_percent" };
        figures.insert(name.to_owned(), json!(rounded(error)));
        figures.insert(format!("{name}_load"), json!(rounded(load)));
    }
    scene.remove("policy.yaml", limited(false)).await?;
    scene.set_permissive(true).await?;
    Ok(figures.into())
}

/// Edits other policy for ever.
async fn edits(scene: &Scene) -> Result<Value> {
    for edition in 1.. {
        scene.declare("target.yaml", &target(edition)).await?;
        sleep(EDITS).await;
    }
    Err("no edition is left".into())
}
