//! The renewer: every identity has a certificate in time, and none is published twice.

use smc_authority::ledger::{Command, Operation, RecordServiceCertificate};
use smc_authority::pki::ServiceCertificate;
use smc_authority::rules::WantedCertificates;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::intercepted::intercepted;
use super::*;
use crate::pruning::Pruner;
use crate::renewal::Renewer;

struct Running {
    wanted: watch::Sender<WantedCertificates>,
    issued: mpsc::Receiver<(ServiceAccountId, Option<ServiceCertificate>)>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

fn wanting(names: &[&str]) -> WantedCertificates {
    WantedCertificates { accounts: names.iter().map(|name| account(name)).collect(), lifetime: None }
}

fn run(test: &TestCa, wanted: &[&str]) -> Running {
    let (wanted, receiver) = watch::channel(wanting(wanted));
    let (sender, issued) = mpsc::channel(4);
    let shutdown = CancellationToken::new();
    let renewer = Renewer {
        issuer: Arc::<BuiltinCa>::clone(&test.ca) as Arc<dyn Issuer>,
        env: test.env.clone(),
        wanted: receiver,
        issued: sender,
    };
    let task = tokio::spawn(renewer.run(shutdown.clone()));
    Running { wanted, issued, shutdown, task }
}

impl Running {
    async fn next(&mut self) -> (String, ServiceCertificate) {
        let (account, certificate) = self.news().await;
        let certificate = certificate.unwrap_or_else(|| panic!("{account} has none"));
        (account, certificate)
    }

    async fn news(&mut self) -> (String, Option<ServiceCertificate>) {
        let next = tokio::time::timeout(Duration::from_secs(20), self.issued.recv()).await;
        let (account, certificate) = next.expect("a certificate in time").expect("a running renewer");
        (account.name().to_owned(), certificate)
    }

    async fn nothing(&mut self) {
        let next = tokio::time::timeout(Duration::from_millis(300), self.issued.recv()).await;
        assert!(next.is_err(), "{:?}", next.map(|next| next.map(|(account, _)| account)));
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn every_identity_gets_a_certificate_once_and_the_same_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let names: Vec<String> = (0..100).map(|n| format!("account-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let before = test_ca(dir.path()).await;
    let mut running = run(&before, &names);
    let mut first = Vec::new();
    for _ in &names {
        first.push(running.next().await);
    }
    running.nothing().await;
    running.stop().await;
    first.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
    drop(before);

    let after = ca_at(dir.path(), START.plus(HOUR), 2).await;
    let mut running = run(&after, &names);
    for expected in first {
        assert_eq!(running.next().await, expected);
    }
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_ends() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let mut running = run(&test, &["v1"]);
    let (_, first) = running.next().await;
    let end = test.ca.service(&account("v1")).unwrap().unwrap().validity.not_after;
    test.clock.advance(40 * HOUR);
    assert!(test.env.now() < end);
    // The timer fires within a minute; a change of the wanted identities takes effect now.
    running.wanted.send_modify(|_| {});
    let (_, second) = running.next().await;
    assert_ne!(first, second);
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn an_identity_that_appears_is_served_and_one_that_is_gone_is_not_renewed() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let mut running = run(&test, &["v1"]);
    running.next().await;
    running.wanted.send_replace(wanting(&["v2"]));
    assert_eq!(running.news().await, ("v1".to_owned(), None));
    assert_eq!(running.next().await.0, "v2");
    test.clock.advance(40 * HOUR);
    running.wanted.send_modify(|_| {});
    assert_eq!(running.next().await.0, "v2");
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn a_shorter_lifetime_holds_at_once_and_a_longer_one_from_renewal_on() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let life = || {
        let issued = test.ca.service(&account("v1")).unwrap().unwrap();
        issued.validity.not_after.since(issued.issued_at)
    };
    let tenths = |asked: Duration| asked * 9 / 10..=asked * 11 / 10;
    let mut running = run(&test, &["v1"]);
    let (_, first) = running.next().await;
    assert!(tenths(48 * HOUR).contains(&life()));
    running.wanted.send_modify(|wanted| wanted.lifetime = Some(2 * HOUR));
    let (_, second) = running.next().await;
    assert_ne!(first, second);
    assert!(tenths(2 * HOUR).contains(&life()));
    running.wanted.send_modify(|wanted| wanted.lifetime = Some(24 * HOUR));
    running.nothing().await;
    test.clock.advance(HOUR * 5 / 3);
    running.wanted.send_modify(|_| {});
    running.next().await;
    assert!(tenths(24 * HOUR).contains(&life()));
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn a_lifetime_out_of_bounds_is_not_issued() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    for bad in [Duration::ZERO, Duration::from_secs(9), 31 * DAY] {
        let error = test.ca.issue_service(&account("v1"), Some(bad)).await.unwrap_err();
        assert!(matches!(error, CaError::Lifetime { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_that_was_issued_elsewhere_is_published() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let mut running = run(&test, &["v1"]);
    let (_, first) = running.next().await;
    running.nothing().await;
    let by_hand = test.ca.issue_service(&account("v1"), None).await.unwrap().certificate;
    let (_, second) = running.next().await;
    assert_ne!(first, second);
    assert_eq!(second, by_hand);
    running.stop().await;
}

#[tokio::test]
async fn records_of_expired_certificates_are_deleted() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    test.ca.issue_service(&account("v1"), None).await.unwrap();
    assert_eq!(test.ca.prune().await.unwrap(), 0);
    test.clock.advance(366 * DAY);
    assert_eq!(test.ca.prune().await.unwrap(), 2);
}

#[tokio::test]
async fn a_clock_that_is_far_ahead_deletes_no_record() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let serial = test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().serial;
    test.clock.advance(400 * DAY);
    let mut pruner = Pruner::new(Arc::clone(&test.ca), test.env.clone());
    pruner.prune_if_due().await;
    test.clock.advance(40 * HOUR);
    pruner.prune_if_due().await;
    assert!(test.ca.ledger().local().read(|ledger| ledger.proxy_certificate(&serial).is_some()));
}

/// Whether this records a service certificate of the account.
fn records(command: &Command, of: &ServiceAccountId) -> bool {
    matches!(
        &command.operation,
        Operation::RecordServiceCertificate(RecordServiceCertificate { account, .. }) if account == of
    )
}

#[tokio::test]
async fn a_slow_issuance_delays_no_other_identity() {
    let dir = TempDir::new().unwrap();
    let (env, clock) = fixed::env(START, 1);
    let keys = Arc::new(LocalKey::create(&dir.path().join("kek"), &env).unwrap());
    let (time, is_up) = watch::channel(false);
    let slow = account("slow");
    let ledger = intercepted(ledger(dir.path()).await, move |commands| {
        let waits = commands.iter().any(|command| records(command, &slow));
        let mut time = is_up.clone();
        Box::pin(async move {
            if waits {
                time.wait_for(|is_up| *is_up).await.unwrap();
            }
            Ok(())
        })
    });
    let ca = BuiltinCa::open(ledger, keys, env.clone(), settings("cluster.local")).await.unwrap();
    let test = TestCa { ca: Arc::new(ca), env, clock };
    let mut running = run(&test, &["quick", "slow"]);
    assert_eq!(running.next().await.0, "quick");
    // Nor does it keep the renewer from noticing new identities.
    running.wanted.send_replace(wanting(&["late", "quick", "slow"]));
    assert_eq!(running.next().await.0, "late");
    time.send_replace(true);
    assert_eq!(running.next().await.0, "slow");
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn the_renewer_ends_when_the_receiver_is_dropped() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let Running { issued, task, wanted, .. } = run(&test, &["v1"]);
    drop(issued);
    tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    drop(wanted);
}

#[tokio::test]
async fn an_identity_that_returns_gets_the_certificate_that_is_current_then() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let mut running = run(&test, &["v1"]);
    let (_, first) = running.next().await;
    for (away, same) in [(HOUR, true), (60 * HOUR, false)] {
        running.wanted.send_replace(wanting(&[]));
        assert_eq!(running.news().await, ("v1".to_owned(), None));
        test.clock.advance(away);
        running.wanted.send_replace(wanting(&["v1"]));
        assert_eq!(running.next().await.1 == first, same, "{away:?}");
    }
    running.nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn what_another_replica_issued_meanwhile_is_not_issued_again() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let names: Vec<String> = (0..300).map(|n| format!("account-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut replicas = [run(&test, &names), run(&test, &names)];
    // The second is held up by its receiver while the first issues all certificates.
    for replica in &mut replicas {
        for _ in &names {
            replica.next().await;
        }
    }
    for name in names {
        let superseded =
            test.ca.ledger().local().read(|ledger| ledger.superseded_certificates(&account(name)).len());
        assert_eq!(superseded, 0, "{name} was issued {} certificates", superseded + 1);
    }
    for mut replica in replicas {
        replica.nothing().await;
        replica.stop().await;
    }
}
