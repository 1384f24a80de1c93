//! An authority is founded once, also after a loss or a crash.

use std::fs;

use tempfile::TempDir;

use super::*;

#[tokio::test]
async fn after_a_loss_of_the_ledger_an_operator_must_allow_a_new_founding() {
    let dir = TempDir::new().unwrap();
    let before = test_ca(dir.path()).await.ca.bundle();
    // Closed, and then lost.
    group(&dir.path().join("ledger")).await.stop().await;
    disk::lose(&dir.path().join("ledger"));
    let (env, _) = fixed::env(START, 2);
    let note = dir.path().join("kek.founded");
    for _ in 0..2 {
        let error = open(dir.path(), &env, "cluster.local").await.err().unwrap();
        assert!(matches!(error, CaError::FoundedBefore { .. }), "{error}");
        assert!(error.to_string().contains(note.to_str().unwrap()), "the way out is named: {error}");
    }
    assert!(fs::read_to_string(&note).unwrap().contains("cluster.local"));
    fs::remove_file(&note).unwrap();
    let second = open(dir.path(), &env, "cluster.local").await.unwrap();
    assert_ne!(second.bundle(), before);
    assert!(note.exists());
}

#[tokio::test]
async fn a_key_under_which_nothing_was_founded_yet_founds() {
    // As after a crash between the creation of the key and the founding, or with an operator's key.
    let dir = TempDir::new().unwrap();
    let (env, _) = fixed::env(START, 1);
    LocalKey::create(&dir.path().join("kek"), &env).unwrap();
    group(&dir.path().join("ledger")).await.stop().await;
    open(dir.path(), &env, "cluster.local").await.unwrap();
}

#[tokio::test]
async fn a_founding_that_was_not_noted_is_noted_at_the_next_start() {
    let dir = TempDir::new().unwrap();
    let before = test_ca(dir.path()).await.ca.bundle();
    // As after a crash between the founding and the note.
    fs::remove_file(dir.path().join("kek.founded")).unwrap();
    assert_eq!(test_ca(dir.path()).await.ca.bundle(), before);
    // Closed, and then lost.
    group(&dir.path().join("ledger")).await.stop().await;
    disk::lose(&dir.path().join("ledger"));
    let (env, _) = fixed::env(START, 2);
    assert!(open(dir.path(), &env, "cluster.local").await.is_err());
}

#[tokio::test]
async fn an_authority_works_where_nothing_can_be_noted() {
    let dir = TempDir::new().unwrap();
    let (env, _) = fixed::env(START, 1);
    let keys = dir.path().join("keys");
    fs::create_dir(&keys).unwrap();
    let key = Arc::new(LocalKey::create(&keys.join("kek"), &env).unwrap());
    // Like a file system that is mounted read-only, also for root.
    fs::remove_dir_all(&keys).unwrap();
    let ledger: Arc<dyn ReplicatedLedger> = Arc::new(group(&dir.path().join("ledger")).await);
    BuiltinCa::open(ledger, key, env, settings("cluster.local")).await.unwrap();
}
