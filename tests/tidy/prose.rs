//! The words of comments, their width, and the length of the names of tests. CONTRIBUTING.md has the
//! rules that no test can judge.

use crate::sources::{files, read, rust_files, test_names};

/// The widest comment, in columns: the width that rustfmt keeps for code, which does not wrap comments.
const MAX_COLUMNS: usize = 110;

/// Words that stand where a domain noun belongs, or that have a plainer form, in lower case.
const BANNED: [&str; 9] =
    ["whoever", "nobody", "somebody", "anew", "octet", "octets", "told", "thereof", "whereof"];

/// The text of a line's comment, if the line is or ends with one. A string that holds `//` is not
/// told apart, which only makes the rule stricter.
fn comment(line: &str) -> Option<&str> {
    line.find("//").filter(|&at| !line[..at].ends_with(':')).map(|at| &line[at..])
}

fn banned(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.find_map(|word| BANNED.into_iter().find(|banned| *banned == word))
}

#[test]
fn comments_use_plain_words() {
    let mut wrong = Vec::new();
    for file in rust_files().into_iter().filter(|file| file != "tests/tidy/prose.rs") {
        for (number, line) in read(&file).lines().enumerate() {
            if let Some(word) = comment(line).and_then(banned) {
                wrong.push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "a domain noun says more (CONTRIBUTING.md):\n{}", wrong.join("\n"));
}

#[test]
fn documents_use_plain_words() {
    let mut wrong = Vec::new();
    let mut documents = files("docs", "md");
    documents
        .extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "benches/README.md"].map(ToOwned::to_owned));
    for file in documents {
        for (number, line) in read(&file).lines().enumerate() {
            // Between backticks are names, whose words are judged where they are defined.
            let prose: String = line.split('`').step_by(2).collect();
            if let Some(word) = banned(&prose) {
                wrong.push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "a domain noun says more (CONTRIBUTING.md):\n{}", wrong.join("\n"));
}

#[test]
fn comments_are_not_too_wide() {
    let mut wrong = Vec::new();
    for file in rust_files() {
        for (number, line) in read(&file).lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > MAX_COLUMNS {
                wrong.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "comments wider than {MAX_COLUMNS} columns:\n{}", wrong.join("\n"));
}

/// The longest name of a test, in characters. Its doc comment says the rest.
const MAX_TEST_NAME: usize = 70;

#[test]
fn the_names_of_tests_are_short_sentences() {
    let names = test_names();
    assert!(names.len() > 500, "the tests are found: {}", names.len());
    let long: Vec<_> = names.into_iter().filter(|name| name.len() > MAX_TEST_NAME).collect();
    assert!(long.is_empty(), "names of tests over {MAX_TEST_NAME} characters: {long:#?}");
}
