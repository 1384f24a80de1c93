//! The honest: a caller that asks for certificates, and proxies that connect.

use std::time::Duration;

use smc_benches::Result;
use smc_benches::bootstraps::issued;
use smc_benches::controller::PATIENCE;
use smc_benches::controllers::{Controllers, REPLICAS};
use smc_server::admin::client::Client;
use smc_testkit::ads::{Credentials, DeltaStream, subscribe};
use smc_xds::resource::ResourceType;
use tokio::time::{Instant, sleep, timeout};

use crate::attackers::Hostile;

/// The pods of the mesh. The last is the hostile one, and those before it connect.
pub(crate) const PODS: usize = 400;

/// The proxies that connect in turn, so that none opens streams faster than it may.
const PROXIES: usize = 30;

/// The pause between two of the same: fewer than what would make a queue of them.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a caller waits. What takes longer counts as failed, and as long as this.
const LIMIT: Duration = Duration::from_secs(10);

/// What was measured.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) commits: Vec<Duration>,
    pub(crate) answers: Vec<Duration>,
    /// The commits and answers that failed.
    pub(crate) failed: usize,
}

/// The honest proxies' credentials, by replica and proxy.
pub(crate) struct Honest {
    credentials: Vec<Vec<Credentials>>,
    clients: Vec<Client>,
    /// The next pod that a certificate is asked for.
    next: usize,
}

impl Honest {
    pub(crate) async fn prepare(controllers: &Controllers) -> Result<Self> {
        let mut honest = Self { credentials: Vec::new(), clients: Vec::new(), next: 0 };
        for replica in 0..REPLICAS {
            honest.clients.push(controllers.client(replica).await?);
            let mut credentials = Vec::new();
            for proxy in 0..PROXIES {
                let pod = PODS - 2 - replica * PROXIES - proxy;
                let bootstrap = issued(&mut honest.clients[replica], workload(pod), PATIENCE).await?;
                let own = Credentials::read(&bootstrap).ok_or("not a bootstrap")?;
                // The claim of its certificate is a commit, which later connections do not make.
                first_answer(&own).await?;
                credentials.push(own);
            }
            honest.credentials.push(credentials);
        }
        Ok(honest)
    }

    /// A certificate for the hostile proxies, which the first replica has admitted.
    pub(crate) async fn hostile(&mut self) -> Result<Hostile> {
        let bootstrap = issued(&mut self.clients[0], workload(PODS - 1), PATIENCE).await?;
        first_answer(&Credentials::read(&bootstrap).ok_or("not a bootstrap")?).await?;
        let addresses =
            self.credentials.iter().filter_map(|own| own.first()).flat_map(|own| &own.controllers);
        Ok(Hostile { bootstrap, addresses: addresses.cloned().collect() })
    }

    /// Measures for this long: commits and first answers at all replicas in turn, side by side.
    pub(crate) async fn measure(&mut self, controllers: &Controllers, span: Duration) -> Result<Samples> {
        let end = Instant::now() + span;
        let (credentials, first) = (&self.credentials, self.next);
        let commits = async {
            let (mut taken, mut failed) = (Vec::new(), 0);
            for turn in 0.. {
                if Instant::now() > end {
                    break;
                }
                let mut client = controllers.client(turn % REPLICAS).await?;
                let start = Instant::now();
                let pod = (first + turn) % (PODS - 1 - REPLICAS * PROXIES);
                failed += usize::from(issued(&mut client, workload(pod), LIMIT).await.is_err());
                taken.push(start.elapsed());
                sleep(PAUSE).await;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((taken, failed))
        };
        let answers = async {
            let (mut taken, mut failed) = (Vec::new(), 0);
            for turn in 0.. {
                if Instant::now() > end {
                    break;
                }
                let own = &credentials[turn % REPLICAS][(turn / REPLICAS) % PROXIES];
                let start = Instant::now();
                let answered = timeout(LIMIT, first_answer(own)).await;
                failed += usize::from(!matches!(answered, Ok(Ok(()))));
                taken.push(start.elapsed());
                sleep(PAUSE).await;
            }
            (taken, failed)
        };
        let (commits, (answers, unanswered)) = tokio::join!(commits, answers);
        let (commits, uncommitted) = commits?;
        self.next += commits.len();
        Ok(Samples { commits, answers, failed: uncommitted + unanswered })
    }
}

fn workload(pod: usize) -> String {
    format!("shop/pod-{pod}")
}

/// Connects, with TCP and TLS, and waits for the answer to a first subscription.
async fn first_answer(own: &Credentials) -> Result<()> {
    let address = own.controllers.first().ok_or("the bootstrap has no controller")?;
    let channel = own.connect(address).await?;
    let mut stream = DeltaStream::open(channel, [subscribe(own, ResourceType::Cluster, &[])]).await?;
    stream.next().await?.ok_or("the stream ended")?;
    Ok(())
}
