//! One change of an HTTPRouteGroup that very many TrafficTargets name: what the compiler takes for it, and
//! what of that the catalog takes to name whom it affects.

use std::time::Duration;

use smc_benches::mesh::Mesh;
use smc_benches::{Result, percentile};
use smc_mesh::catalog::{Catalog, SourceEvent};
use smc_mesh::translate::{Compiler, Input, Settings};
use smc_model::http_match::MethodSet;
use smc_types::ids::TrustDomain;
use tokio::time::Instant;

/// A rule names groups of its own namespace, so there is one. The policy of each identity is small enough
/// that a namespace may have that of all.
const MESH: Mesh = Mesh { namespaces: 1, services: 5000, proxies: 5000, reach: 2, hub: false };
const CHANGES: usize = 5;

/// The medians of some changes.
pub(crate) struct RouteGroup {
    /// In the compiler.
    pub(crate) whole: Duration,
    /// In a catalog alone.
    pub(crate) catalog: Duration,
}

/// Changes the one match of the group, there and back.
pub(crate) fn measure() -> Result<RouteGroup> {
    let mut catalog = Catalog::default();
    for event in MESH.events()? {
        catalog.apply(event);
    }
    let catalog = changes(|event| catalog.apply(event).accounts.len() == MESH.services)?;
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local")?));
    compiler.apply(MESH.inputs()?);
    let whole = changes(|event| compiler.apply([Input::Source(event)]))?;
    Ok(RouteGroup { whole, catalog })
}

fn changes(mut apply: impl FnMut(SourceEvent) -> bool) -> Result<Duration> {
    let mut times = Vec::with_capacity(2 * CHANGES);
    for _ in 0..CHANGES {
        for methods in [MethodSet::Only(["GET".to_owned()].into()), MethodSet::Any] {
            let event = MESH.route_group(0, methods)?;
            let start = Instant::now();
            let changed = apply(event);
            times.push(start.elapsed());
            if !changed {
                return Err("a change of the route group did not affect all".into());
            }
        }
    }
    Ok(percentile(&times, 50))
}
