//! A cluster that changes, and a server that repeats itself, loses watches and lists again, in any order:
//! in the end, what was sent is what there is.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// One step of the cluster, or of the connection to it.
#[derive(Debug, Clone)]
enum Step {
    /// The namespace is labelled for a mesh, or is deleted.
    Namespace(usize, Option<bool>),
    /// The account is there, or is gone.
    Account(usize, usize, bool),
    /// The Telemetry of the namespace is there, or is gone.
    Telemetry(usize, bool),
    /// The next events of all kinds arrive.
    Deliver,
    /// The latest events arrive once more.
    Repeat(usize),
    /// The watch is lost; a list replaces what it missed.
    List(bool),
    /// A list begins and breaks off after some objects.
    BrokenList,
    /// The namespaces that entered are listed.
    Enter,
    /// A batch is taken.
    Take,
}

/// The last is the control plane's own.
const NAMESPACES: [&str; 3] = ["a", "b", "own"];

const OWN: usize = 2;

/// The cluster: its objects, its history, and how far each watch is.
#[derive(Default)]
struct Cluster {
    version: u64,
    namespaces: BTreeMap<usize, (bool, u64)>,
    accounts: BTreeMap<(usize, usize), u64>,
    telemetries: BTreeMap<usize, u64>,
    history: Vec<(Kind, Change)>,
    delivered: usize,
    /// The namespaces that were listed, by the number of their entry.
    listed: Scope,
    /// The order to list that the readers follow.
    epoch: u64,
}

fn deleted(kind: Kind, object: &Value) -> Change {
    let Arrived { reference, version, .. } = arrived(kind, object);
    Change::Deleted(reference, version)
}

fn name(namespace: usize, account: usize) -> String {
    format!("{}/x{account}", NAMESPACES[namespace])
}

fn mesh_name(ours: bool) -> &'static str {
    if ours { "smc" } else { "osm" }
}

impl Cluster {
    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn step(&mut self, step: &Step, mesh: &mut Mesh, sent: &mut BTreeSet<String>) {
        match *step {
            Step::Namespace(at, Some(ours)) => {
                self.version += 1;
                self.namespaces.insert(at, (ours, self.version));
                let object = namespace_object(NAMESPACES[at], mesh_name(ours), self.version);
                self.history.push((Kind::Namespace, Change::Applied(arrived(Kind::Namespace, &object))));
            }
            Step::Namespace(at, None) => {
                // As in Kubernetes, its objects go first.
                for account in 0..3 {
                    self.step(&Step::Account(at, account, false), mesh, sent);
                }
                self.step(&Step::Telemetry(at, false), mesh, sent);
                if let Some((ours, _)) = self.namespaces.remove(&at) {
                    self.version += 1;
                    let object = namespace_object(NAMESPACES[at], mesh_name(ours), self.version);
                    self.history.push((Kind::Namespace, deleted(Kind::Namespace, &object)));
                }
            }
            Step::Account(at, number, true) => {
                if self.namespaces.contains_key(&at) {
                    self.version += 1;
                    self.accounts.insert((at, number), self.version);
                    let object = account(&name(at, number), self.version);
                    self.history.push((
                        Kind::ServiceAccount,
                        Change::Applied(arrived(Kind::ServiceAccount, &object)),
                    ));
                }
            }
            Step::Account(at, number, false) => {
                if self.accounts.remove(&(at, number)).is_some() {
                    self.version += 1;
                    let object = account(&name(at, number), self.version);
                    self.history.push((Kind::ServiceAccount, deleted(Kind::ServiceAccount, &object)));
                }
            }
            Step::Telemetry(at, true) => {
                if self.namespaces.contains_key(&at) {
                    self.version += 1;
                    self.telemetries.insert(at, self.version);
                    let object = telemetry(NAMESPACES[at], self.version);
                    self.history.push((Kind::Telemetry, Change::Applied(arrived(Kind::Telemetry, &object))));
                }
            }
            Step::Telemetry(at, false) => {
                if self.telemetries.remove(&at).is_some() {
                    self.version += 1;
                    let object = telemetry(NAMESPACES[at], self.version);
                    self.history.push((Kind::Telemetry, deleted(Kind::Telemetry, &object)));
                }
            }
            Step::Deliver => {
                for (kind, change) in &self.history[self.delivered..] {
                    mesh.store.apply(*kind, self.epoch, change.clone());
                }
                self.delivered = self.history.len();
            }
            Step::Repeat(count) => {
                let from = self.delivered.saturating_sub(count);
                for (kind, change) in &self.history[from..self.delivered] {
                    mesh.store.apply(*kind, self.epoch, change.clone());
                }
            }
            Step::List(namespaces) => {
                // A list is as new as anything; both watches go on from there.
                self.epoch = mesh.store.epoch();
                self.delivered = self.history.len();
                let (all, version) = (self.namespaces(), self.version);
                let list_namespaces = |mesh: &mut Mesh| mesh.list(Kind::Namespace, version, &all);
                if namespaces {
                    list_namespaces(mesh);
                }
                self.listed = (*mesh.scope()).clone();
                mesh.list(Kind::ServiceAccount, self.version, &self.accounts(None));
                mesh.list(Kind::TrafficTarget, self.version, &[]);
                mesh.list(Kind::Telemetry, self.version, &self.telemetries(None));
                if !namespaces {
                    list_namespaces(mesh);
                }
            }
            Step::BrokenList => {
                self.step(&Step::Deliver, mesh, sent);
                let some: Vec<Value> = self.accounts(None).into_iter().take(2).collect();
                mesh.list_unended(Kind::ServiceAccount, &some);
            }
            Step::Enter => {
                // The list is of the version that the watch has come to.
                self.step(&Step::Deliver, mesh, sent);
                let scope = mesh.scope();
                self.listed.retain(|namespace, _| scope.contains_key(namespace));
                for (namespace, entry) in scope.iter() {
                    if self.listed.get(namespace) != Some(entry) {
                        mesh.list_in(
                            Kind::ServiceAccount,
                            namespace,
                            self.version,
                            &self.accounts(Some(namespace)),
                        );
                        mesh.list_in(Kind::TrafficTarget, namespace, self.version, &[]);
                        // It is read in the control plane's own without an end.
                        if namespace != NAMESPACES[OWN] {
                            let of = self.telemetries(Some(namespace));
                            mesh.list_in(Kind::Telemetry, namespace, self.version, &of);
                        }
                        self.listed.insert(namespace.clone(), *entry);
                    }
                }
            }
            Step::Take => {
                for event in mesh.next().unwrap_or_default() {
                    match event.split_at(1) {
                        ("+", object) => _ = sent.insert(object.to_owned()),
                        (_, object) => assert!(sent.remove(object), "{object} was never sent"),
                    }
                }
            }
        }
    }

    fn namespaces(&self) -> Vec<Value> {
        let object = |(at, (ours, version)): (&usize, &(bool, u64))| {
            namespace_object(NAMESPACES[*at], mesh_name(*ours), *version)
        };
        self.namespaces.iter().map(object).collect()
    }

    fn accounts(&self, of: Option<&str>) -> Vec<Value> {
        let accounts = self.accounts.iter().filter(|((at, _), _)| of.is_none_or(|of| NAMESPACES[*at] == of));
        accounts.map(|((at, number), version)| account(&name(*at, *number), *version)).collect()
    }

    fn telemetries(&self, of: Option<&str>) -> Vec<Value> {
        let telemetries =
            self.telemetries.iter().filter(|(at, _)| of.is_none_or(|of| NAMESPACES[**at] == of));
        telemetries.map(|(at, version)| telemetry(NAMESPACES[*at], *version)).collect()
    }

    /// What the mesh has to be.
    fn expected(&self) -> BTreeSet<String> {
        let ours = |at: &usize| self.namespaces.get(at).is_some_and(|(ours, _)| *ours);
        let namespaces = NAMESPACES.iter().enumerate().filter(|(at, _)| ours(at));
        let namespaces = namespaces.map(|(_, name)| format!("Namespace {name}"));
        let accounts = self.accounts.keys().filter(|(at, _)| ours(at));
        let accounts = accounts.map(|(at, number)| format!("ServiceAccount {}", name(*at, *number)));
        let telemetries = self.telemetries.keys().filter(|at| **at == OWN || ours(at));
        let telemetries = telemetries.map(|at| format!("Telemetry {}/log", NAMESPACES[*at]));
        namespaces.chain(accounts).chain(telemetries).collect()
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize, prop::option::weighted(0.8, any::<bool>())).prop_map(|(at, ours)| Step::Namespace(at, ours)),
        5 => (0..3usize, 0..3usize, any::<bool>()).prop_map(|(at, number, there)| Step::Account(at, number, there)),
        3 => (0..3usize, any::<bool>()).prop_map(|(at, there)| Step::Telemetry(at, there)),
        4 => Just(Step::Deliver),
        2 => (1..6usize).prop_map(Step::Repeat),
        1 => any::<bool>().prop_map(Step::List),
        1 => Just(Step::BrokenList),
        2 => Just(Step::Enter),
        3 => Just(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_what_was_sent_becomes_what_there_is(steps in prop::collection::vec(step(), 1..60)) {
        let (mut cluster, mut mesh, mut sent) = (Cluster::default(), Mesh::with_telemetries(), BTreeSet::new());
        for kind in [Kind::TrafficTarget, Kind::MeshConfig] {
            mesh.list(kind, 0, &[]);
        }
        for step in [&[Step::List(true)][..], &steps].concat() {
            cluster.step(&step, &mut mesh, &mut sent);
            if mesh.store.epoch() != cluster.epoch {
                // What the server repeated was never heard: it looks like another history.
                cluster.step(&Step::List(true), &mut mesh, &mut sent);
            }
        }
        for step in [Step::Deliver, Step::Enter, Step::Take] {
            cluster.step(&step, &mut mesh, &mut sent);
        }
        prop_assert_eq!(sent, cluster.expected());
    }
}
