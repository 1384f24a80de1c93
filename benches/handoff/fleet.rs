//! The sidecars of a part of the bench, and waits for what they come to.

use std::sync::Arc;

use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_benches::sidecar::{Board, Sidecar};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

/// How often the board is looked at: finer than what is measured.
const LOOK: Duration = Duration::from_millis(1);

/// Nothing moves any more when no sidecar has moved for this long.
const QUIET: Duration = Duration::from_secs(10);

/// All sidecars. Dropping it ends them.
pub(crate) struct Fleet {
    pub(crate) board: Arc<Board>,
    _tasks: JoinSet<()>,
}

impl Fleet {
    /// Starts a sidecar for each bootstrap, and waits until all are served. `relay` is an address, and where
    /// sidecars connect to instead.
    pub(crate) async fn start(
        bootstraps: &[String],
        addresses: &[String],
        relay: Option<(&str, &str)>,
    ) -> Result<Self> {
        let board = Arc::new(Board::new(bootstraps.len()));
        let mut tasks = JoinSet::new();
        for (number, bootstrap) in bootstraps.iter().enumerate() {
            let mut sidecar = Sidecar::new(number, bootstrap, addresses, &board)?;
            if let Some((address, relay)) = relay {
                sidecar = sidecar.by_way_of(address, relay)?;
            }
            tasks.spawn(sidecar.run());
        }
        let fleet = Self { board, _tasks: tasks };
        fleet.served(None).await?;
        fleet.board.reset();
        Ok(fleet)
    }

    /// Waits until every sidecar has a stream, and none has moved for a while.
    pub(crate) async fn at_rest(&self) -> Result<()> {
        let start = Instant::now();
        let (mut last, mut since) = (self.board.serving(), start);
        while since.elapsed() < QUIET {
            if start.elapsed() > PATIENCE {
                return Err("sidecars move without an end".into());
            }
            sleep(Duration::from_millis(100)).await;
            let now = self.board.serving();
            if now != last || now.contains(&None) {
                (last, since) = (now, Instant::now());
            }
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
