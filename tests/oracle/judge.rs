//! Both judgements, and where they differ.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use smc::decode::manifest;
use smc_mesh::catalog::SourceEvent;
use smc_mesh::translate::{Compiler, Input};
use smc_policy::{Protocol, Request, World};
use smc_testkit::mesh::{certify, compiler, view};

use crate::certificates::Certificates;
use crate::client::{self, Answer, Application, Dial};
use crate::config::{Config, Sidecar};
use crate::envoy::Envoy;
use crate::generate::{ACCOUNTS, Case, pod_address};

/// What Envoy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emission {
    /// What proxies are served.
    AsServed,
    /// The same with an old fault put back.
    AnyHeaderValueSuffices,
}

/// A question on which Envoy and the oracle differ.
pub(crate) struct Disagreement {
    /// The mesh, with at most one request.
    pub(crate) case: Case,
    what: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (SMC_SEED={} SMC_CASES=1)\n{}", self.what, self.case.seed, self.case.yaml())?;
        for request in &self.case.requests {
            writeln!(f, "\n{} {}", request.method, request.target)?;
            for (name, value) in &request.headers {
                writeln!(f, "{name}: {}", value.escape_ascii())?;
            }
        }
        Ok(())
    }
}

/// How much was asked, and with which answers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    meshes: u64,
    allowed: u64,
    denied: u64,
    malformed: u64,
    routed: u64,
    elsewhere: u64,
    connected: u64,
    refused: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { meshes, allowed, denied, malformed, routed, elsewhere, connected, refused } = self;
        write!(
            f,
            "{meshes} meshes; requests: {allowed} allowed, {denied} denied, {malformed} malformed; routed: {routed}, \
             {elsewhere} of them by a split; connections: {connected} let in, {refused} refused"
        )
    }
}

impl Tally {
    /// Every answer was given often: nothing is agreed upon because nothing happens.
    pub(crate) fn assert_that_it_says_something(&self) {
        let Self { meshes, allowed, denied, malformed, elsewhere, connected, refused, .. } = self;
        if *meshes < 40 {
            return;
        }
        let often =
            [allowed, denied, elsewhere, connected, refused].into_iter().all(|count| count * 4 >= *meshes);
        assert!(often && malformed * 4 < allowed + denied, "{self}");
        assert!(allowed * 6 >= allowed + denied, "most requests are denied, whatever the policy: {self}");
    }
}

/// The outcome of all questions to all meshes, of one Envoy. At most one disagreement for each mesh.
pub(crate) fn judge(cases: &[Case], emission: Emission, tally: &mut Tally) -> Vec<Disagreement> {
    let certificates = Certificates::new();
    let clients: Vec<_> = ACCOUNTS
        .iter()
        .map(|(namespace, account)| client::tls(&certificates.identities[&format!("{namespace}/{account}")]))
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let _application = Application::start(Config::application(directory.path()));
    let mut config = Config::new(directory.path(), emission);
    let sidecars: Vec<_> = cases
        .iter()
        .zip(0..)
        .map(|(case, number)| deploy(case, number, &certificates, &mut config))
        .collect();
    let (bootstrap, last) = config.finish();
    let envoy = Envoy::start(directory.path(), &bootstrap, &last)
        .unwrap_or_else(|said| panic!("Envoy refuses what it is served:\n{said}"));
    let mut found = Vec::new();
    for (case, sidecars) in cases.iter().zip(&sidecars) {
        tally.meshes += 1;
        let world = World::read(&case.yaml()).unwrap_or_else(|error| panic!("{error}:\n{}", case.yaml()));
        let mut round = Round { case, world, sidecars, clients: &clients, tally: &mut *tally };
        found.extend(round.inbound().or_else(|| round.outbound()));
    }
    drop(envoy);
    found
}

/// Translates a mesh as the controller does, and adds its sidecars: one for each account.
fn deploy(case: &Case, number: usize, certificates: &Certificates, config: &mut Config) -> Vec<Sidecar> {
    let read = manifest::read("mesh.yaml", case.yaml().as_bytes());
    assert!(read.complete, "{:?}", read.problems);
    let mut compiler: Compiler = compiler(&certificates.root);
    compiler.apply(certificates.identities.iter().map(|(name, id)| certify(name, &id.chain, &id.key)));
    let objects = read.declarations.iter().filter_map(|declaration| declaration.object.clone());
    compiler.apply(objects.map(|object| Input::Source(SourceEvent::Upsert(object))));
    let accounts = ACCOUNTS.iter().zip(0..);
    accounts
        .map(|((namespace, account), at): (_, usize)| {
            let view = view(&compiler, &format!("{namespace}/{account}")).expect("every pod has a snapshot");
            config.add(&format!("{number}-{at}"), &view)
        })
        .collect()
}

/// One mesh.
struct Round<'a> {
    case: &'a Case,
    world: World,
    sidecars: &'a [Sidecar],
    clients: &'a [Arc<ClientConfig>],
    tally: &'a mut Tally,
}

impl Round<'_> {
    fn differ(&self, request: Option<&Request>, what: String) -> Disagreement {
        let requests = request.into_iter().cloned().collect();
        Disagreement { case: Case { requests, ..self.case.clone() }, what }
    }

    /// Everybody asks every port of every server.
    fn inbound(&mut self) -> Option<Disagreement> {
        for (to, destination) in ACCOUNTS.iter().enumerate() {
            let ports = self.world.pod_ports(*destination);
            let Some(socket) = &self.sidecars[to].inbound else {
                assert!(ports.is_empty(), "a server listens");
                continue;
            };
            for (from, source) in ACCOUNTS.iter().enumerate() {
                for port in &ports {
                    let dial = Dial {
                        socket,
                        destination: pod_address(to),
                        port: port.target,
                        tls: Some(Arc::clone(&self.clients[from])),
                    };
                    let who = format!("{source:?} asks port {} of {destination:?}", port.target);
                    if port.protocol == Protocol::Tcp {
                        let (theirs, ours) = (
                            dial.greeted(),
                            self.world.allows_connection(*source, *destination, port.target),
                        );
                        if theirs != ours {
                            return Some(self.differ(None, format!("{who}: {}", verdict(theirs))));
                        }
                        *(if theirs { &mut self.tally.connected } else { &mut self.tally.refused }) += 1;
                        continue;
                    }
                    let requests: Vec<&Request> = self.case.requests.iter().collect();
                    for (request, answer) in requests.iter().copied().zip(dial.ask(&requests)) {
                        let ours = self.world.allows_request(*source, *destination, port.target, request);
                        if let Some(theirs) = self.allowed(&answer)
                            && theirs != ours
                        {
                            return Some(self.differ(Some(request), format!("{who}: {}", verdict(theirs))));
                        }
                    }
                }
            }
        }
        None
    }

    /// Whether a request was let in; `None` if it is no HTTP to Envoy.
    fn allowed(&mut self, answer: &Answer) -> Option<bool> {
        match answer {
            Some((200, _)) => self.tally.allowed += 1,
            Some((403, _)) => self.tally.denied += 1,
            Some((400, _)) => self.tally.malformed += 1,
            other => panic!("{other:?}"),
        }
        match answer {
            Some((200, _)) => Some(true),
            Some((403, _)) => Some(false),
            _ => None,
        }
    }

    /// Every account asks every service port that it knows.
    fn outbound(&mut self) -> Option<Disagreement> {
        let services: Vec<(String, String)> =
            self.world.services().map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect();
        for (from, source) in ACCOUNTS.iter().enumerate() {
            for (namespace, name) in &services {
                let service = (&**namespace, &**name);
                let ports: Vec<_> = self
                    .world
                    .service_ports(service)
                    .iter()
                    .copied()
                    .filter(|port| port.protocol.is_http())
                    .collect();
                let Some(address) = self.address(service) else { continue };
                for port in ports {
                    let dial = Dial {
                        socket: &self.sidecars[from].outbound,
                        destination: address.clone(),
                        port: port.port,
                        tls: None,
                    };
                    let requests: Vec<&Request> = self.case.requests.iter().collect();
                    let answers = dial.ask(&requests[..1.min(requests.len())]);
                    if matches!(&answers[..], [None] | []) {
                        continue;
                    }
                    for (request, answer) in requests.iter().copied().zip(dial.ask(&requests)) {
                        let Some((200, body)) = answer.filter(|_| request.method != "HEAD") else { continue };
                        let theirs: BTreeSet<String> = body.split(' ').map(service_of).collect();
                        let ours = self.world.goes_to(service, port.port, request);
                        if theirs != ours {
                            let what = format!(
                                "{source:?} asks {service:?} port {}: Envoy sends it to {theirs:?}, the oracle to {ours:?}",
                                port.port
                            );
                            return Some(self.differ(Some(request), what));
                        }
                        self.tally.routed += 1;
                        self.tally.elsewhere += u64::from(ours != BTreeSet::from([name.clone()]));
                    }
                }
            }
        }
        None
    }

    fn address(&self, service: (&str, &str)) -> Option<String> {
        let found = self.case.objects.iter().find(|object| {
            object["kind"] == "Service"
                && object["metadata"]["namespace"] == service.0
                && object["metadata"]["name"] == service.1
        });
        found.and_then(|object| object["spec"]["clusterIP"].as_str()).map(str::to_owned)
    }
}

fn verdict(allowed_by_envoy: bool) -> &'static str {
    if allowed_by_envoy {
        "Envoy allows it, and the oracle does not"
    } else {
        "the oracle allows it, and Envoy does not"
    }
}

/// The name of the service of a cluster, `namespace/name|port`.
fn service_of(cluster: &str) -> String {
    let name = cluster.split_once('/').map_or(cluster, |(_, name)| name);
    name.split('|').next().unwrap_or_default().to_owned()
}
