use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use smc_authority::ledger::{MAX_GATEWAYS, Rules};
use smc_host::sync::lock;
use smc_issuing::Rotate;
use smc_types::time::Timestamp;

use super::*;
use crate::lone_ca::LoneCa;

const START: Timestamp = Timestamp(1_800_000_000);
const DAY: Duration = Duration::from_hours(24);

/// The namespace of Secrets that are a person's.
const REFUSED: &str = "refused";

/// A platform that keeps Secrets in memory.
#[derive(Default)]
struct Platform {
    secrets: Mutex<BTreeMap<NamespacedName, GatewaySecret>>,
    writes: Mutex<usize>,
    fails: AtomicBool,
}

impl Platform {
    fn check(&self) -> Result<(), SecretFailure> {
        if self.fails.load(Ordering::SeqCst) { Err("the API server is away".into()) } else { Ok(()) }
    }
}

impl GatewaySecrets for Arc<Platform> {
    fn write<'a>(
        &'a self,
        secret: &'a NamespacedName,
        content: &'a GatewaySecret,
    ) -> BoxFuture<'a, Result<(), SecretFailure>> {
        Box::pin(async {
            self.check()?;
            if secret.namespace() == REFUSED {
                return Err("it is another's".into());
            }
            *lock(&self.writes) += 1;
            lock(&self.secrets).insert(secret.clone(), content.clone());
            Ok(())
        })
    }

    fn delete<'a>(&'a self, secret: &'a NamespacedName) -> BoxFuture<'a, Result<Deleted, SecretFailure>> {
        Box::pin(async {
            self.check()?;
            if secret.namespace() == REFUSED {
                return Ok(Deleted::Left);
            }
            lock(&self.secrets).remove(secret);
            Ok(Deleted::Gone)
        })
    }
}

/// A replica alone, its keeper and its platform.
struct World {
    lone: LoneCa,
    keeper: GatewayKeeper,
    platform: Arc<Platform>,
    written: Written,
}

impl World {
    async fn start() -> Self {
        let lone = LoneCa::start(START).await;
        lone.use_rules(Rules::LATEST).await;
        let LoneCa { ca, group, env, .. } = &lone;
        let (ca, group, env) = (Arc::clone(ca), Arc::clone(group), env.clone());
        let (_, declared) = watch::channel(None);
        let keeper = GatewayKeeper { ca, group, declared, problems: Problems::default(), env };
        Self { lone, keeper, platform: Arc::default(), written: None }
    }

    async fn keep(&mut self, asked: &IngressGateway) -> Result<Duration, Obstacle> {
        self.keeper.keep(asked, &self.platform, &mut self.written).await
    }

    /// The Secrets that there are, each with the certificate's chain.
    fn secrets(&self) -> BTreeMap<NamespacedName, String> {
        let secrets = lock(&self.platform.secrets);
        secrets.iter().map(|(name, content)| (name.clone(), content.certificate.chain_pem.clone())).collect()
    }

    fn on_record(&self) -> Vec<NamespacedName> {
        let ledger = self.keeper.group.local();
        ledger.read(|ledger| ledger.gateway_certificates().map(|(secret, _)| secret.clone()).collect())
    }
}

fn asked(secret: &str, name: &str) -> IngressGateway {
    let (secret, names) = (secret.parse().unwrap(), [name.to_owned()].into());
    IngressGateway::Wanted(Arc::new(WantedGateway { secret, names, lifetime: DAY }))
}

#[tokio::test]
async fn a_certificate_is_written_renewed_in_time_and_goes_with_its_field() {
    let mut world = World::start().await;
    let gateway = asked("ingress/gateway", "a.example");
    world.keep(&gateway).await.unwrap();
    let first = world.secrets();
    world.keep(&gateway).await.unwrap();
    assert_eq!((world.secrets(), *lock(&world.platform.writes)), (first.clone(), 1));

    world.lone.clock.advance(DAY / 2);
    world.keep(&gateway).await.unwrap();
    assert_eq!(world.secrets(), first, "it is not due");
    world.lone.clock.advance(DAY / 3);
    world.keep(&gateway).await.unwrap();
    assert_ne!(world.secrets(), first, "it is renewed");

    let unreadable = world.secrets();
    world.lone.clock.advance(DAY);
    world.keep(&IngressGateway::Unreadable).await.unwrap();
    assert_eq!(world.secrets(), unreadable, "what cannot be read takes nothing away");
    world.keep(&IngressGateway::Absent).await.unwrap();
    assert_eq!((world.secrets().len(), world.on_record().len()), (0, 0));
    world.keeper.group.stop().await;
}

#[tokio::test]
async fn a_secret_that_a_person_deletes_is_written_again_also_by_another_leader() {
    let mut world = World::start().await;
    let gateway = asked("ingress/gateway", "a.example");
    world.keep(&gateway).await.unwrap();
    let before = world.secrets();
    lock(&world.platform.secrets).clear();
    // Another leader knows what is on record, and not what was written.
    world.written = None;
    world.keep(&gateway).await.unwrap();
    assert_eq!(world.secrets(), before, "the same certificate");
    world.keeper.group.stop().await;
}

#[tokio::test]
async fn new_roots_are_written_before_they_sign() {
    let mut world = World::start().await;
    let gateway = asked("ingress/gateway", "a.example");
    world.keep(&gateway).await.unwrap();
    let before = world.secrets();
    world.keeper.ca.rotate(Rotate::Root).await.unwrap();
    world.keep(&gateway).await.unwrap();
    assert_eq!(world.secrets(), before, "the certificate stays");
    let roots: Vec<_> = lock(&world.platform.secrets).values().map(|secret| secret.roots.clone()).collect();
    assert_eq!(roots, [world.keeper.ca.bundle()]);
    assert_eq!(roots[0].pem.matches("BEGIN CERTIFICATE").count(), 2);
    world.keeper.group.stop().await;
}

/// A person tries names of Secrets that are taken, until one is free.
#[tokio::test]
async fn a_free_secret_is_written_however_many_were_taken_before() {
    let mut world = World::start().await;
    let free = asked("ingress/free", "a.example");
    world.keep(&free).await.unwrap();
    for n in 0..MAX_GATEWAYS + 3 {
        let taken = world.keep(&asked(&format!("{REFUSED}/taken-{n}"), "a.example")).await;
        assert!(matches!(taken, Err(Obstacle::Write { .. })), "{n}: {taken:?}");
    }
    let other = asked("ingress/other", "a.example");
    world.keep(&other).await.unwrap();
    let names: Vec<_> = world.secrets().into_keys().map(|name| name.to_string()).collect();
    assert_eq!(names, ["ingress/other"]);
    assert_eq!(world.on_record().len(), 1);
    world.keeper.group.stop().await;
}

/// Whatever was asked for, failed and was lost in between, in the end there is what is asked for, and nothing
/// else.
#[tokio::test]
async fn in_the_end_there_is_what_is_asked_for() {
    let asks = [
        IngressGateway::Absent,
        IngressGateway::Unreadable,
        asked("ingress/a", "a.example"),
        asked("ingress/a", "b.example"),
        asked("ingress/b", "a.example"),
        asked("other/c", "c.example"),
    ];
    let mut world = World::start().await;
    for seed in 1..=40_u64 {
        let mut draw = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |end: u64| {
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            draw % end
        };
        for _ in 0..12 {
            let asked = &asks[usize::try_from(below(6)).unwrap()];
            world.platform.fails.store(below(3) == 0, Ordering::SeqCst);
            let failed = world.keep(asked).await.is_err();
            assert!(!failed || world.platform.fails.load(Ordering::SeqCst));
            match below(6) {
                0 => world.written = None,
                1 => world.lone.clock.advance(Duration::from_hours(below(30))),
                2 => drop(world.keeper.ca.rotate(Rotate::Issuing).await),
                _ => {}
            }
            // What is asked for is written within a minute of its loss, which this does not wait for.
            if world.written.is_none() && below(2) == 0 {
                lock(&world.platform.secrets).clear();
            }
        }
        world.platform.fails.store(false, Ordering::SeqCst);
        for asked in [&asks[2], &asks[5], &asks[0]] {
            world.keep(asked).await.unwrap();
            let wanted = match asked {
                IngressGateway::Wanted(wanted) => vec![wanted.secret.clone()],
                _ => vec![],
            };
            assert_eq!(world.secrets().into_keys().collect::<Vec<_>>(), wanted, "seed {seed}");
            assert_eq!(world.on_record(), wanted, "seed {seed}");
        }
    }
    world.keeper.group.stop().await;
}
