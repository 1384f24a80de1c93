//! The fields of Kubernetes' own kinds, as the API server that is built here describes them.

use serde_json::Value;
use smc_decode::core::coverage::{ENDPOINT_SLICE, POD_SPEC, Row, SERVICE};
use smc_test_kubernetes::{Cluster, ClusterOptions};
use smc_testkit::schema::differences;

use crate::shared;

/// The kinds with a row for each field: the group's document, the schema in it, the rows.
const KINDS: [(&str, &str, &[Row]); 3] = [
    ("/openapi/v3/api/v1", "io.k8s.api.core.v1.Service", SERVICE),
    ("/openapi/v3/apis/discovery.k8s.io/v1", "io.k8s.api.discovery.v1.EndpointSlice", ENDPOINT_SLICE),
    ("/openapi/v3/api/v1", "io.k8s.api.core.v1.PodSpec", POD_SPEC),
];

/// A row without a field is one of a newer Kubernetes, whose types are compiled in.
#[tokio::test]
async fn every_field_of_the_api_server_is_obeyed_or_has_a_reason() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = Cluster::start(ClusterOptions::api_only(programs)).await;
    let cluster = cluster.unwrap_or_else(|error| panic!("{}", error.chain()));
    for (path, kind, rows) in KINDS {
        let output = cluster.kubectl(&["get", "--raw", path]).await.unwrap();
        assert!(output.success(), "{}", output.stderr);
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let fields = rows.iter().map(|(field, _)| *field);
        let (lacking, newer) = differences(&document, &document["components"]["schemas"][kind], fields);
        assert_eq!(lacking, Vec::<String>::new(), "{kind}");
        assert!(newer.len() < rows.len() / 4, "{kind}: {newer:?}");
    }
    cluster.stop().await.unwrap();
}
