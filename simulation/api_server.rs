//! The API server of a replica: a model API server on a simulated host of its own.
//!
//! Owns the host, the way to it, and the orders of a story, which the host executes: time is that of the
//! host. All API servers are over one etcd. Each has a history of its own and is given the same writes in the
//! same order, so they are at the same versions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kube::Client;
use smc_host::network::Network;
use smc_host::sync::lock;
use smc_kubernetes::client::{Protocol, over};
use smc_types::object_ref::Kind;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use turmoil::Sim;
use turmoil::net::TcpListener;

use crate::model_api::clock::StoryClock;
use crate::model_api::faults::Fault;
use crate::model_api::random::Random;
use crate::model_api::server::{Server, Setup, Streaming};
use crate::network::SimulatedNetwork;

/// The port of every API server.
const PORT: u16 = 6443;

/// Longer than a story.
const EVER: Duration = Duration::from_hours(1);

/// What the host does next.
type Order = Box<dyn FnOnce(&Server) + Send>;

/// An API server. Clones are the same one.
#[derive(Clone)]
pub struct ApiServer {
    host: String,
    orders: mpsc::UnboundedSender<Order>,
}

impl ApiServer {
    /// Adds the API server of this number to the network. What it is like follows from the seed.
    pub fn new(sim: &mut Sim<'_>, number: u64, seed: u64) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let host = format!("api-{number}");
        let received = Arc::new(Mutex::new(Some(received)));
        sim.host(host.clone(), move || {
            let received = lock(&received).take();
            async move {
                let Some(received) = received else { return Ok(()) };
                serve(setup(&Random::new(seed)), seed, received).await
            }
        });
        Self { host, orders }
    }

    /// The client of production, over the simulated network of the host that calls it.
    pub fn client(&self) -> Client {
        let address = format!("{}:{PORT}", self.host);
        let dial = move |_: http::Uri| {
            let dialled = SimulatedNetwork.dial(address.clone());
            async move { dialled.await.map(TokioIo::new) }
        };
        over(tower::service_fn(dial), Protocol::Http2)
    }

    fn order(&self, order: impl FnOnce(&Server) + Send + 'static) {
        // A host that has ended executes nothing.
        let _ = self.orders.send(Box::new(order));
    }

    /// Creates or replaces the objects in a sequence of YAML documents.
    pub fn apply(&self, text: &str) {
        let text = text.to_owned();
        self.order(move |server| server.apply(&text));
    }

    /// Deletes the objects of these kinds and names.
    pub fn remove(&self, text: &str) {
        let text = text.to_owned();
        self.order(move |server| server.remove(&text));
    }

    /// Ends all connections, and refuses new ones.
    pub fn stop(&self) {
        self.order(|server| server.begin(Fault::Away, EVER));
    }

    /// Reads no further changes of these kinds: its watches are silent, and its lists, which must be of the
    /// latest version, wait.
    pub fn lag(&self, kinds: &'static [Kind]) {
        self.order(|server| kinds.iter().for_each(|kind| server.lag(*kind, EVER, EVER)));
    }

    /// Forgets the changes until now, and ends all connections once; new ones are accepted.
    pub fn forget(&self) {
        self.order(|server| {
            server.compact();
            server.break_connections();
        });
    }

    /// Its etcd is put back to what it was so many changes ago. Watches stay open, and say nothing until the
    /// versions overtake theirs.
    pub fn put_back(&self, changes: usize) {
        self.order(move |server| server.go_back(changes, false));
    }

    /// Works again.
    pub fn recover(&self) {
        self.order(Server::recover);
    }
}

/// What an API server is like.
fn setup(random: &Random) -> Setup {
    Setup {
        http2: true,
        streaming: if random.percent(70) { Streaming::Served } else { Streaming::Refused(400) },
        bookmarks: true,
        progress: random.percent(50),
        cached: random.percent(70),
        page: 500,
        delays: Kind::ALL.iter().map(|kind| (*kind, random.below(4))).collect(),
        lags: Kind::ALL.iter().map(|kind| (*kind, random.below(4))).collect(),
        cut: random.below(20),
        pause: 3,
        expires_in_stream: random.percent(50),
        warming: 0,
        warming_status: 404,
    }
}

async fn serve(setup: Setup, seed: u64, mut orders: mpsc::UnboundedReceiver<Order>) -> turmoil::Result {
    let server = Server::new(setup, seed, StoryClock::begin());
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(order) = orders.recv() => order(&server),
            accepted = listener.accept() => {
                if let Some(serving) = server.accept(accepted?.0) {
                    connections.spawn(serving);
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
