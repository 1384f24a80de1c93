//! Where sidecars send what applications ask.

use std::collections::BTreeSet;

use smc_policy::{Leaf, Name, Port, Request, To, Workload};

use crate::client::{Answer, Dial, Place};
use crate::clusters;
use crate::generate::MACHINES;
use crate::judge::{Disagreement, Round};

/// A connection of a workload's application to a service port.
struct Call<'a> {
    workload: &'a Workload,
    service: &'a Name,
    port: &'a Port,
    dial: Dial<'a>,
}

impl Round<'_> {
    /// Every workload dials every address.
    pub(crate) fn outbound(&mut self) -> Option<Disagreement> {
        for workload in self.world.workloads().to_vec() {
            for (address, number) in self.world.addresses() {
                let sidecar = &self.sidecars[&workload.id()];
                let dial = Dial {
                    place: Place::Socket(&sidecar.outbound),
                    destination: address,
                    port: number,
                    tls: None,
                    server_name: None,
                };
                let taken = self.world.taken_by(&workload.account, &dial.destination, number);
                let taken = taken.map(|(service, port)| (service.clone(), port.clone()));
                let found = match &taken {
                    None => self.closed(&workload, &dial),
                    Some((service, port)) => {
                        let call = Call { workload: &workload, service, port, dial };
                        if port.protocol.is_http() { self.routes(&call) } else { self.carries(&call) }
                    }
                };
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// A connection that belongs to no service of the caller.
    fn closed(&mut self, workload: &Workload, dial: &Dial<'_>) -> Option<Disagreement> {
        self.tally.closed += 1;
        let said = dial.is_told();
        (said.as_deref() != Some("")).then(|| {
            let (id, to, port) = (workload.id(), &dial.destination, dial.port);
            self.differ(
                None,
                format!("{id} dials {to}:{port}: Envoy takes it, and the oracle does not: {said:?}"),
            )
        })
    }

    /// A connection that is not HTTP.
    fn carries(&mut self, call: &Call<'_>) -> Option<Disagreement> {
        let ours = self.world.goes_to(&call.workload.account, call.service, call.port, None);
        let said = call.dial.is_told();
        self.compare(call, None, said.as_deref(), &ours)
    }

    fn routes(&mut self, call: &Call<'_>) -> Option<Disagreement> {
        let requests: Vec<&Request> = self.case.requests.iter().collect();
        for (request, answer) in requests.iter().copied().zip(call.dial.ask(&requests)) {
            let Some(sent) = request.sent_on(call.service) else {
                if matches!(answer, Answer::Response(400 | 404, _)) {
                    continue;
                }
                let what = format!("{} sends on what has no path: {answer:?}", call.workload.id());
                return Some(self.differ(Some(request), what));
            };
            let said = match answer {
                // The answer has no body.
                Answer::Response(200, _) if request.method == "HEAD" || request.offers_websocket() => {
                    continue;
                }
                Answer::Response(400, _) | Answer::Malformed => continue,
                Answer::Response(200, body) => Some(body),
                Answer::Response(status, _) => Some(format!("status {status}")),
                Answer::Closed => None,
            };
            let ours = self.world.goes_to(&call.workload.account, call.service, call.port, Some(&sent));
            let found = self.compare(call, Some(request), said.as_deref(), &ours);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn compare(
        &mut self,
        call: &Call<'_>,
        request: Option<&Request>,
        said: Option<&str>,
        ours: &BTreeSet<Leaf>,
    ) -> Option<Disagreement> {
        let theirs = said.and_then(clusters::leaves);
        if theirs.as_ref() != Some(ours) {
            let Call { workload, service, dial, .. } = call;
            let (id, to, port) = (workload.id(), &dial.destination, dial.port);
            let what = format!(
                "{id} dials {to}:{port}, which is {service:?}: Envoy sends it to {said:?}, the oracle to {ours:?}"
            );
            return Some(self.differ(request, what));
        }
        self.tally.routed += 1;
        self.tally.elsewhere += u64::from(ours.iter().any(|leaf| leaf.service != *call.service));
        let to_machine = |leaf: &Leaf| match &leaf.to {
            To::OneOf(ends) => ends.iter().any(|(address, _)| address.starts_with(MACHINES)),
            To::Dialled => false,
        };
        self.tally.machines += u64::from(ours.iter().any(to_machine));
        self.tally.dialled += u64::from(ours.iter().any(|leaf| leaf.to == To::Dialled));
        None
    }
}
