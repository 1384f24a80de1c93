//! The shape of source files.

use crate::sources::{read, rust_files};

/// The longest file, in lines. Most stay under 300; a longer one holds two things.
const MAX_LINES: usize = 600;

#[test]
fn no_file_is_too_long() {
    let lines = |file: &String| read(file).lines().count();
    let long: Vec<_> = rust_files()
        .into_iter()
        .map(|file| (lines(&file), file))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines; which two things are in each? {long:#?}");
}

#[test]
fn modules_have_one_style() {
    let mut wrong = Vec::new();
    for file in rust_files() {
        if file.ends_with("/mod.rs") {
            wrong.push(format!("{file}: name it after its directory, beside it"));
        }
        if read(&file).lines().any(|line| line.trim_start().starts_with("#[path")) {
            wrong.push(format!("{file}: has a #[path] attribute"));
        }
        if file.ends_with("_tests.rs") {
            wrong.push(format!("{file}: unit tests are inline, or in the module `tests` of what they test"));
        }
        let name = file.rsplit('/').next().unwrap_or_default();
        if ["utils.rs", "util.rs", "common.rs", "helpers.rs", "misc.rs"].contains(&name) {
            wrong.push(format!("{file}: name it after the one thing in it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two clones may share a build directory: a program that one of them built would look for its files there,
/// and not in the other.
#[test]
fn no_path_of_the_clone_is_compiled_in() {
    let compiled_in = concat!("env!(\"CARGO_", "MANIFEST_DIR\")");
    let wrong: Vec<_> = rust_files().into_iter().filter(|file| read(file).contains(compiled_in)).collect();
    assert!(
        wrong.is_empty(),
        "cargo starts tests in the directory of their package; begin there: {wrong:#?}"
    );
}

#[test]
fn clippy_judges_the_length_of_functions() {
    let manifest = read("Cargo.toml");
    assert!(!manifest.contains("too_many_lines"), "Cargo.toml allows functions of any length");
    assert!(
        read("clippy.toml").contains("too-many-lines-threshold = 80"),
        "clippy.toml has another threshold"
    );
}
