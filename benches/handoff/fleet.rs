//! The sidecars of a part of the bench, and waits for what they come to.

use std::sync::Arc;

use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_benches::sidecar::{Board, Sidecar};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

/// How often the board is looked at: finer than what is measured.
const LOOK: Duration = Duration::from_millis(1);

/// All sidecars. Dropping it ends them.
pub(crate) struct Fleet {
    pub(crate) board: Arc<Board>,
    /// The order of replicas of each sidecar.
    orders: Vec<Vec<usize>>,
    _tasks: JoinSet<()>,
}

impl Fleet {
    /// Starts a sidecar for each bootstrap, and waits until all are served. `relay` is an address, and where
    /// sidecars connect to instead. Returns also how long that took, from the first connection on.
    pub(crate) async fn start(
        bootstraps: &[String],
        addresses: &[String],
        relay: Option<(&str, &str)>,
    ) -> Result<(Self, Duration)> {
        let board = Arc::new(Board::new(bootstraps.len()));
        let sidecar = |(number, bootstrap): (usize, &String)| {
            let sidecar = Sidecar::new(number, bootstrap, addresses, &board)?;
            match relay {
                Some((address, relay)) => sidecar.by_way_of(address, relay),
                None => Ok(sidecar),
            }
        };
        // An Envoy reads its bootstrap before it connects.
        let sidecars: Vec<_> = bootstraps.iter().enumerate().map(sidecar).collect::<Result<_>>()?;
        let orders = sidecars.iter().map(|sidecar| sidecar.replicas().to_vec()).collect();
        let tasks = sidecars.into_iter().map(Sidecar::run).collect();
        let fleet = Self { board, orders, _tasks: tasks };
        let took = fleet.served(None).await?;
        fleet.board.reset();
        Ok((fleet, took))
    }

    /// Waits until every sidecar is served by its owner: the first in its order of the first `running`
    /// replicas. It may take a minute, since one that came back from a move is left alone for a while.
    pub(crate) async fn at_home(&self, running: usize) -> Result<()> {
        let owner = |order: &Vec<usize>| order.iter().copied().find(|replica| *replica < running);
        let owners: Vec<_> = self.orders.iter().map(owner).collect();
        let start = Instant::now();
        while self.board.serving() != owners {
            if start.elapsed() > PATIENCE {
                return Err("not every sidecar is handed over to its owner".into());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Waits until every sidecar has a stream, and none of this replica. Returns how long it took.
    pub(crate) async fn served(&self, without: Option<usize>) -> Result<Duration> {
        let start = Instant::now();
        while !self.board.all_served(without) {
            if start.elapsed() > PATIENCE {
                let without = self.board.serving().iter().filter(|serving| serving.is_none()).count();
                return Err(format!("{without} sidecars have no stream").into());
            }
            sleep(LOOK).await;
        }
        Ok(start.elapsed())
    }
}
