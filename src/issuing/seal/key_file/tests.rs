use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use smc_host::env::fixed;
use smc_types::time::Timestamp;
use tempfile::TempDir;

use super::super::KeyEncryption;
use super::*;

fn written(content: &[u8], mode: u32) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("kek");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (dir, path)
}

fn load(path: &Path) -> Result<LocalKey, KeyFileError> {
    LocalKey::load(path, &fixed::env(Timestamp(0), 1).0)
}

#[test]
fn a_key_is_created_only_when_asked_for_and_reads_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("kek");
    let env = fixed::env(Timestamp(0), 1).0;
    assert!(matches!(LocalKey::load_or_create(&path, false, &env), Err(KeyFileError::Missing(_))));
    let created = LocalKey::load_or_create(&path, true, &env).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(LocalKey::load_or_create(&path, true, &env).unwrap().id(), created.id());
    assert!(matches!(LocalKey::create(&path, &env), Err(KeyFileError::Io { .. })));
}

#[test]
fn raw_bytes_and_digits_are_the_same_key() {
    let raw = written(&[0xab; 32], 0o400);
    let digits = written("aB".repeat(32).as_bytes(), 0o600);
    let line = written(format!("{}\n", "ab".repeat(32)).as_bytes(), 0o600);
    let id = load(&raw.1).unwrap().id().to_owned();
    assert_eq!(load(&digits.1).unwrap().id(), id);
    assert_eq!(load(&line.1).unwrap().id(), id);
}

#[test]
fn a_file_that_others_may_use_is_refused() {
    for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
        let (_dir, path) = written(&[1; 32], mode);
        let error = load(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Exposed { .. }), "{mode:o}: {error}");
    }
}

/// As kubelet mounts a secret with `fsGroup`: root's, mode 0440, of a group that the process has.
#[test]
fn a_mounted_key_may_be_read_by_a_group_of_the_process_and_by_no_other() {
    let env = fixed::env(Timestamp(0), 1).0;
    for (mode, own_group, loads) in [
        (0o440, true, true),
        (0o640, true, true),
        (0o400, true, true),
        (0o400, false, true),
        (0o440, false, false),
        (0o460, true, false),
        (0o450, true, false),
        (0o444, true, false),
        (0o441, true, false),
    ] {
        let (_dir, path) = written(&[1; 32], mode);
        let metadata = fs::metadata(&path).unwrap();
        let group = metadata.gid();
        let groups = vec![if own_group { group } else { group + 1 }];
        let loaded = LocalKey::load_as(&Reader { user: metadata.uid(), groups }, &path, &env);
        assert_eq!(loaded.is_ok(), loads, "{mode:o}, own group: {own_group}");
    }
    let (_dir, path) = written(&[1; 32], 0o440);
    LocalKey::load_from(KeyPlace::Mounted, &path, &env).unwrap();
    assert!(load(&path).is_err(), "a file of the operator's is for its owner alone");
}

/// Beside a mounted key nothing can be written, and nothing is looked for.
#[test]
fn beside_a_mounted_key_no_founding_is_noted() {
    let (dir, path) = written(&[1; 32], 0o400);
    let key = LocalKey::load_from(KeyPlace::Mounted, &path, &fixed::env(Timestamp(0), 1).0).unwrap();
    key.note_founding("founded").unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::write(founding_note(&path), "founded").unwrap();
    assert_eq!(key.founding_note().unwrap(), None);
}

#[test]
fn what_is_no_key_is_refused_and_not_shown() {
    for content in [&b""[..], &[1; 31], &[1; 33], &[b'z'; 64], &[b'a'; 63], &[0; 10_000]] {
        let (_dir, path) = written(content, 0o600);
        let error = load(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::NotAKey(_)), "{error}");
    }
    let dir = TempDir::new().unwrap();
    assert!(matches!(load(dir.path()), Err(KeyFileError::NotAKey(_) | KeyFileError::Io { .. })));
}

#[test]
fn a_file_of_another_user_is_refused_and_one_of_root_is_not() {
    const OTHER: u32 = 12_345;
    let (_dir, path) = written(&[1; 32], 0o600);
    let env = fixed::env(Timestamp(0), 1).0;
    let own = fs::metadata(&path).unwrap().uid();
    let as_user = |user| Reader { user, groups: Vec::new() };
    LocalKey::load_as(&as_user(own), &path, &env).unwrap();
    // Who is not root cannot give the file away, but can look at it as someone else.
    let (owner, user) = if own == 0 { (OTHER, own) } else { (own, OTHER) };
    if own == 0 {
        LocalKey::load_as(&as_user(OTHER), &path, &env).unwrap();
        chown(&path, Some(OTHER), None).unwrap();
    }
    let error = LocalKey::load_as(&as_user(user), &path, &env).unwrap_err();
    assert!(matches!(error, KeyFileError::Foreign { owner: found, .. } if found == owner), "{error}");
}

#[test]
fn a_pipe_or_a_directory_in_place_of_the_key_is_refused_at_once() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("kek");
    mkfifo(&pipe, Mode::from_bits_truncate(0o600)).unwrap();
    for path in [pipe, dir.path().to_owned()] {
        let (done, loaded) = mpsc::channel();
        // In vain the thread may wait for a writer.
        thread::spawn(move || done.send(load(&path).map(drop)));
        let refused = loaded.recv_timeout(Duration::from_secs(5)).expect("it does not block").unwrap_err();
        assert!(matches!(refused, KeyFileError::NotAKey(_)), "{refused}");
    }
}

/// As Kubernetes mounts a secret: `kek` links to `..data/kek`, and `..data` to a directory.
#[test]
fn a_key_behind_symbolic_links_is_loaded_and_its_end_is_judged() {
    let dir = TempDir::new().unwrap();
    let mounted = dir.path().join("..2026_11_22");
    fs::create_dir(&mounted).unwrap();
    fs::write(mounted.join("kek"), [1; 32]).unwrap();
    symlink("..2026_11_22", dir.path().join("..data")).unwrap();
    symlink("..data/kek", dir.path().join("kek")).unwrap();
    for (mode, loads) in [(0o400, true), (0o644, false)] {
        fs::set_permissions(mounted.join("kek"), Permissions::from_mode(mode)).unwrap();
        assert_eq!(load(&dir.path().join("kek")).is_ok(), loads, "{mode:o}");
    }
}

#[test]
fn replicas_that_create_one_key_at_once_all_have_the_same() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("kek");
    let create = |seed| {
        let path = path.clone();
        thread::spawn(move || {
            let env = fixed::env(Timestamp(0), seed).0;
            LocalKey::load_or_create(&path, true, &env).unwrap().id().to_owned()
        })
    };
    let creating: Vec<_> = (1..=8).map(create).collect();
    let ids: Vec<_> = creating.into_iter().map(|creating| creating.join().unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left behind");
}
