//! Owns the time of a request with a policy and without it, in turns.

use std::time::Duration;

use serde_json::{Map, Value, json};
use smc_benches::{Result, percentile};

use crate::scene::{Scene, retry, setting};

/// Limits that nothing here reaches.
const CONNECTIONS: &str = "connectionSettings:
    tcp: {maxConnections: 999}
    http: {maxRequests: 999, maxPendingRequests: 999, maxRequestsPerConnection: 1000000, maxRetries: 999}";

/// The same in time, with a path that does not match.
const RATES: &str = "rateLimit: {local: {http: {requests: 4000000000, unit: second}}}
  httpRoutes: [{path: /other, rateLimit: {local: {requests: 4000000000, unit: second}}}]";

/// How much longer half of the requests take, at one connection, which does not fail.
pub(crate) async fn measure(scene: &Scene, rounds: u32, each: Duration) -> Result<Value> {
    let mut figures = Map::new();
    for (name, yaml) in
        [("retry", retry("caller", "last")), ("connections", setting(CONNECTIONS)), ("limit", setting(RATES))]
    {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            without.push(p50(scene, each).await?);
            scene.apply("policy.yaml", &yaml, async || is_in_effect(scene, name, true).await).await?;
            with.push(p50(scene, each).await?);
            scene.remove("policy.yaml", async || is_in_effect(scene, name, false).await).await?;
        }
        figures.insert(format!("{name}_p50_us"), compared(&without, &with));
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(p50(scene, each).await?);
        scene.ask(true, async || is_in_effect(scene, "authorization", true).await).await?;
        with.push(p50(scene, each).await?);
        scene.ask(false, async || is_in_effect(scene, "authorization", false).await).await?;
    }
    figures.insert("authorization_p50_us".to_owned(), compared(&without, &with));
    Ok(figures.into())
}

fn compared(without: &[Duration], with: &[Duration]) -> Value {
    let [without, with] = [without, with].map(|times| percentile(times, 50).as_micros());
    json!({"without": without, "with": with})
}

async fn p50(scene: &Scene, each: Duration) -> Result<Duration> {
    let result = scene.load("/ok", 1, each).await?;
    if result.failures > 0 {
        return Err(format!("{result:?}").into());
    }
    Ok(Duration::from_micros(result.p50_us))
}

/// Whether the sidecar has the policy: a Retry by what comes of a failure, others by what Envoy says of them.
async fn is_in_effect(scene: &Scene, name: &str, wanted: bool) -> Result<bool> {
    let (pod, path, text) = match name {
        "connections" => ("caller", "/clusters", "bench/last|80::default_priority::max_connections::999"),
        "limit" => ("last", "/config_dump", "rate_limit_inbound_8080_http_bench/last"),
        "authorization" => ("last", "/config_dump?resource=dynamic_listeners", "external-authorization"),
        _ => return Ok((scene.tries("caller", "last").await? > 1) == wanted),
    };
    Ok(scene.sidecar(pod, path).await?.contains(text) == wanted)
}
