//! A model of Envoy's side of an aggregated stream, as `NewGrpcMuxImpl`, `GrpcMuxImpl` and
//! `ClusterManagerImpl` behave:
//!
//! - it subscribes to clusters first, to listeners once those are warm, to endpoints, routes, configurations
//!   of filters and secrets when a resource it applied refers to them, and unsubscribes when none does;
//! - it holds back the answer to CDS while a cluster warms, and a new or changed cluster warms until its
//!   endpoints arrive after it, on this stream or on the next;
//! - on a new stream it states all its subscriptions at once, in the order in which it first made them,
//!   except CDS while a cluster warms: that follows when all are warm;
//! - in Delta it does not subscribe again to endpoints it subscribed to, whatever happens to the cluster;
//! - it rejects resources whose content says `bad`;
//! - listeners that are replaced are drained, and refer to the configurations of their filters until then.
//!
//! It fails the test when it holds a listener or route that refers to a cluster it does not hold, and when it
//! loses the configuration of a filter that something refers to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::support::{CDS, ECDS, EDS, LDS, RDS, SDS, delta, error, sotw};
use crate::resource::{Resource, ResourceType};
use crate::session::{Response, Variant};

#[derive(Debug, Clone)]
pub(super) enum Request {
    Sotw(DiscoveryRequest),
    Delta(DeltaDiscoveryRequest),
}

#[derive(Debug, Clone, Default)]
struct Table {
    requested: bool,
    names: BTreeSet<String>,
    /// Name to version and content.
    held: BTreeMap<String, (String, String)>,
    /// State of the World: the version last ACKed and the nonce last seen.
    version: String,
    nonce: String,
}

#[derive(Debug)]
pub(super) struct Envoy {
    variant: Variant,
    /// Applies the valid resources of a rejected response, as LDS does.
    applies_valid: bool,
    tables: BTreeMap<ResourceType, Table>,
    /// The types in the order of the first subscriptions.
    asked: Vec<ResourceType>,
    warming: BTreeSet<String>,
    /// The answer to CDS that waits for clusters to be warm.
    held_back: Option<Request>,
    /// CDS has not been stated on this stream, because a cluster warms.
    unstated: bool,
    pub(super) outbox: VecDeque<Request>,
    /// References are checked.
    pub(super) strict: bool,
}

impl Envoy {
    pub(super) fn start(variant: Variant, applies_valid: bool) -> Self {
        let tables = ResourceType::ALL.map(|kind| (kind, Table::default())).into();
        let mut envoy = Self {
            variant,
            applies_valid,
            tables,
            asked: Vec::new(),
            warming: BTreeSet::new(),
            held_back: None,
            unstated: false,
            outbox: VecDeque::new(),
            strict: true,
        };
        envoy.ask(CDS, BTreeSet::new());
        envoy
    }

    /// A new stream: all subscriptions are stated again, with what is held.
    pub(super) fn reconnect(&mut self) {
        self.outbox.clear();
        self.held_back = None;
        self.unstated = !self.warming.is_empty();
        for kind in self.asked.clone() {
            self.tables.get_mut(&kind).unwrap().nonce.clear();
            if kind != CDS || !self.unstated {
                self.restate(kind);
            }
        }
    }

    /// The first request of a stream for a type with a subscription on an earlier one.
    fn restate(&mut self, kind: ResourceType) {
        let request = match self.variant {
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                initial_resource_versions: self.holds(kind).into_iter().collect(),
                resource_names_subscribe: self.names(kind).iter().cloned().collect(),
                ..delta(kind)
            }),
            Variant::Sotw => self.state(kind),
        };
        self.outbox.push_back(request);
    }

    /// A State-of-the-World request for the current subscription.
    fn state(&self, kind: ResourceType) -> Request {
        let table = self.table(kind);
        Request::Sotw(DiscoveryRequest {
            resource_names: table.names.iter().cloned().collect(),
            version_info: table.version.clone(),
            response_nonce: table.nonce.clone(),
            ..sotw(kind, &[])
        })
    }

    fn table(&self, kind: ResourceType) -> &Table {
        &self.tables[&kind]
    }

    /// The versions held of a type, by name.
    pub(super) fn holds(&self, kind: ResourceType) -> BTreeMap<String, String> {
        let held = &self.table(kind).held;
        held.iter().map(|(name, (version, _))| (name.clone(), version.clone())).collect()
    }

    /// `initial_fetch_timeout` ends the wait for endpoints.
    pub(super) fn time_out(&mut self) {
        self.warming.clear();
        self.on_warm();
    }

    pub(super) fn is_warm(&self) -> bool {
        self.warming.is_empty() && self.held_back.is_none()
    }

    /// Returns true if it holds back its clusters and holds no listener that would show it.
    pub(super) fn starts_with_clusters_held_back(&self) -> bool {
        self.unstated && self.table(LDS).held.is_empty()
    }

    pub(super) fn names(&self, kind: ResourceType) -> &BTreeSet<String> {
        &self.table(kind).names
    }

    pub(super) fn receive(&mut self, response: &Response) {
        let kind = response.kind;
        assert!(self.table(kind).requested, "{} was not asked for", kind.short());
        let contents: Vec<_> = response.resources.iter().map(|resource| content(resource)).collect();
        let refused = contents.iter().any(|content| content.contains("bad"));
        self.tables.get_mut(&kind).unwrap().nonce.clone_from(&response.nonce);
        let mut changed = BTreeSet::new();
        if !refused || self.applies_valid {
            for (resource, content) in response.resources.iter().zip(contents) {
                let version = resource.version.to_string();
                let table = self.tables.get_mut(&kind).unwrap();
                let wanted = kind.is_wildcard() || table.names.contains(&*resource.name);
                let old = table.held.get(&*resource.name).map(|(version, _)| version.clone());
                if wanted && !content.contains("bad") {
                    if old.as_ref() != Some(&version) {
                        changed.insert(resource.name.to_string());
                    }
                    table.held.insert(resource.name.to_string(), (version, content));
                }
            }
        }
        if !refused {
            let table = self.tables.get_mut(&kind).unwrap();
            table.version.clone_from(&response.version);
            for name in &response.removed {
                let held = table.held.remove(&**name);
                assert!(kind != ECDS || held.is_none(), "the filter {name} is gone while it is referred to");
            }
            if self.variant == Variant::Sotw && kind.is_wildcard() {
                let named: BTreeSet<_> = response.resources.iter().map(|resource| &*resource.name).collect();
                table.held.retain(|name, _| named.contains(name.as_str()));
            }
        }
        if kind == EDS {
            // A rejection ends the wait, too (`onConfigUpdateFailed`).
            let names = response.resources.iter().map(|resource| &resource.name).chain(&response.removed);
            for name in names {
                self.warming.remove(&**name);
            }
        }
        if kind == CDS {
            self.on_clusters(&changed);
        }
        if kind == LDS || kind == RDS {
            self.follow();
        }
        self.check();
        let answer = self.answer(response, refused);
        if kind == CDS && !self.warming.is_empty() {
            assert!(self.held_back.is_none(), "two responses unanswered");
            self.held_back = Some(answer);
        } else {
            self.outbox.push_back(answer);
        }
        if self.warming.is_empty() {
            self.on_warm();
        }
    }

    fn on_warm(&mut self) {
        let held_back = self.held_back.take();
        self.outbox.extend(held_back);
        if std::mem::take(&mut self.unstated) {
            self.restate(CDS);
        }
        if !self.table(LDS).requested {
            self.ask(LDS, BTreeSet::new());
        }
    }

    fn on_clusters(&mut self, changed: &BTreeSet<String>) {
        let clusters: BTreeSet<_> = self.table(CDS).held.keys().cloned().collect();
        self.warming.retain(|name| clusters.contains(name));
        self.warming.extend(changed.iter().cloned());
        let same = clusters == self.table(EDS).names;
        self.ask(EDS, clusters);
        if self.variant == Variant::Sotw && same && !changed.is_empty() {
            // A new watch for a name already watched restates the subscription.
            self.outbox.push_back(self.state(EDS));
        }
    }

    /// Subscribes to what listeners refer to, those included that are drained.
    fn follow(&mut self) {
        for (kind, letter) in [(RDS, 'r'), (ECDS, 'x'), (SDS, 's')] {
            let mut names = self.referred(letter);
            if kind == ECDS {
                names.extend(self.table(ECDS).names.iter().cloned());
            }
            self.ask(kind, names);
        }
    }

    /// Listeners that were replaced are drained.
    pub(super) fn end_drains(&mut self) {
        if self.table(ECDS).requested {
            self.ask(ECDS, self.referred('x'));
        }
    }

    /// What listeners refer to.
    fn referred(&self, letter: char) -> BTreeSet<String> {
        let held = self.table(LDS).held.values();
        held.flat_map(|(_, content)| references(content, letter)).collect()
    }

    /// Makes `names` the subscription, and drops what is no longer in it.
    fn ask(&mut self, kind: ResourceType, names: BTreeSet<String>) {
        let variant = self.variant;
        let table = self.tables.get_mut(&kind).unwrap();
        if names == table.names && (table.requested || !kind.is_wildcard()) {
            return;
        }
        if !std::mem::replace(&mut table.requested, true) {
            self.asked.push(kind);
        }
        let added: Vec<_> = names.difference(&table.names).cloned().collect();
        let dropped: Vec<_> = table.names.difference(&names).cloned().collect();
        table.names = names;
        for name in &dropped {
            table.held.remove(name);
        }
        let request = match variant {
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                resource_names_subscribe: added,
                resource_names_unsubscribe: dropped,
                ..delta(kind)
            }),
            Variant::Sotw => self.state(kind),
        };
        self.outbox.push_back(request);
    }

    fn answer(&self, response: &Response, refused: bool) -> Request {
        let error_detail = refused.then(|| error("bad"));
        let response_nonce = response.nonce.clone();
        match (self.variant, self.state(response.kind)) {
            (Variant::Sotw, Request::Sotw(request)) => {
                Request::Sotw(DiscoveryRequest { error_detail, ..request })
            }
            _ => {
                Request::Delta(DeltaDiscoveryRequest { response_nonce, error_detail, ..delta(response.kind) })
            }
        }
    }

    fn check(&self) {
        if !self.strict {
            return;
        }
        for kind in [LDS, RDS] {
            for (name, (_, content)) in &self.table(kind).held {
                for cluster in references(content, 'c') {
                    let exists = self.table(CDS).held.contains_key(&cluster);
                    assert!(exists, "{} {name} ({content}) names {cluster}, which is not held", kind.short());
                }
            }
        }
    }
}

/// The names with this first letter in a content, which is words separated by blanks.
fn references(content: &str, letter: char) -> impl Iterator<Item = String> {
    content.split(' ').filter(move |word| word.starts_with(letter)).map(str::to_owned)
}

fn content(resource: &Resource) -> String {
    let any = Any::decode(&*resource.any()).unwrap();
    if resource.kind == CDS {
        Cluster::decode(&*any.value).unwrap().alt_stat_name
    } else {
        Any::decode(&*any.value).unwrap().type_url
    }
}
