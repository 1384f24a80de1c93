//! The cost of one stream: its first responses, a change that affects it, an unchanged resume.

#![allow(clippy::unwrap_used, reason = "a benchmark stops where its own mesh is not valid")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use smc_types::ids::ServiceAccountId;
use smc_types::proxy_class::ProxyClass;
use smc_xds::resource::{Resource, ResourceType};
use smc_xds::served_state::{Changed, Snapshot, View};
use smc_xds::session::{Request, Response, Scope, Session, Step, Variant};

/// A view of `count` clusters; `generation` changes the first of them.
fn view(count: usize, generation: u64) -> View {
    let account = ServiceAccountId::new("n0", "s0").unwrap();
    let class =
        Arc::new(ProxyClass { account, inbound: Vec::new(), ipv4: true, ipv6: false, telemetry: None });
    let mut snapshot = Snapshot::default();
    for i in 0..count {
        let name = format!("n0/s{i}|8080");
        let alt_stat_name = if i == 0 { generation.to_string() } else { String::new() };
        let cluster = Cluster { name: name.clone(), alt_stat_name, ..Cluster::default() };
        let resource = Arc::new(Resource::encode(ResourceType::Cluster, &name, &cluster));
        snapshot.clusters.insert(Arc::clone(&resource.name), resource);
    }
    View::new(class, Arc::new(snapshot), imbl::OrdMap::new())
}

fn subscribe(initial: &View, held: bool) -> DeltaDiscoveryRequest {
    let mut request = DeltaDiscoveryRequest {
        type_url: ResourceType::Cluster.url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    if held {
        request.initial_resource_versions = initial
            .all(ResourceType::Cluster)
            .map(|resource| (resource.name.to_string(), resource.version.to_string()))
            .collect();
    }
    request
}

fn acknowledge(response: &Response) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.kind.url().to_owned(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// Handles a request to its end.
fn ask(session: &mut Session, request: &DeltaDiscoveryRequest, view: Option<&View>) -> Step {
    let request = Request::decode(Variant::Delta, request.encode_to_vec().into()).unwrap();
    let mut whole = session.on_request(request, view).unwrap();
    while whole.more {
        let step = session.proceed().unwrap();
        whole.more = step.more;
        whole.responses.extend(step.responses);
    }
    whole
}

fn connected(view: &View) -> Session {
    let mut session = Session::new(Variant::Delta, Scope::Aggregated);
    let step = ask(&mut session, &subscribe(view, false), Some(view));
    ask(&mut session, &acknowledge(&step.responses[0]), None);
    session
}

fn session(criterion: &mut Criterion) {
    for count in [10, 1000] {
        let views = [view(count, 0), view(count, 1)];
        let name: Arc<str> = Arc::from("n0/s0|8080");
        let touched = Changed::Names(BTreeSet::from([(ResourceType::Cluster, name)]));

        criterion.bench_function(&format!("first_answer/{count}"), |bencher| {
            let request = subscribe(&views[0], false);
            bencher.iter(|| {
                let mut session = Session::new(Variant::Delta, Scope::Aggregated);
                let step = ask(&mut session, &request, Some(&views[0]));
                assert_eq!(step.responses[0].resources.len(), count);
                let mut bytes = Vec::with_capacity(step.responses[0].encoded_len());
                step.responses[0].encode(&mut bytes);
                black_box(bytes)
            });
        });
        criterion.bench_function(&format!("unchanged_resume/{count}"), |bencher| {
            let request = subscribe(&views[0], true);
            bencher.iter(|| {
                let mut session = Session::new(Variant::Delta, Scope::Aggregated);
                let step = ask(&mut session, &request, Some(&views[0]));
                assert!(step.responses.iter().all(|response| response.resources.is_empty()));
                black_box(session)
            });
        });
        criterion.bench_function(&format!("one_change/{count}"), |bencher| {
            let mut session = connected(&views[0]);
            let mut next = 1;
            bencher.iter(|| {
                let step = session.on_view(&views[next], &touched);
                assert_eq!(step.responses.len(), 1);
                assert_eq!(step.responses[0].resources.len(), 1);
                ask(&mut session, &acknowledge(&step.responses[0]), None);
                next = 1 - next;
            });
        });
    }
}

criterion_group!(benches, session);
criterion_main!(benches);
