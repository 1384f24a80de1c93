//! What servers let in.

use std::collections::BTreeMap;

use smc_policy::{Name, Request, Workload};

use crate::client::{Answer, Dial, Heard, Place};
use crate::generate::PORTS;
use crate::judge::{Disagreement, Round};

/// A connection to a port of a workload.
struct Call<'a> {
    source: &'a Name,
    workload: &'a Workload,
    port: u16,
    /// The service that the caller calls.
    called: Option<&'a Name>,
}

impl Call<'_> {
    fn differs(&self, what: &str) -> String {
        let Self { source, workload, port, called } = self;
        format!("{source:?} asks port {port} of {} as {called:?}: {what}", workload.id())
    }
}

impl Round<'_> {
    /// Each caller asks every port of every server. Where services share a port by their names, by each of
    /// these and by none. No caller gets in where no service leads.
    pub(crate) fn inbound(&mut self) -> Option<Disagreement> {
        for workload in self.world.workloads().to_vec() {
            let served = self.world.served(&workload);
            let served: BTreeMap<u16, Vec<Name>> = served
                .into_iter()
                .map(|(port, services)| (port, services.into_iter().cloned().collect()))
                .collect();
            let Some(socket) = self.sidecars[&workload.id()].inbound.clone() else {
                assert!(served.is_empty(), "a server listens");
                continue;
            };
            let closed =
                PORTS.iter().filter(|port| !served.contains_key(port)).map(|port| (*port, Vec::new()));
            let all: Vec<_> = served.clone().into_iter().chain(closed).collect();
            for (port, services) in &all {
                let shared = !services.is_empty() && self.world.speaks(&workload, *port, None).is_none();
                let names = services.iter().filter(|_| shared).map(Some).chain([None]);
                for called in names {
                    for (source, tls) in self.clients {
                        let dial = Dial {
                            place: Place::Socket(&socket),
                            destination: workload.address.clone(),
                            port: *port,
                            tls: Some(tls.clone()),
                            server_name: Some(called.map_or_else(|| "server.test".to_owned(), host_name)),
                        };
                        let call = Call { source, workload: &workload, port: *port, called };
                        self.tally.shared += u64::from(shared);
                        if let Some(found) = self.connection(&dial, &call) {
                            return Some(found);
                        }
                    }
                }
            }
        }
        None
    }

    fn connection(&mut self, dial: &Dial<'_>, call: &Call<'_>) -> Option<Disagreement> {
        let spoken = self.world.speaks(call.workload, call.port, call.called);
        if spoken.is_some_and(smc_policy::Protocol::is_http) {
            return self.requests(dial, call);
        }
        let account = &call.workload.account;
        let ours = spoken.is_some() && self.world.allows_connection(call.source, account, call.port);
        let what = match dial.hears() {
            Heard::Greeting if ours => {
                self.tally.connected += 1;
                return None;
            }
            Heard::Nothing if !ours => {
                self.tally.refused += 1;
                return None;
            }
            Heard::Greeting => verdict(true),
            Heard::Nothing => verdict(false),
            Heard::Requests => "Envoy reads requests, and the oracle says that none are spoken there",
        };
        Some(self.differ(None, call.differs(what)))
    }

    fn requests(&mut self, dial: &Dial<'_>, call: &Call<'_>) -> Option<Disagreement> {
        let requests: Vec<&Request> = self.case.requests.iter().collect();
        for (request, answer) in requests.iter().copied().zip(dial.ask(&requests)) {
            let ours = self.world.allows_request(call.source, &call.workload.account, call.port, request);
            let what = match self.allowed(request, &answer) {
                Ok(None) => continue,
                Ok(Some(theirs)) if theirs == ours => continue,
                Ok(Some(theirs)) => verdict(theirs).to_owned(),
                Err(what) => what,
            };
            return Some(self.differ(Some(request), call.differs(&what)));
        }
        None
    }

    /// Whether a request was let in; `None` if it is no HTTP to Envoy, and `Err` if Envoy said anything else.
    fn allowed(&mut self, request: &Request, answer: &Answer) -> Result<Option<bool>, String> {
        let tally = self.tally.requests(request.version);
        match answer {
            Answer::Response(200, _) => {
                tally.allowed += 1;
                Ok(Some(true))
            }
            // 404 without a path, 426 in HTTP/1.0.
            Answer::Response(403 | 404 | 426, _) => {
                tally.denied += 1;
                Ok(Some(false))
            }
            Answer::Response(400, _) | Answer::Malformed => {
                tally.malformed += 1;
                Ok(None)
            }
            Answer::Response(status, _) => Err(format!("Envoy answers {status}")),
            Answer::Closed => Err("Envoy reads no requests there".to_owned()),
        }
    }
}

/// The name of a service by which callers ask for it in the TLS handshake.
fn host_name((namespace, name): &Name) -> String {
    format!("{name}.{namespace}.svc.cluster.local")
}

fn verdict(allowed_by_envoy: bool) -> &'static str {
    if allowed_by_envoy {
        "Envoy allows it, and the oracle does not"
    } else {
        "the oracle allows it, and Envoy does not"
    }
}
