//! Tests `sessionAffinity: ClientIP`: a caller stays at one pod of the service, over HTTP and TCP.

use std::collections::{BTreeMap, BTreeSet};

use crate::eventually::eventually;
use crate::mesh::{Mesh, mesh_config, pod};
use crate::start;
use smc_lab::LabHandle;

const CALLERS: [&str; 2] = ["clients/alice", "clients/bob"];

/// New connections of a caller. Of three pods in turn, or drawn, no run of so many meets one alone.
const CONNECTIONS: usize = 50;

/// Three servers behind the service `kept`, which keeps its callers, and behind `web`, which does not.
fn mesh() -> Mesh {
    let mut mesh =
        Mesh::web().with("pod-web-v3.yaml", &pod("servers", "web-v3", "web")).with("service-kept.yaml", KEPT);
    mesh.add("mesh-config.yaml", &mesh_config(true));
    mesh
}

const KEPT: &str = "apiVersion: v1
kind: Service
metadata: {name: kept, namespace: servers}
spec:
  sessionAffinity: ClientIP
  selector: {app: web}
  ports:
    - {name: http, port: 80, targetPort: web}
    - {name: tcp-lines, port: 7000}
";

/// The pods that answer a caller's GETs, each over a new connection and passed on for another client.
async fn answer_http(lab: &LabHandle, caller: &str, url: &str) -> Result<BTreeSet<String>, String> {
    let mut pods = BTreeSet::new();
    for client in 0..5 {
        let (count, header) = ((CONNECTIONS / 5).to_string(), format!("x-forwarded-for: 192.0.2.{client}"));
        let args = ["--url", url, "--count", &count, "-H", &header];
        for result in lab.fetch(caller, &args).await.map_err(|error| error.chain())? {
            match (result.status, result.pod()) {
                (Some(200), Some(pod)) => pods.insert(pod.to_owned()),
                _ => return Err(format!("{result:?}")),
            };
        }
    }
    Ok(pods)
}

/// The pods that answer a caller's TCP connections.
async fn answer_tcp(lab: &LabHandle, caller: &str) -> Result<BTreeSet<String>, String> {
    let mut pods = BTreeSet::new();
    for _ in 0..CONNECTIONS {
        let result = lab.tcp(caller, &["kept.servers:7000", "--send", "hello"]).await;
        let result = result.map_err(|error| error.chain())?;
        let reply: Option<serde_json::Value> =
            result.reply.as_ref().and_then(|reply| serde_json::from_str(reply).ok());
        match reply.as_ref().and_then(|reply| reply["pod"].as_str()) {
            Some(pod) => pods.insert(pod.to_owned()),
            None => return Err(format!("{result:?}")),
        };
    }
    Ok(pods)
}

/// The one pod at which each caller stays, over HTTP and over TCP.
async fn places(lab: &LabHandle) -> Result<BTreeMap<(&'static str, &'static str), String>, String> {
    let mut places = BTreeMap::new();
    for caller in CALLERS {
        let http = answer_http(lab, caller, "http://kept.servers/").await?;
        for (protocol, pods) in [("http", http), ("tcp", answer_tcp(lab, caller).await?)] {
            let [pod] = &*pods.iter().cloned().collect::<Vec<_>>() else {
                return Err(format!("{caller} is answered over {protocol} by {pods:?}"));
            };
            places.insert((caller, protocol), pod.clone());
        }
    }
    Ok(places)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_stays_at_its_pod_while_another_pod_leaves() {
    let lab = start(&mesh()).await;
    eventually("all servers answer where callers are spread", async || {
        for caller in CALLERS {
            let pods = answer_http(&lab, caller, "http://web.servers/").await?;
            if pods.len() != 3 {
                return Err(format!("{caller}: {pods:?}"));
            }
        }
        places(&lab).await.map(|_| ())
    })
    .await;
    let before = places(&lab).await.unwrap();
    for _ in 0..2 {
        assert_eq!(places(&lab).await.unwrap(), before);
    }

    let leaving = before[&("clients/alice", "http")].clone();
    lab.remove(&format!("pod-{leaving}.yaml")).await.unwrap();
    eventually("those whom it served are served by another pod", async || {
        let pods = answer_http(&lab, "clients/alice", "http://kept.servers/").await?;
        if pods.len() == 1 && !pods.contains(&leaving) { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    let mut after = BTreeMap::new();
    eventually("every caller stays at one pod again", async || {
        let found = places(&lab).await?;
        if found.values().any(|pod| *pod == leaving) {
            return Err(format!("{found:?}"));
        }
        after = found;
        Ok(())
    })
    .await;
    for (who, pod) in before.iter().filter(|(_, pod)| **pod != leaving) {
        assert_eq!(&after[who], pod, "{who:?} was not served by the pod that left");
    }
    lab.stop().await.unwrap();
}
