//! What the documents say of the tree: the files and tests that they name exist, and the code map
//! is complete.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{files, read, root, test_names};

/// All documents for people.
fn documents() -> Vec<String> {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benches/README.md"];
    top.map(ToOwned::to_owned).into_iter().chain(files("docs", "md")).collect()
}

/// What stands between backticks, line by line, outside of blocks of code.
pub(crate) fn quoted(text: &str) -> Vec<&str> {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        code ^= line.trim_start().starts_with("```");
        !code
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// A rule of `docs/smi.md`: its first line, the files after "code:" and the tests after "tests:".
#[derive(Default)]
struct Rule<'a> {
    title: &'a str,
    code: Vec<&'a str>,
    tests: Vec<&'a str>,
}

fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("- ") {
            rules.push(Rule { title, ..Rule::default() });
            section = "";
        }
        let Some(rule) = rules.last_mut().filter(|_| line.starts_with("  ")) else { continue };
        if let Some((named, _)) = line.strip_prefix("  - ").and_then(|line| line.split_once(':')) {
            section = named;
        }
        match section {
            "code" => rule.code.extend(quoted(line)),
            "tests" => rule.tests.extend(quoted(line)),
            _ => {}
        }
    }
    rules
}

#[test]
fn every_rule_of_the_smi_index_names_files_and_tests_that_exist() {
    let (index, existing) = (read("docs/smi.md"), test_names());
    let rules = rules(&index);
    assert!(rules.len() > 50, "the index is read: {} rules", rules.len());
    let mut wrong = Vec::new();
    for Rule { title, code, tests } in &rules {
        if code.is_empty() || tests.is_empty() {
            wrong.push(format!("{title}: names {} files and {} tests", code.len(), tests.len()));
        }
        for file in code.iter().filter(|file| !root().join(file).is_file()) {
            wrong.push(format!("{title}: there is no file {file}"));
        }
        for test in tests.iter().filter(|test| !existing.contains(**test)) {
            wrong.push(format!("{title}: there is no test {test}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_that_a_document_names_is_there() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = read(&document);
        let directory = root().join(&document).parent().unwrap().to_owned();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            if !directory.join(path).exists() {
                wrong.push(format!("{document}: the link {link}"));
            }
        }
        let top =
            ["src/", "raft/", "proto/", "simulation/", "tests/", "benches/", "docs/", ".ci/", ".cargo/"];
        for name in quoted(&text).into_iter().filter(|name| top.iter().any(|top| name.starts_with(top))) {
            let path = name.split("::").next().unwrap_or_default();
            if !root().join(path).exists() {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The longest that ARCHITECTURE.md may be, in lines: it is the way in, and details have documents
/// of their own.
const MAX_ARCHITECTURE: usize = 150;

#[test]
fn the_code_map_is_short_and_names_every_package_and_layer() {
    let map = read("ARCHITECTURE.md");
    assert!(map.lines().count() <= MAX_ARCHITECTURE, "{} lines", map.lines().count());
    let named: BTreeSet<&str> =
        quoted(&map).into_iter().map(|name| name.trim_end_matches('/').trim_end_matches(".rs")).collect();
    let mut missing = Vec::new();
    for directory in ["src", "raft", "tests"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{directory}/{}", entry.file_name().into_string().unwrap());
            if entry.path().is_dir() && !named.contains(path.as_str()) {
                missing.push(path);
            }
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {}", missing.join(", "));
}

#[test]
fn the_tests_that_design_documents_name_exist() {
    let existing = test_names();
    let mut wrong = Vec::new();
    for document in files("docs/design", "md") {
        let text = read(&document);
        // In the paragraph that begins with "Test:", a name of several words is a test's.
        let mut named = false;
        let paragraphs: String = text
            .lines()
            .filter(|line| {
                named =
                    line.starts_with("- **Test:**") || named && !line.is_empty() && !line.starts_with("- **");
                named
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let tests = quoted(&paragraphs).into_iter().filter(|name| {
            name.split('_').count() > 3
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        for test in tests.filter(|test| !existing.contains(*test)) {
            wrong.push(format!("{document}: there is no {test}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The items of `docs/security.md`: their first word, and the tests that they name.
fn claims(text: &str) -> Vec<(&str, Vec<&str>)> {
    let items = text.split("\n- **").skip(1);
    let items = items.map(|item| item.split("\n\n").next().unwrap_or_default());
    items
        .map(|item| {
            let kind = item.split(['*', ':']).next().unwrap_or_default();
            (kind, quoted(item).into_iter().filter(|name| name.split('_').count() > 3).collect())
        })
        .collect()
}

#[test]
fn what_an_attacker_cannot_do_is_shown_by_tests_that_exist() {
    let (text, existing) = (read("docs/security.md"), test_names());
    let claims = claims(&text);
    assert!(claims.len() > 30, "the document is read: {} items", claims.len());
    let mut wrong = Vec::new();
    for (number, (kind, tests)) in (1..).zip(&claims) {
        match *kind {
            "Cannot" if tests.is_empty() => wrong.push(format!("item {number} names no test")),
            "Cannot" | "Can" | "Open" => {}
            other => wrong.push(format!("item {number} begins with {other:?}")),
        }
        for test in tests.iter().filter(|test| !existing.contains(**test)) {
            wrong.push(format!("item {number}: there is no test {test}"));
        }
    }
    assert!(wrong.is_empty(), "docs/security.md:\n{}", wrong.join("\n"));
}

/// A fenced block whose first line is a comment with the path of a file quotes that file: its lines stand
/// there one after the other, further in or out.
#[test]
fn what_a_document_quotes_is_in_the_code() {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (mut quotations, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = read(&document);
        for block in text.split("```rust\n").skip(1) {
            let block = lines(block.split("```").next().unwrap_or_default());
            let Some((path, quoted)) = block.split_first() else { continue };
            let Some(path) = path.strip_prefix("// ") else { continue };
            let quoted: Vec<_> = quoted.iter().filter(|line| !line.is_empty()).cloned().collect();
            quotations += 1;
            if !lines(&read(path)).windows(quoted.len()).any(|window| window == quoted) {
                wrong.push(format!("{document}: {path} has no longer:\n{}", quoted.join("\n")));
            }
        }
    }
    assert!(quotations > 5 && wrong.is_empty(), "{quotations} quotations; {}", wrong.join("\n"));
}

/// The pages whose commands a test of `TYPING` types: one of its files opens each.
const TYPED: [&str; 4] =
    ["docs/cluster.md", "docs/install.md", "docs/migrating-from-osm.md", "docs/operation.md"];
const TYPING: &str = "tests/kubernetes/e2e/documents";

/// Those that tests of the lab (`tests/lab/`) type.
const TYPED_IN_THE_LAB: [&str; 3] = ["README.md", "docs/lab.md", "docs/machines.md"];

/// Programs whose commands a page tells its reader to type.
const PROGRAMS: [&str; 7] = ["smc", "smc-cluster", "smc-lab", "kubectl", "helm", "make", "osm"];

/// The lines of a page that are commands: those of fenced blocks that are typed, and those that are
/// indented as code instead, which no test finds.
fn commands(text: &str) -> (usize, Vec<&str>) {
    let (mut kind, mut typed, mut indented) = (None, 0, Vec::new());
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        match (word.strip_prefix("```"), kind) {
            (Some(opened), None) => kind = Some(opened),
            (Some(_), Some(_)) => kind = None,
            (None, Some("sh" | "console")) => typed += 1,
            (None, None) if line.starts_with("    ") && PROGRAMS.contains(&word) => indented.push(line),
            _ => {}
        }
    }
    (typed, indented)
}

/// A page for users whose commands no test types says so at its beginning, and why.
#[test]
fn the_commands_of_every_page_are_typed_by_a_test() {
    let pages = files("docs", "md").into_iter().filter(|page| !page.starts_with("docs/design/"));
    let tests: String = files(TYPING, "rs").iter().map(|file| read(file)).collect();
    let mut wrong = Vec::new();
    for page in pages.chain(["README.md".to_owned()]) {
        let text = read(&page);
        let (typed, indented) = commands(&text);
        wrong.extend(
            indented.iter().map(|line| format!("{page}: put this into a block of the kind sh:{line}")),
        );
        let excused = text.lines().take(5).any(|line| line.contains("are not run by a test"));
        let opened = format!("Page::open(\"{}\")", page.trim_start_matches("docs/"));
        if TYPED.contains(&page.as_str()) {
            if !tests.contains(&opened) {
                wrong.push(format!("{page}: no test in {TYPING} opens it"));
            }
        } else if typed > 0 && !excused && !TYPED_IN_THE_LAB.contains(&page.as_str()) {
            wrong.push(format!("{page}: no test types its {typed} lines"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
