//! The `status` of the custom resources that the mesh reads, and Events about them.
//!
//! Owns the task that writes them. The Raft leader does so, by server-side apply with the field manager of
//! the control plane, and only where something changed ([`plan`]). It tracks the objects that the source
//! holds ([`objects`]): a status is about a generation, and whether the mesh has taken in that generation
//! is asked of the catalog, object by object ([`group_effect`] of all replicas, [`smc_server::reports`] of
//! one). A replica that does not lead tracks nothing.

mod group_effect;
mod objects;
mod plan;
mod turns;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kube::Client;
use smc_host::env::Env;
use smc_host::log_limit::LogLimit;
use smc_host::tasks::Tasks;
use smc_mesh::catalog::{Catalog, Object};
use smc_proto::peer::v1::ProxyReportsQuestion;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_raft::Group;
use smc_server::problems::Problems;
use smc_server::publisher::{Mesh, MeshHandle, PublisherStopped};
use smc_types::ids::{MeshNamespace, ReplicaId};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::group_effect::Said;
use self::objects::Objects;
use self::plan::{Held, Tracked, View, Write, farewells, open, plan};
use self::write::{WriteError, write};
use crate::custom_objects::CustomObjects;

/// How often the objects are judged. With the settling time, a status follows its object in three seconds.
const PERIOD: Duration = Duration::from_secs(1);

/// Steps after a change in which every step judges; later it is one of [`SELDOM`]. An object settles
/// meanwhile, and the publisher takes it in.
const EAGER: u32 = 15;

/// Without changes of objects, one of so many steps judges them: sidecars may have rejected something.
const SELDOM: u32 = 10;

/// How long the writes of one step may take, after which no other one is begun: no object is judged
/// meanwhile. Twenty writes take some 100 ms. An API server that does not answer takes 5 s for each.
const WRITES_LIMIT: Duration = Duration::from_secs(6);

/// How long a replica may take to say what its proxies have. Raft's own messages between replicas take
/// milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Objects that one question to the publisher is about. It publishes nothing meanwhile.
const OBJECTS_AT_ONCE: usize = 256;

/// What was done last, so that the others have their turn.
#[derive(Debug, Default)]
struct Last {
    /// The last object that the replicas were asked about.
    asked: Option<ObjectRef>,
    /// The namespace of the last object whose status was written, or failed to be.
    written: Option<String>,
    /// The same for the last statuses of objects.
    farewell: Option<String>,
}

/// The writer of statuses.
pub(crate) struct StatusWriter {
    pub(crate) client: Client,
    pub(crate) group: Arc<Group>,
    pub(crate) mesh: MeshHandle,
    pub(crate) problems: Problems,
    pub(crate) namespace: MeshNamespace,
    /// What the source holds.
    pub(crate) custom: watch::Receiver<CustomObjects>,
    pub(crate) env: Env,
}

impl StatusWriter {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("status of objects", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let lead_and_follow = async {
            loop {
                // Read before the work, so that a change of leader during it is not missed.
                let status = self.group.status();
                let replica = group_effect::name(status.replica);
                if status.leader == Some(status.replica) {
                    debug!("this replica writes the status of objects");
                    tokio::select! {
                        stopped = self.lead(&replica) => {
                            if stopped.is_err() {
                                // The publisher ends because the replica does.
                                std::future::pending::<()>().await;
                            }
                        }
                        () = self.group.leader_changed(status.leader) => {}
                    }
                } else {
                    self.group.leader_changed(status.leader).await;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = lead_and_follow => {}
        }
    }

    /// Tracks and writes, until this replica does not lead any more and the future is dropped.
    async fn lead(&self, replica: &str) -> Result<(), PublisherStopped> {
        let mut custom = self.custom.clone();
        // All that is there is new to a new leader.
        custom.mark_changed();
        let mut objects = Objects::default();
        let mut last = Last::default();
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let failures = LogLimit::default();
        let mut quiet = 0_u32;
        loop {
            tokio::select! {
                changed = custom.changed() => {
                    if changed.is_err() {
                        // The source ends because the replica does.
                        std::future::pending::<()>().await;
                    }
                    let seen = custom.borrow_and_update().clone();
                    objects.follow(seen, self.env.now()).await;
                    quiet = 0;
                }
                _ = ticks.tick() => {
                    quiet = quiet.saturating_add(1);
                    if quiet < EAGER || quiet.is_multiple_of(SELDOM) {
                        self.step(&mut objects, &mut last, replica, &failures).await?;
                    }
                }
            }
        }
    }

    /// Judges the objects, and writes what is due. What cannot be written is tried again later, and keeps no
    /// other write waiting for long.
    async fn step(
        &self,
        objects: &mut Objects,
        last: &mut Last,
        replica: &str,
        failures: &LogLimit,
    ) -> Result<(), PublisherStopped> {
        let view = self.view(&objects.tracked, &mut last.asked).await?;
        let due = plan(&objects.tracked, &view, replica, last.written.as_deref(), self.env.now());
        let mut round = Round::new(due);
        while let Some(due) = round.next() {
            let Some(tracked) = objects.tracked.get_mut(&due.reference) else { continue };
            tracked.sent = Some((self.env.now(), due.status.clone()));
            self.write(&due, failures).await;
            last.written = Some(due.reference.namespace().to_owned());
        }
        let outside = self.outside(&objects.gone).await?;
        let (own, last_one) = (self.namespace.as_str(), last.farewell.as_deref());
        let due = farewells(&mut objects.gone, &outside, own, last_one, self.env.now());
        let mut round = Round::new(due);
        while let Some(due) = round.next() {
            if self.write(&due, failures).await {
                objects.gone.remove(&due.reference);
            } else if let Some((_, tracked)) = objects.gone.get_mut(&due.reference) {
                tracked.sent = Some((self.env.now(), due.status.clone()));
            }
            last.farewell = Some(due.reference.namespace().to_owned());
        }
        Ok(())
    }

    /// Writes a status, unless the object is gone. `false` if the API server does not take it.
    async fn write(&self, due: &Write, failures: &LogLimit) -> bool {
        match write(&self.client, due, self.env.now()).await {
            Ok(()) | Err(WriteError::Gone) => true,
            Err(error) => {
                if let Some(count) = failures.note() {
                    let error = &error as &dyn Error;
                    warn!(object = %due.reference, error, count, "cannot write the status of objects; will retry");
                }
                false
            }
        }
    }

    /// The namespaces of these objects that are not in the mesh.
    async fn outside<T>(
        &self,
        objects: &BTreeMap<ObjectRef, T>,
    ) -> Result<BTreeSet<String>, PublisherStopped> {
        let namespaces = objects.keys().filter_map(|reference| match reference {
            ObjectRef::Namespaced(_, name) => Some(name.namespace().to_owned()),
            ObjectRef::Namespace(_) => None,
        });
        let mut namespaces: BTreeSet<String> = namespaces.collect();
        if namespaces.is_empty() {
            return Ok(namespaces);
        }
        let outside = |mesh: &Mesh| {
            namespaces.retain(|name| !mesh.compiler.catalog().monitors(name));
            namespaces
        };
        self.mesh.about(outside).await
    }

    /// What the mesh says of the objects: this replica's catalog, and then all replicas.
    async fn view(
        &self,
        objects: &BTreeMap<ObjectRef, Tracked>,
        asked_last: &mut Option<ObjectRef>,
    ) -> Result<View, PublisherStopped> {
        let mut view = View::default();
        let asked = objects.iter().map(|(reference, tracked)| (reference.clone(), tracked.object.clone()));
        let asked: Vec<_> = asked.collect();
        for some in asked.chunks(OBJECTS_AT_ONCE) {
            let (some, own) = (some.to_vec(), self.namespace.clone());
            let held = move |mesh: &Mesh| held(mesh.compiler.catalog(), &own, some);
            view.held.extend(self.mesh.about(held).await?);
        }
        for problem in self.problems.beyond_reading() {
            add(&mut view.conflicts, problem);
        }
        let group_effect::Question { about, objects } =
            group_effect::question(open(objects, &view, self.env.now()), asked_last.as_ref());
        let said = self.ask_all(objects).await;
        view.rejections = group_effect::rejections(&said);
        view.effects = group_effect::effects(&about, &said);
        if let Some(last) = about.last() {
            *asked_last = Some(last.clone());
        }
        Ok(view)
    }

    /// Asks every replica about these objects, this one included.
    async fn ask_all(&self, objects: Vec<String>) -> Vec<Said> {
        let members = self.group.status().members.into_iter().map(|member| member.id);
        let ask = |replica: ReplicaId| {
            let question = Question::ProxyReports(ProxyReportsQuestion { objects: objects.clone() });
            async move {
                let answer = match self.group.ask(replica, question, ANSWER_LIMIT).await {
                    Ok(Answer::ProxyReports(answer)) => Ok(answer),
                    Ok(_) => Err("it answers another question".to_owned()),
                    Err(error) => Err(error.to_string()),
                };
                Said { replica, answer }
            }
        };
        join_all(members.map(ask)).await
    }
}

/// The writes of a step, until their time is over. None of them ends it earlier, whatever becomes of it.
struct Round {
    due: std::vec::IntoIter<Write>,
    ends: Instant,
}

impl Round {
    fn new(due: Vec<Write>) -> Self {
        Self { due: due.into_iter(), ends: Instant::now() + WRITES_LIMIT }
    }

    fn next(&mut self) -> Option<Write> {
        if Instant::now() >= self.ends { None } else { self.due.next() }
    }
}

fn add(all: &mut BTreeMap<ObjectRef, Vec<Problem>>, problem: Problem) {
    if let Subject::Object(reference) = &problem.subject {
        all.entry(reference.clone()).or_default().push(problem);
    }
}

/// What the catalog has of each object.
fn held(
    catalog: &Catalog,
    own: &MeshNamespace,
    asked: Vec<(ObjectRef, Option<Arc<Object>>)>,
) -> Vec<(ObjectRef, Held)> {
    let held = |(reference, object): (ObjectRef, Option<Arc<Object>>)| {
        let ObjectRef::Namespaced(kind, name) = &reference else { return (reference, Held::NotOurs) };
        let namespace = name.namespace();
        let ours = kind.spec().extent.reads(namespace == own.as_str(), catalog.monitors(namespace));
        let held = match object {
            _ if !ours => Held::NotOurs,
            Some(object) if catalog.holds(&object) => Held::Yes,
            _ => Held::NotYet,
        };
        (reference, held)
    };
    asked.into_iter().map(held).collect()
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::crds::status::ObjectStatus;
    use smc_types::object_ref::Kind;

    fn due(namespace: &str) -> Write {
        let reference = ObjectRef::Namespaced(Kind::TcpRoute, format!("{namespace}/a").parse().unwrap());
        Write { reference, uid: "u".into(), status: ObjectStatus::default(), event: None }
    }

    /// Those of kinds without effect have a status, too, which says so.
    #[test]
    fn an_object_has_a_status_where_the_mesh_reads_its_kind() {
        let own = MeshNamespace::default();
        for kind in Kind::ALL.iter().copied().filter(|kind| kind.spec().custom) {
            for (namespace, ours) in [(own.as_str(), kind.spec().extent.has_own()), ("shop", false)] {
                let reference = ObjectRef::Namespaced(kind, format!("{namespace}/a").parse().unwrap());
                let [(_, found)] =
                    held(&Catalog::default(), &own, vec![(reference, None)]).try_into().unwrap();
                assert_eq!(found, if ours { Held::NotYet } else { Held::NotOurs }, "{kind} {namespace}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_follow_each_other_until_their_time_is_over() {
        for (takes, expected) in
            [(Duration::from_millis(5), &["a", "b", "c"][..]), (Duration::from_secs(5), &["a", "b"])]
        {
            let (mut round, mut written) = (Round::new(["a", "b", "c"].map(due).to_vec()), Vec::new());
            while let Some(due) = round.next() {
                sleep(takes).await;
                written.push(due.reference.namespace().to_owned());
            }
            assert_eq!(written, expected);
        }
    }
}
