//! What the mesh is: the objects that sources told of, and questions about them.
//!
//! Owns the objects, the indexes over them, and the exact answer to "whom does this change touch". Refuses
//! to know Envoy, streams or time. Access policy over it is [`crate::policy`].

mod object;

pub use object::{
    AppProtocol, Endpoint, EndpointSlice, InboundPort, Kind, Namespace, Object, ObjectRef, Service, ServicePort,
    SliceEndpoint, SlicePort, SourceEvent, TargetPort, Workload,
};
