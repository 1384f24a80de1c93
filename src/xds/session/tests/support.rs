//! Hand-made views, requests, and responses as text for assertions.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;
use imbl::{OrdMap, OrdSet};
use prost::Message;

use crate::resource::{Resource, ResourceType};
use crate::served_state::{Changed, Snapshot, View};
use crate::session::{ProtocolError, Request, Response, Session, Step, Variant};
use smc_types::ids::ServiceAccountId;
use smc_types::proxy_class::ProxyClass;

pub(super) use ResourceType::{
    Cluster as CDS, Endpoint as EDS, ExtensionConfig as ECDS, Listener as LDS, Route as RDS, Secret as SDS,
};

impl Session {
    /// Handles a State-of-the-World request to its end.
    pub(in crate::session) fn on_sotw(
        &mut self,
        request: &DiscoveryRequest,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        self.whole(Variant::Sotw, request, view)
    }

    /// Handles a Delta request to its end.
    pub(in crate::session) fn on_delta(
        &mut self,
        request: &DeltaDiscoveryRequest,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        self.whole(Variant::Delta, request, view)
    }

    fn whole(
        &mut self,
        variant: Variant,
        request: &impl Message,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        let request = Request::decode(variant, request.encode_to_vec().into()).unwrap();
        let mut whole = self.on_request(request, view)?;
        while whole.more {
            let step = self.proceed()?;
            whole.responses.extend(step.responses);
            whole.events.extend(step.events);
            whole.work += step.work;
            whole.more = step.more;
        }
        Ok(whole)
    }
}

/// A resource: type, name, content. A cluster takes its endpoints from the EDS resource of its own name.
pub(super) type Spec<'a> = (ResourceType, &'a str, &'a str);

/// What a client of every type is served: two clusters with endpoints.
pub(super) const ALL: [Spec<'_>; 6] = [
    (SDS, "cert", "1"),
    (CDS, "a", "1"),
    (CDS, "b", "1"),
    (EDS, "a", "1"),
    (EDS, "b", "1"),
    (LDS, "in", "1"),
];

pub(super) fn resource((kind, name, content): Spec<'_>) -> Arc<Resource> {
    Arc::new(if kind == CDS {
        let eds_cluster_config = Some(EdsClusterConfig::default());
        let cluster = Cluster {
            name: name.to_owned(),
            alt_stat_name: content.to_owned(),
            eds_cluster_config,
            ..Cluster::default()
        };
        Resource::encode(kind, name, &cluster).warming_on(name)
    } else {
        Resource::encode(kind, name, &Any { type_url: content.to_owned(), value: Vec::new() })
    })
}

pub(super) fn version(spec: Spec<'_>) -> String {
    resource(spec).version.to_string()
}

pub(super) fn view(specs: &[Spec<'_>]) -> View {
    view_of_class("ns", specs)
}

pub(super) fn view_of_class(namespace: &str, specs: &[Spec<'_>]) -> View {
    let table = |kind: ResourceType| -> OrdMap<Arc<str>, Arc<Resource>> {
        let specs = specs.iter().filter(|spec| spec.0 == kind);
        specs.map(|&spec| (Arc::from(spec.1), resource(spec))).collect()
    };
    let endpoints = table(EDS);
    let snapshot = Snapshot {
        secrets: table(SDS),
        clusters: table(CDS),
        endpoints: endpoints.keys().cloned().collect::<OrdSet<_>>(),
        extension_configs: table(ECDS),
        listeners: table(LDS),
        routes: table(RDS),
    };
    let class = ProxyClass {
        account: ServiceAccountId::new(namespace, "account").unwrap(),
        inbound: Vec::new(),
        ipv4: true,
        ipv6: false,
        telemetry: None,
    };
    View::new(Arc::new(class), Arc::new(snapshot), endpoints)
}

/// Exactly the names by which two views differ.
pub(super) fn changes(old: &View, new: &View) -> Changed {
    let mut names = BTreeSet::new();
    for kind in ResourceType::ALL {
        for resource in old.all(kind).chain(new.all(kind)) {
            let version = |view: &View| view.get(kind, &resource.name).map(|r| r.version);
            if version(old) != version(new) {
                names.insert((kind, Arc::clone(&resource.name)));
            }
        }
    }
    Changed::Names(names)
}

pub(super) fn delta(kind: ResourceType) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: kind.url().to_owned(), ..DeltaDiscoveryRequest::default() }
}

pub(super) fn subscribe(kind: ResourceType, names: &[&str]) -> DeltaDiscoveryRequest {
    let resource_names_subscribe = names.iter().map(ToString::to_string).collect();
    DeltaDiscoveryRequest { resource_names_subscribe, ..delta(kind) }
}

pub(super) fn unsubscribe(kind: ResourceType, names: &[&str]) -> DeltaDiscoveryRequest {
    let resource_names_unsubscribe = names.iter().map(ToString::to_string).collect();
    DeltaDiscoveryRequest { resource_names_unsubscribe, ..delta(kind) }
}

/// The first request of a stream whose client holds `held`.
pub(super) fn resume(kind: ResourceType, names: &[&str], held: &[Spec<'_>]) -> DeltaDiscoveryRequest {
    let initial_resource_versions = held.iter().map(|&spec| (spec.1.to_owned(), version(spec))).collect();
    DeltaDiscoveryRequest { initial_resource_versions, ..subscribe(kind, names) }
}

pub(super) fn ack(response: &Response) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { response_nonce: response.nonce.clone(), ..delta(response.kind) }
}

pub(super) fn nack(response: &Response, message: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { error_detail: Some(error(message)), ..ack(response) }
}

pub(super) fn error(message: &str) -> Status {
    Status { code: 13, message: message.to_owned(), details: Vec::new() }
}

pub(super) fn sotw(kind: ResourceType, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: kind.url().to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    }
}

pub(super) fn sotw_ack(response: &Response, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        response_nonce: response.nonce.clone(),
        version_info: response.version.clone(),
        ..sotw(response.kind, names)
    }
}

pub(super) fn sotw_nack(response: &Response, names: &[&str], message: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        error_detail: Some(error(message)),
        version_info: String::new(),
        ..sotw_ack(response, names)
    }
}

/// A response as text: `cds +a +b -c`.
pub(super) fn text(response: &Response) -> String {
    let mut text = response.kind.short().to_owned();
    response.resources.iter().for_each(|resource| text.extend([" +", &*resource.name]));
    response.removed.iter().for_each(|name| text.extend([" -", &**name]));
    text
}

/// The responses of a step as text.
pub(super) fn texts(step: &Step) -> Vec<String> {
    step.responses.iter().map(text).collect()
}
