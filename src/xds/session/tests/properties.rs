//! Invariants that hold for any sequence of views and any speed of the client.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::model::{Envoy, Request};
use super::support::{CDS, ECDS, EDS, LDS, RDS, SDS, changes, view};
use crate::resource::ResourceType;
use crate::served_state::{Changed, View};
use crate::session::{Event, Response, Scope, Session, Step, Variant, Verdict};

/// A mesh with consistent references: what routes and listeners name exists.
#[derive(Debug, Clone)]
struct Mesh {
    /// By cluster: content and endpoints; `None` is absent.
    clusters: Vec<Option<(u8, u8)>>,
    secret: u8,
    /// By route: content and, as bits, clusters.
    routes: Vec<Option<(u8, u8)>>,
    /// By listener: content and, as bits, routes, each with the configuration of a filter, and clusters.
    listeners: Vec<Option<(u8, u8, u8)>>,
}

/// The content of a resource that the client rejects.
const BAD: u8 = 3;

impl Mesh {
    fn view(&self) -> View {
        let mut specs: Vec<(ResourceType, String, String)> =
            vec![(SDS, "s0".to_owned(), self.secret.to_string())];
        for (i, cluster) in self.clusters.iter().enumerate() {
            if let Some((content, endpoints)) = cluster {
                specs.push((CDS, format!("c{i}"), content.to_string()));
                specs.push((EDS, format!("c{i}"), endpoints.to_string()));
            }
        }
        let references = |letter: char, bits: u8, exists: &dyn Fn(usize) -> bool| {
            let names = (0..8).filter(|&i| bits & (1 << i) != 0 && exists(i));
            names.fold(String::new(), |text, i| format!("{text} {letter}{i}"))
        };
        let cluster = |i: usize| self.clusters.get(i).is_some_and(Option::is_some);
        let route = |i: usize| self.routes.get(i).is_some_and(Option::is_some);
        let label = |content: u8| if content == BAD { "bad".to_owned() } else { content.to_string() };
        for (i, spec) in self.routes.iter().enumerate() {
            if let Some((content, clusters)) = *spec {
                let references = references('c', clusters, &cluster);
                specs.push((RDS, format!("r{i}"), label(content) + &references));
                specs.push((ECDS, format!("x{i}"), label(content)));
            }
        }
        for (i, spec) in self.listeners.iter().enumerate() {
            if let Some((content, routes, clusters)) = *spec {
                let filters = references('x', routes, &route);
                let references = references('r', routes, &route) + &references('c', clusters, &cluster);
                let references = references + &filters + " s0";
                specs.push((LDS, format!("l{i}"), label(content) + &references));
            }
        }
        view(&specs.iter().map(|(kind, name, content)| (*kind, &**name, &**content)).collect::<Vec<_>>())
    }

    /// The same mesh without the resources that the client rejects.
    fn good(mut self) -> Self {
        self.routes.iter_mut().flatten().for_each(|route| route.0 %= BAD);
        self.listeners.iter_mut().flatten().for_each(|listener| listener.0 %= BAD);
        self
    }
}

#[derive(Debug, Clone)]
enum Op {
    Change(Mesh, bool),
    DeliverRequest,
    DeliverResponse,
    DrainsEnd,
    Reconnect,
}

/// A session, a model Envoy, and the messages between them.
struct Harness {
    variant: Variant,
    session: Session,
    view: Option<View>,
    envoy: Envoy,
    inbox: VecDeque<Response>,
    unanswered: BTreeMap<ResourceType, u64>,
    last_nonce: u64,
    /// The responses that the stream has carried.
    carried: Vec<Response>,
}

impl Harness {
    fn new(variant: Variant, applies_valid: bool) -> Self {
        Self {
            variant,
            session: Session::new(variant, Scope::Aggregated),
            view: None,
            envoy: Envoy::start(variant, applies_valid),
            inbox: VecDeque::new(),
            unanswered: BTreeMap::new(),
            last_nonce: 0,
            carried: Vec::new(),
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Change(mesh, exactly) => self.change(&mesh, exactly),
            Op::DeliverRequest => self.deliver_request(),
            Op::DeliverResponse => {
                if let Some(response) = self.inbox.pop_front() {
                    self.envoy.receive(&response);
                }
            }
            Op::DrainsEnd => self.envoy.end_drains(),
            Op::Reconnect => self.reconnect(),
        }
    }

    fn change(&mut self, mesh: &Mesh, exactly: bool) {
        let new = mesh.view();
        let names = match &self.view {
            Some(old) if exactly => changes(old, &new),
            _ => Changed::Everything,
        };
        let step = self.session.on_view(&new, &names);
        self.view = Some(new);
        self.take(step);
    }

    fn deliver_request(&mut self) {
        let Some(request) = self.envoy.outbox.pop_front() else { return };
        let view = self.view.as_ref();
        let step = match &request {
            Request::Sotw(request) => self.session.on_sotw(request, view),
            Request::Delta(request) => self.session.on_delta(request, view),
        };
        self.take(step.unwrap());
    }

    fn take(&mut self, step: Step) {
        for event in step.events {
            if let Event::Answered { kind, verdict } = event {
                let (Verdict::Acked { nonce, .. } | Verdict::Rejected { nonce, .. }) = verdict;
                assert_eq!(self.unanswered.remove(&kind), Some(nonce));
            }
        }
        for response in step.responses {
            let nonce = response.nonce.parse().unwrap();
            assert_eq!(nonce, self.last_nonce + 1);
            self.last_nonce = nonce;
            let before = self.unanswered.insert(response.kind, nonce);
            assert_eq!(before, None, "a response of a type that has one unanswered");
            let view = self.view.as_ref().expect("nothing is answered without a view");
            for resource in &response.resources {
                let current = view.get(response.kind, &resource.name).map(|r| r.version);
                let retained = current.is_none() && self.variant == Variant::Sotw && response.kind == CDS;
                assert!(retained || current == Some(resource.version), "not of the view: {resource:?}");
            }
            for name in &response.removed {
                assert!(view.get(response.kind, name).is_none(), "removed although it exists: {name}");
            }
            self.carried.push(response.clone());
            self.inbox.push_back(response);
        }
    }

    fn reconnect(&mut self) {
        self.session = Session::new(self.variant, Scope::Aggregated);
        self.inbox.clear();
        self.unanswered.clear();
        self.last_nonce = 0;
        self.carried.clear();
        self.envoy.reconnect();
        // A State-of-the-World stream does not know what a resuming client holds. A Delta stream does
        // not know that a client without listeners, which has no traffic to break, holds back its
        // clusters.
        self.envoy.strict &= self.variant == Variant::Delta && !self.envoy.starts_with_clusters_held_back();
    }

    /// Delivers messages until none is left.
    fn drain(&mut self) {
        for _ in 0..2000 {
            self.run(Op::DeliverRequest);
            self.run(Op::DeliverResponse);
            if !(self.inbox.is_empty() && self.envoy.outbox.is_empty()) {
                continue;
            }
            if self.variant == Variant::Delta || self.envoy.is_warm() {
                return;
            }
            // State of the World cannot say that endpoints do not exist.
            self.envoy.time_out();
        }
        panic!("no end");
    }

    fn assert_converged(&self) {
        assert!(self.envoy.is_warm(), "a cluster waits for ever: {:?}", self.envoy);
        assert!(self.session.acknowledged(), "{:?}", self.session.status());
        let view = self.view.as_ref().unwrap();
        for kind in ResourceType::ALL {
            let wanted = |name: &str| kind.is_wildcard() || self.envoy.names(kind).contains(name);
            let resources = view.all(kind).filter(|resource| wanted(&resource.name));
            let expected: BTreeMap<_, _> =
                resources.map(|r| (r.name.to_string(), r.version.to_string())).collect();
            assert_eq!(self.envoy.holds(kind), expected, "{}", kind.short());
            if let Some(status) = self.session.status().types.get(&kind) {
                assert_eq!(status.acked, expected, "{}", kind.short());
                assert!(status.rejected.is_empty(), "{:?}", status.rejected);
            }
        }
    }
}

fn mesh() -> impl Strategy<Value = Mesh> {
    let cluster = proptest::option::weighted(0.7, (0..3_u8, 0..3_u8));
    let route = proptest::option::weighted(0.8, (0..=BAD, 0..16_u8));
    let listener = proptest::option::weighted(0.8, (0..=BAD, 0..4_u8, 0..16_u8));
    (
        proptest::collection::vec(cluster, 4),
        0..2_u8,
        proptest::collection::vec(route, 2),
        proptest::collection::vec(listener, 3),
    )
        .prop_map(|(clusters, secret, routes, listeners)| Mesh { clusters, secret, routes, listeners })
}

fn ops(reconnects: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (mesh(), any::<bool>()).prop_map(|(mesh, exactly)| Op::Change(mesh, exactly)),
        12 => Just(Op::DeliverRequest),
        12 => Just(Op::DeliverResponse),
        1 => Just(Op::DrainsEnd),
        reconnects => Just(Op::Reconnect),
    ];
    proptest::collection::vec(op, 1..120)
}

fn run(variant: Variant, applies_valid: bool, ops: Vec<Op>, last: Mesh) -> Harness {
    let mut harness = Harness::new(variant, applies_valid);
    for op in ops {
        harness.run(op);
    }
    harness.change(&last.good(), true);
    harness.drain();
    harness.run(Op::DrainsEnd);
    harness.drain();
    harness.assert_converged();
    harness
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_delta_client_has_no_dangling_reference_and_ends_with_the_view(ops in ops(1), last in mesh()) {
        let mut harness = run(Variant::Delta, false, ops, last);
        harness.reconnect();
        harness.drain();
        harness.assert_converged();
        prop_assert!(!harness.carried.is_empty(), "a silent resume doubles Envoy's back-off");
        for response in &harness.carried {
            prop_assert!(response.resources.is_empty() && response.removed.is_empty(), "{response:?}");
        }
    }

    #[test]
    fn a_delta_client_that_applies_valid_resources_ends_with_the_view(
        ops in ops(0),
        last in mesh(),
    ) {
        run(Variant::Delta, true, ops, last);
    }

    #[test]
    fn a_sotw_client_has_no_dangling_reference_and_ends_with_the_view(
        ops in ops(1),
        last in mesh(),
    ) {
        let mut harness = run(Variant::Sotw, false, ops, last);
        harness.reconnect();
        harness.drain();
        harness.assert_converged();
        let wildcard = |response: &&Response| response.kind.is_wildcard();
        prop_assert_eq!(harness.carried.iter().filter(wildcard).count(), 0, "CDS and LDS were current");
    }

    #[test]
    fn a_sotw_client_that_applies_valid_resources_ends_with_the_view(ops in ops(0), last in mesh()) {
        run(Variant::Sotw, true, ops, last);
    }
}
