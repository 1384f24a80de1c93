//! Owns the memory of a sidecar that may call many services.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use smc_benches::Result;
use smc_lab::{Lab, LabHandle, LabOptions};
use smc_testkit::memory::memory_kib;
use tokio::time::Instant;

use crate::pair::process;

/// How long a sidecar may take to have all services.
const PATIENCE: Duration = Duration::from_mins(2);

/// How long a sidecar that has all services is left alone before it is looked at.
const REST: Duration = Duration::from_secs(3);

const PODS: &str = include_str!("services.yaml");

/// Measures the sidecar of a caller in permissive mode, for each number of services.
pub(crate) async fn measure(services: &[usize]) -> Result<Value> {
    let mut figures = Map::new();
    for &count in services {
        let directory = tempfile::tempdir()?;
        let mut text = PODS.to_owned();
        for number in 0..count {
            writeln!(text, "---\napiVersion: v1\nkind: Service")?;
            writeln!(text, "metadata: {{name: s{number}, namespace: bench}}")?;
            writeln!(
                text,
                "spec: {{selector: {{app: web}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}"
            )?;
        }
        std::fs::write(directory.path().join("mesh.yaml"), text)?;
        let lab = Lab::start(LabOptions::new(directory.path())).await?;
        has_all(&lab, count).await?;
        tokio::time::sleep(REST).await;
        let resident = memory_kib(process("caller.bench")?, "VmRSS")?;
        let stats = lab.envoy_admin("bench/caller", "/stats").await?.body.lines().count();
        figures
            .insert(format!("services_{count}"), json!({"sidecar_rss_kib": resident, "statistics": stats}));
        lab.stop().await?;
    }
    Ok(Value::Object(figures))
}

async fn has_all(lab: &LabHandle, count: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let clusters = lab.envoy_admin("bench/caller", "/clusters").await?.body;
        let healthy = clusters
            .lines()
            .filter(|line| line.starts_with("bench/s") && line.ends_with("::health_flags::healthy"))
            .count();
        if healthy >= count {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{healthy} of {count} services have an endpoint").into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
