//! Tests resources that Envoy rejects: the rejection is reported, has no effect on the rest, and
//! ends with the fix.

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, routes};
use crate::{VARIANTS, start_with};

/// An expression that SMC accepts and these Envoys reject: their limit on instructions is low.
const LARGE: &str = "    - {name: large, pathRegex: '/a{40}b{40}'}";
const FEW_INSTRUCTIONS: &str = r#"{"layered_runtime": {"layers": [
    {"name": "test", "static_layer": {"re2.max_program_size.error_level": 40}}]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_resource_is_reported_and_the_last_good_one_stays() {
    for variant in VARIANTS {
        let mesh = Mesh::web()
            .with("any.yaml", &any_route())
            .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
        let lab = start_with(&mesh, |options| {
            options.variant = variant;
            options.envoy_args = vec!["--config-yaml".to_owned(), FEW_INSTRUCTIONS.to_owned()];
        })
        .await;
        eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;

        lab.apply("large.yaml", &routes("large", LARGE)).await.unwrap();
        lab.apply("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/large"])).await.unwrap();
        eventually(&format!("{variant:?}: the rejection is shown"), async || {
            let status =
                lab.smc_json(&["proxy", "config", "servers/web-v1"]).await.map_err(|error| error.chain())?;
            let status = status.to_string();
            if status.contains("program size") { Ok(()) } else { Err(status) }
        })
        .await;
        // The rejection is counted and logged.
        let metrics = crate::metrics::metrics(&lab).await;
        assert!(
            crate::metrics::sum(&metrics, "smc_xds_nacks_total{type=\"rds\"}") > 0,
            "{variant:?}: {metrics}"
        );
        let log = lab.controller_logs().unwrap();
        let said = log.lines().find(|line| line.contains("update rejected") && line.contains("program size"));
        let said = said.unwrap_or_else(|| panic!("{variant:?}: the rejection is not in the log: {log}"));
        assert!(said.contains("WARN") && said.contains("servers/web-v") && said.contains("rds"), "{said}");
        // The last good configuration stays.
        assert_eq!(crate::get(&lab, "clients/alice", "http://web.servers/").await, "200");
        // The client's sidecar learns of the grant by itself.
        eventually_get(&lab, "clients/bob", "http://web.servers/", "403").await;

        lab.apply("large.yaml", &routes("large", "    - {name: small, pathRegex: '/a+b+c'}")).await.unwrap();
        eventually_get(&lab, "clients/bob", "http://web.servers/aabbc", "200").await;
        assert_eq!(crate::get(&lab, "clients/bob", "http://web.servers/other").await, "403");
        eventually(&format!("{variant:?}: the rejection is over"), async || {
            let status =
                lab.smc_json(&["proxy", "config", "servers/web-v1"]).await.map_err(|error| error.chain())?;
            let status = status.to_string();
            if status.contains("program size") { Err(status) } else { Ok(()) }
        })
        .await;
        lab.stop().await.unwrap();
    }
}
