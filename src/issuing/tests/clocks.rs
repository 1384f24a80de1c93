//! Replicas with a clock each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use smc_authority::ledger::{Command, Outcome, Rejection};
use smc_authority::pki::ServiceCertificate;
use smc_authority::rules::{Clocks, GroupTime, WantedCertificates, compare_clocks};
use smc_host::env::Clock;
use smc_raft::{ProposeError, SharedLedger};
use smc_types::causes::causes;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::group_time::corrected;
use crate::renewal::Renewer;

const IDENTITIES: [&str; 3] = ["v1", "v2", "v3"];

/// The ledger as one of several replicas sees it, each of which has its own clock.
struct Seen {
    ledger: Arc<dyn ReplicatedLedger>,
    me: usize,
    clocks: Vec<Arc<SettableClock>>,
    /// Whether the replica takes its own clock for the group's, whatever the others say: as one whose clock
    /// has jumped since the last comparison.
    is_blind: AtomicBool,
    /// The commands that it proposed.
    proposed: AtomicUsize,
}

impl ReplicatedLedger for Seen {
    fn propose(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Vec<Outcome>, ProposeError>> {
        self.proposed.fetch_add(commands.len(), Ordering::SeqCst);
        self.ledger.propose(commands)
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        self.ledger.barrier()
    }

    fn local(&self) -> &SharedLedger {
        self.ledger.local()
    }

    fn time(&self) -> GroupTime {
        let (own, me) = (self.clocks[self.me].now(), u64::try_from(self.me).unwrap());
        if self.is_blind.load(Ordering::SeqCst) {
            let now = self.clocks[(self.me + 1) % self.clocks.len()].now();
            return GroupTime::Agreed { now, offset: 0, clocks: BTreeMap::from([(me, now)]), all: true };
        }
        let others = (0..).zip(&self.clocks).filter(|(id, _)| *id != me);
        let others = others.map(|(id, clock)| (id, Some(clock.now()))).collect();
        compare_clocks(&Clocks { me, own, others, members: self.clocks.len() })
    }
}

/// Three replicas that agree on the time.
struct Trio {
    clocks: Vec<Arc<SettableClock>>,
    ledgers: Vec<Arc<Seen>>,
    envs: Vec<Env>,
    cas: Vec<Arc<BuiltinCa>>,
}

type Certificate = (ServiceAccountId, Option<ServiceCertificate>);

impl Trio {
    async fn start(dir: &Path) -> Self {
        let shared = ledger(dir).await;
        let (first, _) = fixed::env(START, 1);
        let keys = Arc::new(LocalKey::create(&dir.join("kek"), &first).unwrap());
        let made: Vec<_> = (0..3).map(|n| fixed::env(START, n + 2)).collect();
        let clocks: Vec<_> = made.iter().map(|(_, clock)| Arc::clone(clock)).collect();
        let mut trio = Self { clocks: clocks.clone(), ledgers: vec![], envs: vec![], cas: vec![] };
        for (me, (env, _)) in made.into_iter().enumerate() {
            let seen = Arc::new(Seen {
                ledger: Arc::clone(&shared),
                me,
                clocks: clocks.clone(),
                is_blind: AtomicBool::new(false),
                proposed: AtomicUsize::new(0),
            });
            let seam: Arc<dyn ReplicatedLedger> = Arc::<Seen>::clone(&seen);
            let env = corrected(env, Arc::clone(&seam));
            let keys = Arc::<LocalKey>::clone(&keys);
            let ca = BuiltinCa::open(seam, keys, env.clone(), settings("cluster.local")).await.unwrap();
            trio.ledgers.push(seen);
            trio.envs.push(env);
            trio.cas.push(Arc::new(ca));
        }
        let GroupTime::Agreed { clocks, all: true, .. } = trio.ledgers[0].time() else {
            panic!("no agreement")
        };
        trio.cas[0].agree_on_time(clocks).await.unwrap();
        trio
    }

    /// Runs a renewer on each replica. The sender wakes them, and the receiver gets what each of them
    /// publishes.
    fn renew(&self, running: &mut JoinSet<()>, shutdown: &CancellationToken) -> Renewing {
        let (all, published) = mpsc::channel(64);
        let accounts = IDENTITIES.iter().map(|name| account(name)).collect();
        let (wanted, wanting) = watch::channel(WantedCertificates { accounts, lifetime: None });
        for me in 0..3 {
            let (issued, mut publishing) = mpsc::channel(4);
            let issuer = Arc::<BuiltinCa>::clone(&self.cas[me]) as Arc<dyn Issuer>;
            let renewer = Renewer { issuer, env: self.envs[me].clone(), wanted: wanting.clone(), issued };
            running.spawn(renewer.run(shutdown.clone()));
            let all = all.clone();
            running.spawn(async move {
                while let Some(certificate) = publishing.recv().await {
                    let _ = all.send((me, certificate)).await;
                }
            });
        }
        Renewing { wanted, published }
    }

    fn proposed(&self) -> usize {
        self.ledgers.iter().map(|ledger| ledger.proposed.load(Ordering::SeqCst)).sum()
    }

    fn advance(&self, span: Duration) {
        self.clocks.iter().for_each(|clock| clock.advance(span));
    }
}

/// The renewers of all replicas.
struct Renewing {
    wanted: watch::Sender<WantedCertificates>,
    published: mpsc::Receiver<(usize, Certificate)>,
}

impl Renewing {
    /// Lets all renewers look at their clocks.
    fn wake(&self) {
        self.wanted.send_modify(|_| {});
    }

    async fn next(&mut self) -> (usize, Certificate) {
        let next = tokio::time::timeout(Duration::from_secs(20), self.published.recv()).await;
        next.expect("in time").expect("running renewers")
    }

    /// Checks that nothing is published for a while.
    async fn nothing(&mut self) {
        let next = tokio::time::timeout(Duration::from_millis(2500), self.published.recv()).await;
        assert!(next.is_err(), "{:?}", next.map(|next| next.map(|(me, (account, _))| (me, account))));
    }
}

/// Before the clocks were compared, the two sides replaced each other's certificates without an end.
#[tokio::test]
async fn replicas_whose_clocks_differ_do_not_replace_each_others_certificates() {
    let dir = TempDir::new().unwrap();
    let trio = Trio::start(dir.path()).await;
    let (mut running, shutdown) = (JoinSet::new(), CancellationToken::new());
    let mut renewing = trio.renew(&mut running, &shutdown);
    for _ in 0..9 {
        renewing.next().await;
    }
    for wrong in [START.plus(3 * DAY), START.minus(3 * DAY), START.plus(365 * DAY), Timestamp(0)] {
        let proposed = trio.proposed();
        trio.clocks[2].set(wrong);
        renewing.wake();
        renewing.nothing().await;
        assert_eq!(trio.proposed(), proposed, "{wrong:?}");
        for error in [
            trio.cas[2].issue_service(&account("v1"), None).await.unwrap_err(),
            trio.cas[2].issue_proxy(&proxy("v1"), &account("v1")).await.unwrap_err(),
            trio.cas[2].issue_controller(&names()).await.unwrap_err(),
            trio.cas[2].rotate(crate::Rotate::Root).await.unwrap_err(),
        ] {
            assert!(matches!(error, CaError::Clock { .. }), "{error}");
        }
        let warnings = trio.cas[2].status().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("issues nothing")), "{warnings:?}");
        assert_eq!(trio.cas[0].status().warnings, Vec::<String>::new());
    }
    // What is due is renewed by the others, and the replica with the wrong clock serves it as well.
    trio.clocks[2].set(START.plus(300 * DAY));
    trio.advance(40 * HOUR);
    renewing.wake();
    let mut by_replica = [0; 3];
    while by_replica != [3; 3] {
        let (me, (_, certificate)) = renewing.next().await;
        assert!(certificate.is_some());
        by_replica[me] += 1;
    }
    let superseded: usize = trio.cas[0].ledger().local().read(|ledger| {
        IDENTITIES.iter().map(|name| ledger.superseded_certificates(&account(name)).len()).sum()
    });
    assert_eq!(superseded, 3, "each was renewed once");
    shutdown.cancel();
    running.join_all().await;
}

/// A clock that jumps between the last comparison and a signature.
#[tokio::test]
async fn the_ledger_refuses_what_a_wrong_clock_issued() {
    let dir = TempDir::new().unwrap();
    let trio = Trio::start(dir.path()).await;
    let issued = trio.cas[2].issue_service(&account("v1"), None).await.unwrap();
    trio.ledgers[2].is_blind.store(true, Ordering::SeqCst);
    for wrong in [START.plus(3 * DAY), START.plus(365 * DAY), START.minus(DAY / 24)] {
        trio.clocks[2].set(wrong);
        for error in [
            trio.cas[2].issue_service(&account("v2"), None).await.unwrap_err(),
            trio.cas[2].issue_proxy(&proxy("v1"), &account("v1")).await.unwrap_err(),
        ] {
            let refused = matches!(&error, CaError::Rejected { source: Rejection::WrongClock { .. }, .. })
                || matches!(&error, CaError::IssuerEnding { .. });
            assert!(refused, "{wrong:?}: {}", causes(&error));
        }
        assert_eq!(trio.cas[0].service(&account("v2")).unwrap(), None);
    }
    // Nor is a rotation held up for long after it.
    trio.clocks[2].set(START);
    let root = trio.cas[0].rotate(crate::Rotate::Root).await.unwrap();
    let status = trio.cas[0].status().root_rotation.unwrap();
    assert_eq!(status.root, root);
    assert_eq!(status.introduction.unwrap().earliest, issued.validity.not_after);
}

/// As when two replicas find the same certificate due at once. A longer lifetime waits for the renewal.
#[tokio::test]
async fn what_is_not_due_yields_to_the_current_certificate() {
    let dir = TempDir::new().unwrap();
    let trio = Trio::start(dir.path()).await;
    let (v1, longer) = (account("v1"), Some(96 * HOUR));
    let first = trio.cas[0].issue_service(&v1, None).await.unwrap();
    assert_eq!(trio.cas[1].issue_service(&v1, longer).await.unwrap(), first);
    trio.advance(40 * HOUR);
    let second = trio.cas[1].issue_service(&v1, longer).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(trio.cas[0].issue_service(&v1, Some(200 * HOUR)).await.unwrap(), second);
}
