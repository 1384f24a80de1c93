//! Whether this replica and its proxies trust a root, which has to hold before the root may sign.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use smc_authority::pki::{SerialNumber, TrustBundle};
use smc_issuing::ca_keeper::RootTrust;
use smc_issuing::tls::ServerTls;
use smc_types::ids::WorkloadId;

use crate::publisher::MeshHandle;
use crate::xds::proxies::Proxies;

/// Everything on this replica that must trust a root.
pub(super) struct ReplicaTrust {
    pub(super) mesh: MeshHandle,
    pub(super) tls: Arc<ServerTls>,
    pub(super) proxies: Proxies,
}

impl RootTrust for ReplicaTrust {
    fn check(&self, root: SerialNumber, bundle: TrustBundle) -> BoxFuture<'_, Result<(), &'static str>> {
        Box::pin(async move {
            if !self.tls.trusts(&bundle) {
                return Err("the server's TLS does not accept client certificates of the root yet");
            }
            let served = self
                .mesh
                .about(move |mesh| mesh.compiler.serves(&bundle).then(|| mesh.compiler.served_state()));
            let Ok(Some(served)) = served.await else {
                return Err(
                    "a part of the mesh is not served with the root, such as where a fault holds back a change",
                );
            };
            self.proxies.update_trust(root, &served);
            if self.proxies.distrustful(root).is_empty() {
                Ok(())
            } else {
                Err("proxies have not acknowledged the root")
            }
        })
    }

    fn distrustful(&self, root: SerialNumber) -> BTreeSet<WorkloadId> {
        self.proxies.distrustful(root)
    }
}
