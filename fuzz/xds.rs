//! Requests of a hostile proxy: any bytes, in any order, between changes of the mesh.
//!
//! The first byte is the variant and the scope of the stream. Then come steps: a byte, and for a request its
//! length and its bytes.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smc_testkit::mesh::{self, meshes};
use smc_types::object_ref::Kind;
use smc_xds::resource::ResourceType;
use smc_xds::revision::{Revision, Versions};
use smc_xds::served_state::{Changed, View};
use smc_xds::session::{MAX_HELD_BYTES, Request, Scope, Session, Step, Variant};

use crate::split::Rest;

/// The names that a step may look at. A step takes about a millisecond at most; a comparison takes a third
/// of a microsecond.
const MAX_WORK: usize = 20_000;

/// Runs one stream.
pub(crate) fn run(input: &[u8]) {
    let mut rest = Rest(input);
    let Some(first) = rest.byte() else { return };
    let variant = if first & 1 == 0 { Variant::Delta } else { Variant::Sotw };
    let types = ResourceType::ALL;
    let only = types.get(usize::from(first >> 1));
    let scope = only.map_or(Scope::Aggregated, |kind| Scope::Only(*kind));
    let mut stream = Stream { session: Session::new(variant, scope), view: None, nonce: 0 };
    while let Some(step) = rest.byte() {
        if step & 1 == 0 {
            let views = views();
            let view = &views[usize::from(step >> 1) % views.len()];
            let step = stream.session.on_view(view, &Changed::Everything);
            stream.view = Some(view);
            stream.judge(&step);
        } else {
            let Some(bytes) = rest.counted() else { return };
            let Ok(request) = Request::decode(variant, Bytes::copy_from_slice(bytes)) else { return };
            let _ = (request.node().map(|node| (node.id().len(), node.user_agent())), request.encoded_len());
            if !stream.request(request) {
                return;
            }
        }
    }
    let _ = (stream.session.status(), stream.session.rejected(8), stream.session.acknowledged());
}

struct Stream {
    session: Session,
    view: Option<&'static View>,
    nonce: u64,
}

impl Stream {
    /// Handles a request to its end. Returns false if it ends the stream.
    fn request(&mut self, request: Request) -> bool {
        let mut next = self.session.on_request(request, self.view);
        // Each part of the work takes something off what the request has left to do.
        for _ in 0..100_000 {
            let Ok(step) = next else { return false };
            self.judge(&step);
            assert!(self.session.held_bytes() <= 2 * MAX_HELD_BYTES, "names take too much");
            if !step.more {
                return true;
            }
            next = self.session.proceed();
        }
        panic!("a request has no end");
    }

    fn judge(&mut self, step: &Step) {
        assert!(step.work <= MAX_WORK, "one step looked at {} names", step.work);
        for response in &step.responses {
            let mut encoded = Vec::new();
            response.encode(&mut encoded);
            assert_eq!(encoded.len(), response.encoded_len());
            let nonce = response.nonce.parse().expect("a nonce is a number");
            assert!(nonce > self.nonce, "nonces grow");
            self.nonce = nonce;
            let view = self.view.expect("nothing is sent before there is a view");
            for resource in &response.resources {
                let served = view.get(resource.kind, &resource.name);
                assert!(served.is_some_and(|served| Arc::ptr_eq(served, resource) || served == resource));
            }
        }
    }
}

/// Views of one class, which a mesh takes one after another.
fn views() -> &'static [View] {
    static VIEWS: OnceLock<Vec<View>> = OnceLock::new();
    VIEWS.get_or_init(|| {
        let mesh = meshes::all().into_iter().find(|mesh| mesh.name == "http_routes_and_tcp_ports").unwrap();
        let mut compiler = mesh.compile("roots", "chain", "key");
        let pod = &mesh.pods[0];
        let mut views = vec![mesh::view(&compiler, pod).expect("the pod is served")];
        // Without its objects, one by one from the last.
        for input in mesh.inputs.into_iter().rev() {
            if let smc_mesh::translate::Input::Source(smc_mesh::catalog::SourceEvent::Upsert(object)) = input
            {
                compiler.apply([mesh::remove(object.reference())]);
            }
            views.extend(mesh::view(&compiler, pod));
        }
        views.truncate(8);
        // Each has seen a change of one kind more than the one before.
        let later = |(number, view): (usize, View)| {
            let changed: Versions = Kind::ALL.iter().take(number + 1).map(|kind| (*kind, 7)).collect();
            view.at(Revision { known: changed.clone(), changed, copy: None })
        };
        views.into_iter().enumerate().map(later).collect()
    })
}
