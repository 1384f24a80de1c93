//! The files of the repository, and the tests in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::Attribute;

/// The root of the repository: cargo starts tests in the directory of their package. A path that is
/// compiled in could be that of another clone that shares the build directory.
pub(crate) fn root() -> PathBuf {
    PathBuf::from("../..")
}

/// The text of a file, named from the root.
pub(crate) fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below `directory` with this extension, named from the root, sorted.
pub(crate) fn files(directory: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(&root().join(directory), extension, &mut found);
    found.sort();
    found
}

/// Every Rust file of the workspace.
pub(crate) fn rust_files() -> Vec<String> {
    let directories = ["proto", "src", "raft", "simulation", "tests", "benches", "fuzz"];
    directories.iter().flat_map(|directory| files(directory, "rs")).collect()
}

/// Whether a file is a module of tests.
pub(crate) fn is_test_file(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs")
}

/// Whether an item with these attributes is compiled for tests alone.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// The names of all tests of the workspace.
pub(crate) fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in rust_files() {
        let mut in_test = false;
        for line in read(&file).lines().map(str::trim_start) {
            in_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            if let Some((_, rest)) = line.split_once("fn ").filter(|_| in_test) {
                names.extend(rest.split(['(', '<']).next().map(ToOwned::to_owned));
                in_test = false;
            }
        }
    }
    names
}

fn collect(directory: &Path, extension: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let path = path.strip_prefix(root()).unwrap();
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}
