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
    let objects = [
        ("retry", retry("caller", "last")),
        ("connections", setting(CONNECTIONS)),
        ("limit", setting(RATES)),
    ];
    for (name, yaml) in objects {
        let switch = async |on| {
            let done = async || is_in_effect(scene, name, on).await;
            if on {
                scene.apply("policy.yaml", &yaml, done).await
            } else {
                scene.remove("policy.yaml", done).await
            }
        };
        figures.insert(format!("{name}_p50_us"), in_turns(scene, rounds, each, switch).await?);
    }
    let switch = async |on| scene.ask(on, async || is_in_effect(scene, "authorization", on).await).await;
    figures.insert("authorization_p50_us".to_owned(), in_turns(scene, rounds, each, switch).await?);
    let switch = async |on| scene.trace(on, async || is_in_effect(scene, "tracing", on).await).await;
    figures.insert("tracing_p50_us".to_owned(), in_turns(scene, rounds, each, switch).await?);
    Ok(figures.into())
}

/// Half of the requests without a policy and with it, which a function turns on and off.
async fn in_turns(
    scene: &Scene,
    rounds: u32,
    each: Duration,
    switch: impl AsyncFn(bool) -> Result<()>,
) -> Result<Value> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(p50(scene, each).await?);
        switch(true).await?;
        with.push(p50(scene, each).await?);
        switch(false).await?;
    }
    let [without, with] = [without, with].map(|times| percentile(&times, 50).as_micros());
    Ok(json!({"without": without, "with": with}))
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
        "tracing" => ("caller", "/config_dump?resource=dynamic_listeners", "outbound-traces"),
        _ => return Ok((scene.tries("caller", "last").await? > 1) == wanted),
    };
    Ok(scene.sidecar(pod, path).await?.contains(text) == wanted)
}
