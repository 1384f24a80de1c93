//! Both judgements, and where they differ.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use smc_decode::manifest;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::translate::{Compiler, Input};
use smc_policy::{Name, Request, World};
use smc_testkit::mesh::{certify, compiler};

use crate::certificates::Certificates;
use crate::client::{self, Application};
use crate::config::{Config, Sidecar};
use crate::envoy::Envoy;
use crate::generate::{ACCOUNTS, Case};
use crate::outside::Outsiders;
use crate::outsiders::Caller;
use crate::tally::Tally;

/// What Envoy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emission {
    /// What proxies are served.
    AsServed,
    /// The same with an old fault put back: a header that is sent twice passes if one value matches.
    AnyHeaderValueSuffices,
    /// The same, and every request passes that HTTP/2 alone can make: one without a length.
    Http2Passes,
    /// The same, but services that share a port of a pod have each other's names there.
    ServerNamesExchanged,
    /// The same, but where a client of an ingress says that it is decides, and not where it is.
    ClaimedAddressesDecide,
    /// The same, without the addresses of IngressBackends.
    AddressesForgotten,
    /// The same, without their names of servers.
    ServerNamesForgotten,
}

/// A question on which Envoy and the oracle differ.
pub(crate) struct Disagreement {
    /// The mesh, with at most one request.
    pub(crate) case: Case,
    what: String,
}

impl Disagreement {
    /// The same, of one client outside of the mesh.
    pub(crate) fn asked_by(mut self, caller: &Caller) -> Self {
        self.case.callers = vec![caller.clone()];
        self
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (SMC_SEED={} SMC_CASES=1)\n{}", self.what, self.case.seed, self.case.yaml())?;
        for request in &self.case.requests {
            writeln!(f, "\n{} {} {:?}", request.method, request.target, request.version)?;
            for (name, value) in request.headers.iter().chain(&request.trailers) {
                writeln!(f, "{name}: {}", value.escape_ascii())?;
            }
        }
        Ok(())
    }
}

/// Asks all questions to all meshes, of one Envoy, until the first disagreement.
pub(crate) fn judge(cases: &[Case], emission: Emission, tally: &mut Tally) -> Option<Disagreement> {
    let certificates = Certificates::new();
    let clients = ACCOUNTS.iter().map(|(namespace, account)| {
        let identity = &certificates.identities[&format!("{namespace}/{account}")];
        (((*namespace).to_owned(), (*account).to_owned()), client::tls(Some(identity)))
    });
    let clients: BTreeMap<Name, _> = clients.collect();
    let directory = tempfile::tempdir().unwrap();
    let _application = Application::start(Config::application(directory.path()));
    let outsiders = Outsiders::new(&certificates);
    let at_addresses = cases.iter().any(|case| !case.callers.is_empty());
    let mut config = Config::new(directory.path(), emission, at_addresses);
    let sidecars: Vec<_> = cases
        .iter()
        .zip(0..)
        .map(|(case, number)| deploy(case, number, &certificates, &mut config))
        .collect();
    let (bootstrap, last) = config.finish();
    let _envoy = Envoy::start(directory.path(), &bootstrap, &last)
        .unwrap_or_else(|said| panic!("Envoy refuses what it is served:\n{said}"));
    for (case, sidecars) in cases.iter().zip(&sidecars) {
        tally.meshes += 1;
        let world = World::read(&case.yaml()).unwrap_or_else(|error| panic!("{error}:\n{}", case.yaml()));
        let (clients, outsiders) = (&clients, &outsiders);
        let mut round = Round { case, world, sidecars, clients, outsiders, tally: &mut *tally };
        let found = if case.callers.is_empty() {
            round.inbound().or_else(|| round.outbound())
        } else {
            round.outside()
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Translates a mesh as the controller does, and adds its sidecars: one for each workload, by its name.
fn deploy(
    case: &Case,
    number: usize,
    certificates: &Certificates,
    config: &mut Config,
) -> BTreeMap<String, Sidecar> {
    let read = manifest::read("mesh.yaml", case.yaml().as_bytes());
    assert!(read.complete, "{:?}", read.problems);
    let mut compiler: Compiler = compiler(&certificates.root);
    compiler.apply(certificates.identities.iter().map(|(name, id)| certify(name, &id.chain, &id.key)));
    let objects: Vec<Object> =
        read.declarations.iter().filter_map(|declaration| declaration.object.clone()).collect();
    let workloads = objects.iter().filter_map(|object| match object {
        Object::Workload(workload) => Some((workload.id.to_string(), workload.proxy_name())),
        _ => None,
    });
    let workloads: Vec<_> = workloads.collect();
    compiler.apply(objects.into_iter().map(|object| Input::Source(SourceEvent::Upsert(object))));
    // Pods of a gateway have no sidecar.
    let workloads = workloads.into_iter().filter(|(id, _)| !id.starts_with("edge/"));
    let sidecars = workloads.zip(0..).map(|((id, proxy), at): (_, usize)| {
        let view = compiler.served_state().view(&proxy).expect("every workload has a snapshot");
        (id, config.add(&format!("{number}-{at}"), &view))
    });
    sidecars.collect()
}

/// One mesh.
pub(crate) struct Round<'a> {
    pub(crate) case: &'a Case,
    pub(crate) world: World,
    /// By the name of the workload.
    pub(crate) sidecars: &'a BTreeMap<String, Sidecar>,
    /// By the account of the caller.
    pub(crate) clients: &'a BTreeMap<Name, Arc<ClientConfig>>,
    pub(crate) outsiders: &'a Outsiders,
    pub(crate) tally: &'a mut Tally,
}

impl Round<'_> {
    pub(crate) fn differ(&self, request: Option<&Request>, what: String) -> Disagreement {
        let requests = request.into_iter().cloned().collect();
        Disagreement { case: Case { requests, ..self.case.clone() }, what }
    }
}
