//! Owns how much more a service is asked of which every answer is a failure, where its caller sends requests
//! again, and where each of three hops does.

use std::time::Duration;

use serde_json::{Map, Value, json};
use smc_benches::{Result, rounded};

use crate::scene::{CHAIN, Scene, retry};

/// Of the last one itself, and of the same by way of the others.
const FAILING: &str = "http://last.bench/status/503";
const FAILING_FAR: &str = "http://first.bench/via/second.bench/via/last.bench/status/503";

/// Measures each number of connections, over one hop and over three.
pub(crate) async fn measure(scene: &Scene, connections: &[u16], each: Duration) -> Result<Value> {
    let mut figures = Map::new();
    for (name, url, hops) in [
        ("retry_surplus", FAILING, vec![("caller", "last")]),
        ("retry_surplus_3_hops", FAILING_FAR, CHAIN.windows(2).filter_map(pair).collect()),
    ] {
        for &count in connections {
            let without = asked(scene, url, count, each).await?;
            for &(source, destination) in &hops {
                let is_retried = async || Ok(scene.tries(source, destination).await? > 1);
                scene.apply(&format!("{source}.yaml"), &retry(source, destination), is_retried).await?;
            }
            let with = asked(scene, url, count, each).await?;
            for &(source, destination) in &hops {
                let is_single = async || Ok(scene.tries(source, destination).await? == 1);
                scene.remove(&format!("{source}.yaml"), is_single).await?;
            }
            figures.insert(
                format!("{name}_{count}"),
                json!({
                    "requests_per_second": (with.requests / each.as_secs_f64()).round(),
                    "requests_per_second_without": (without.requests / each.as_secs_f64()).round(),
                    "surplus_percent": rounded(with.surplus_percent),
                    "surplus_percent_without": rounded(without.surplus_percent),
                }),
            );
        }
    }
    Ok(figures.into())
}

fn pair(hop: &[&'static str]) -> Option<(&'static str, &'static str)> {
    let [source, destination] = hop else { return None };
    Some((source, destination))
}

struct Asked {
    requests: f64,
    /// How many more requests reached the service than were made.
    surplus_percent: f64,
}

async fn asked(scene: &Scene, url: &str, connections: u16, each: Duration) -> Result<Asked> {
    let number = async || scene.answered("bench/last", "http://127.0.0.1:8080/").await;
    let before = number().await?;
    let result = scene.load_at(url, connections, each).await?;
    let arrived = number().await? - before - 1;
    if result.requests > 0 {
        return Err(format!("a failing service has answered: {result:?}").into());
    }
    let [arrived, made] = [arrived, result.failures].map(|count| u32::try_from(count).map(f64::from));
    let (arrived, made) = (arrived?, made?);
    Ok(Asked { requests: made, surplus_percent: 100.0 * (arrived - made) / made })
}
