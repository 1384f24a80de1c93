//! Owns the way of the lab's mesh to the API server, and of the lab's controllers to it: what a kubelet and a
//! network do in a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use smc_lab::LabHandle;
use smc_test_kubernetes::{Cluster, create};
use smc_testkit::eventually::{Patience, eventually};
use smc_testkit::relay::Relay;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How often the lab's mesh is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How long the lab may take to listen to requests.
const LAB: Patience = Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(50) };

/// The way. Dropping it ends it.
pub(super) struct Mirror {
    _relay: Relay,
    _task: JoinSet<()>,
}

impl Mirror {
    /// Begins as soon as the lab of this name is there.
    pub(super) async fn start(lab: &str, cluster: &Cluster, client: Client) -> Self {
        let address = cluster.api_address();
        let (lab, listener) = eventually(LAB, "the lab", async || {
            let handle = LabHandle::find(lab).await.map_err(|error| error.chain())?;
            let listener = handle.listen(address).await.map_err(|error| error.chain())?;
            Ok::<_, String>((handle, listener))
        })
        .await;
        listener.set_nonblocking(true).unwrap();
        let relay = Relay::over(TcpListener::from_std(listener).unwrap(), &address.to_string()).unwrap();
        let mut task = JoinSet::new();
        task.spawn(mirror(lab, client));
        Self { _relay: relay, _task: task }
    }
}

/// Brings what the lab publishes to the API server. Of what is there, the status alone changes.
async fn mirror(lab: LabHandle, client: Client) {
    let mut there: BTreeMap<String, Value> = BTreeMap::new();
    loop {
        for object in published(&lab) {
            let name = format!(
                "{} {}/{}",
                object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
            );
            match there.get(&name) {
                Some(known) if *known == object => continue,
                Some(_) => set_status(&client, &object).await,
                None => create(client.clone(), object.clone())
                    .await
                    .unwrap_or_else(|error| panic!("{}", error.chain())),
            }
            there.insert(name, object);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The objects of the lab's mesh, in their order.
fn published(lab: &LabHandle) -> Vec<Value> {
    // It is not there before the lab has published, and is replaced as a whole.
    let text = std::fs::read_to_string(lab.published_dir().join("mesh.yaml")).unwrap_or_default();
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

async fn set_status(client: &Client, pod: &Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let text = |field: &str| pod["metadata"][field].as_str().unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), text("namespace"), &resource);
    let patch = Patch::Merge(json!({"status": pod["status"]}));
    api.patch_status(text("name"), &PatchParams::default(), &patch).await.unwrap();
}
