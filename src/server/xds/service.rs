//! The xDS RPCs: ADS and the separate service of each type, both variants, all on one driver.
//!
//! Owns the paths of Envoy's discovery services. Their unary `Fetch…` forms and unknown paths are
//! answered with `UNIMPLEMENTED`: nothing in a mesh polls.
//!
//! The routing is hand-written because the generated services fix prost's codec, which would encode
//! every shared resource again for every proxy.

use std::sync::Arc;

use hyper::body::Incoming;
use smc_xds::resource::ResourceType;
use smc_xds::session::{Scope, Variant};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::{Status, Streaming};

use super::codec::{RequestDecoder, ResponseBody};
use super::context::{Context as StreamContext, Peer};
use super::proxies::Allowance;
use super::request_body::RequestBody;
use super::stream;
use crate::registry::admission::NotAdmitted;

/// Responses queued for a slow reader before the stream stops following new states: at least one per
/// type, so that the first push never blocks itself, and few, because a blocked stream continues with
/// the newest state.
const OUTBOUND_QUEUE: usize = 8;

/// The RPCs of one replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct XdsService {
    context: Arc<StreamContext>,
}

impl XdsService {
    pub(crate) fn new(context: Arc<StreamContext>) -> Self {
        Self { context }
    }

    /// Answers one HTTP/2 request. An error is a gRPC status in the response.
    pub(super) fn call(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        if let Some(peer) = request.extensions().get::<Peer>()
            && let Err(refused) = stream::charge(peer)
        {
            return refused.into_http();
        }
        match rpc(request.uri().path()) {
            Some((variant, scope)) => match self.stream(variant, scope, request) {
                Ok(response) => response,
                Err(refused) => refused.into_http(),
            },
            None => Status::unimplemented("SMC serves the streaming xDS services only").into_http(),
        }
    }

    /// Opens one stream. Its driver runs as a separate task, which notices a stalled reader.
    fn stream(
        &self,
        variant: Variant,
        scope: Scope,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Body>, Status> {
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            return Err(NotAdmitted::NoCertificate.status());
        };
        if let Some(encoding) = request.headers().get("grpc-encoding").filter(|name| *name != "identity") {
            return Err(Status::unimplemented(format!(
                "requests are not accepted compressed ({encoding:?})"
            )));
        }
        let Allowance { rate_limit, unhandled, overhead, .. } = peer.connection.allowance.clone();
        // The body bounds what a request takes; tonic sees empty ones.
        let (body, framed) = RequestBody::new(request.into_body(), unhandled, rate_limit, overhead);
        let requests = Streaming::new_request(RequestDecoder { variant, framed }, body, None, None);
        let (sender, receiver) = mpsc::channel(OUTBOUND_QUEUE);
        stream::open(Arc::clone(&self.context), peer, variant, scope, requests, sender)?;
        let mut response = http::Response::new(Body::new(ResponseBody::new(receiver)));
        let content_type = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        Ok(response)
    }
}

/// The variant and scope of a path.
fn rpc(path: &str) -> Option<(Variant, Scope)> {
    const ONE_TYPE: [(&str, &str, ResourceType); 6] = [
        ("cluster.v3.ClusterDiscoveryService", "Clusters", ResourceType::Cluster),
        ("endpoint.v3.EndpointDiscoveryService", "Endpoints", ResourceType::Endpoint),
        ("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", ResourceType::ExtensionConfig),
        ("listener.v3.ListenerDiscoveryService", "Listeners", ResourceType::Listener),
        ("route.v3.RouteDiscoveryService", "Routes", ResourceType::Route),
        ("secret.v3.SecretDiscoveryService", "Secrets", ResourceType::Secret),
    ];
    let (service, method) = path.strip_prefix("/envoy.service.")?.split_once('/')?;
    let (variant, what) = match method.strip_prefix("Delta") {
        Some(what) => (Variant::Delta, what),
        None => (Variant::Sotw, method.strip_prefix("Stream")?),
    };
    if (service, what) == ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources") {
        return Some((variant, Scope::Aggregated));
    }
    let (_, _, kind) = ONE_TYPE.into_iter().find(|&(s, w, _)| (s, w) == (service, what))?;
    Some((variant, Scope::Only(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_streaming_service_is_served_in_both_variants_and_nothing_else() {
        let ads = "/envoy.service.discovery.v3.AggregatedDiscoveryService";
        assert_eq!(
            rpc(&format!("{ads}/StreamAggregatedResources")),
            Some((Variant::Sotw, Scope::Aggregated))
        );
        assert_eq!(
            rpc(&format!("{ads}/DeltaAggregatedResources")),
            Some((Variant::Delta, Scope::Aggregated))
        );
        let table = [
            ("cluster.v3.Cluster", "Clusters", ResourceType::Cluster),
            ("endpoint.v3.Endpoint", "Endpoints", ResourceType::Endpoint),
            ("extension.v3.ExtensionConfig", "ExtensionConfigs", ResourceType::ExtensionConfig),
            ("listener.v3.Listener", "Listeners", ResourceType::Listener),
            ("route.v3.Route", "Routes", ResourceType::Route),
            ("secret.v3.Secret", "Secrets", ResourceType::Secret),
        ];
        for (service, what, kind) in table {
            let path = |verb| format!("/envoy.service.{service}DiscoveryService/{verb}{what}");
            assert_eq!(rpc(&path("Stream")), Some((Variant::Sotw, Scope::Only(kind))));
            assert_eq!(rpc(&path("Delta")), Some((Variant::Delta, Scope::Only(kind))));
            assert_eq!(rpc(&path("Fetch")), None);
        }
        for unknown in
            ["/", "", "/envoy.service.", "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime"]
        {
            assert_eq!(rpc(unknown), None, "{unknown}");
        }
        assert_eq!(rpc("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamEndpoints"), None);
    }
}
