//! What servers let in of outside the mesh.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::certificates::Certificates;
use crate::client::{self, Answer, Dial, Place};
use crate::generate::PORTS;
use crate::judge::{Disagreement, Round};
use crate::outsiders::Caller;
use smc_policy::{Handshake, Request, Workload};

/// The clients' ends of TLS.
pub(crate) struct Outsiders {
    without: Arc<ClientConfig>,
    gateways: BTreeMap<&'static str, Arc<ClientConfig>>,
    stranger: Arc<ClientConfig>,
}

impl Outsiders {
    pub(crate) fn new(certificates: &Certificates) -> Self {
        let gateways =
            certificates.gateways.iter().map(|(name, identity)| (*name, client::tls(Some(identity))));
        Self {
            without: client::tls(None),
            gateways: gateways.collect(),
            stranger: client::tls(Some(&certificates.stranger)),
        }
    }

    fn of(&self, caller: &Caller, handshake: &Handshake) -> Arc<ClientConfig> {
        let named = handshake.names.first().and_then(|name| self.gateways.get(&**name));
        Arc::clone(if caller.is_stranger { &self.stranger } else { named.unwrap_or(&self.without) })
    }
}

impl Round<'_> {
    /// Each client asks every port of every server.
    pub(crate) fn outside(&mut self) -> Option<Disagreement> {
        let serves = |workload: &Workload| !self.world.served(workload).is_empty();
        let workloads: Vec<_> =
            self.world.workloads().iter().filter(|workload| serves(workload)).cloned().collect();
        for workload in workloads {
            let Some(address) = self.sidecars.get(&workload.id()).and_then(|sidecar| sidecar.address) else {
                continue;
            };
            for port in PORTS {
                // Where everyone of the mesh is accepted, a certificate of the mesh is enough.
                let is_open = self.world.is_open(&workload.account.0);
                for caller in self.case.callers.iter().filter(|caller| !(is_open && caller.is_stranger)) {
                    let dial = Dial {
                        place: Place::Address {
                            address,
                            source: caller.outsider.address,
                            claims: caller.claims,
                        },
                        destination: workload.address.clone(),
                        port,
                        tls: caller.outsider.tls.as_ref().map(|tls| self.outsiders.of(caller, tls)),
                        server_name: caller.outsider.tls.as_ref().and_then(|tls| tls.server_name.clone()),
                    };
                    if let Some(found) = self.asks(&dial, &workload, caller) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    fn asks(&mut self, dial: &Dial<'_>, workload: &Workload, caller: &Caller) -> Option<Disagreement> {
        let requests: Vec<&Request> = self.case.requests.iter().collect();
        for (request, answer) in requests.iter().copied().zip(dial.ask(&requests)) {
            let ours = self.world.lets_in(workload, dial.port, &caller.outsider, request);
            let theirs = match answer {
                Answer::Response(200, _) => true,
                Answer::Response(403 | 404 | 426, _) | Answer::Closed => false,
                Answer::Response(400, _) | Answer::Malformed => continue,
                Answer::Response(status, _) => panic!("Envoy answers {status}"),
            };
            if theirs == ours {
                *(if ours { &mut self.tally.let_in } else { &mut self.tally.kept_out }) += 1;
                continue;
            }
            let what = format!(
                "{caller:?} asks port {} of {}: Envoy lets it in: {theirs}, the oracle: {ours}",
                dial.port,
                workload.id()
            );
            return Some(self.differ(Some(request), what).asked_by(caller));
        }
        None
    }
}
