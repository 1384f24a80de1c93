//! Rekeying: one key-encryption key replaces another.

use tempfile::TempDir;

use super::*;
use crate::seal::KeyRing;

async fn with(dir: &Path, first: &str, others: &[&str]) -> Result<BuiltinCa, CaError> {
    // Not seeded: each draws its own keys and serial numbers.
    let env = Env::system();
    let others: Vec<_> = others.iter().map(|name| dir.join(name)).collect();
    // As an operator makes it.
    drop(KeyRing::load(&dir.join(first), &[] as &[&Path], true, &env).unwrap());
    let keys = Arc::new(KeyRing::load(&dir.join(first), &others, true, &env).unwrap());
    BuiltinCa::open(ledger(dir).await, keys, env, settings("cluster.local")).await
}

#[tokio::test]
async fn all_keys_are_rekeyed_and_the_previous_kek_is_no_longer_needed() {
    let dir = TempDir::new().unwrap();
    let ca = with(dir.path(), "kek", &[]).await.unwrap();
    let accounts: Vec<_> = (0..300).map(|n| account(&format!("v{n}"))).collect();
    let mut before = Vec::new();
    for one in &accounts {
        before.push(ca.issue_service(one, None).await.unwrap());
    }
    assert_eq!(ca.rekey().await.unwrap(), 0, "they are sealed with it already");
    drop(ca);

    let ca = with(dir.path(), "next", &["kek"]).await.unwrap();
    assert_eq!(ca.status().sealed_with.values().sum::<usize>(), 302);
    assert!(!ca.status().sealed_with.contains_key(&ca.status().seals_with));
    // Half-way both keys are needed, and new keys are sealed with the next one.
    ca.issue_service(&account("new"), None).await.unwrap();
    assert_eq!(ca.status().sealed_with.len(), 2);
    assert_eq!(ca.rekey().await.unwrap(), 302);
    assert_eq!(ca.rekey().await.unwrap(), 0);
    assert_eq!(ca.status().sealed_with.keys().collect::<Vec<_>>(), [&ca.status().seals_with]);
    drop(ca);

    let ca = with(dir.path(), "next", &[]).await.unwrap();
    for (one, issued) in accounts.iter().zip(&before) {
        assert_eq!(ca.service(one).unwrap().as_ref(), Some(issued), "no certificate changes");
    }
    ca.rotate(crate::Rotate::Issuing).await.unwrap();
    ca.issue_service(&account("newer"), None).await.unwrap();
    drop(ca);
    assert!(with(dir.path(), "kek", &[]).await.is_err());
}
