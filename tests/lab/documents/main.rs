//! The commands of the documents about one machine, run as a person types them: taken from the fenced blocks,
//! in order, and compared with the output that stands under them.
//!
//! Owns which sections are run. A block that is left out has its reason here, and commands that no test runs
//! fail it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on fails")]

mod page;
mod terminal;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use smc_lab::beside;
use tokio::time::{Instant, sleep};

use page::{is_among, is_shown, prose};
use smc_testkit::page::{Block, Typed, blocks};
use terminal::Terminal;

/// How long a person looks until a change has arrived, on a machine that runs other tests besides.
const SOON: Duration = Duration::from_mins(1);

/// The commands that run until they are ended.
const STAY: [&str; 3] = ["smc controller ", "smc-lab up ", "$SMC_ENVOY "];

/// The commands that only look. A person who sees something else looks again.
const LOOK: [&str; 7] = [
    "smc proxy list",
    "smc proxy config ",
    "smc mesh ",
    "smc-lab exec shop/buyer -- smc-lab fetch ",
    "smc-lab smc proxy list",
    "smc-lab pods",
    "smc-lab logs ",
];

/// What is different each time, as the documents show it.
const DIFFERS: [(&str, &str); 7] = [
    ("/tmp/smc-lab-1000/", "/tmp/smc-lab-…/"),
    ("after 3.1 s", "after … s"),
    ("2s ago", "… ago"),
    ("3s ago", "… ago"),
    ("another 2d2h", "another …"),
    // The versions of a certificate, and of what the translation makes.
    ("b1bd340d6cb6", "…"),
    ("a10de89e92ec", "…"),
];

/// A person with a document in hand.
struct Reader {
    terminal: Terminal,
    /// The document.
    text: String,
    /// What is not done.
    left: Vec<Block>,
}

impl Reader {
    async fn of(document: &str) -> Self {
        let text = fs::read_to_string(format!("../../{document}")).unwrap();
        Self {
            terminal: Terminal::open().await,
            left: blocks(&text).into_iter().filter(|block| !block.language.is_empty()).collect(),
            text,
        }
    }

    /// Takes the blocks of a section.
    fn section(&mut self, heading: &str) -> Vec<Block> {
        let section: Vec<Block> = self.left.extract_if(.., |block| block.heading == heading).collect();
        assert!(!section.is_empty(), "nothing to type under {heading:?}");
        section
    }

    /// Does all that a section says.
    async fn follow(&mut self, heading: &str) {
        for block in self.section(heading) {
            if let "sh" | "console" = block.language.as_str() {
                for typed in block.commands() {
                    self.enter(typed).await;
                }
            } else {
                let file = block.file().unwrap_or_else(|| panic!("for which file: {}", block.prose));
                let path = self.terminal.directory().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, block.text).unwrap();
            }
        }
    }

    /// Does without a section, for a reason that its first line states. Returns the commands.
    fn leave_out(&mut self, heading: &str, reason: &str) -> Vec<String> {
        let section = self.section(heading);
        assert!(section[0].prose.trim_start().starts_with(reason), "{heading} does not say: {reason}");
        section.iter().flat_map(Block::commands).map(|typed| typed.command).collect()
    }

    /// Types a command. One whose output is not shown has to succeed; else the output says how it ended.
    async fn enter(&mut self, typed: Typed) {
        let Typed { command, mut shown } = typed;
        for (example, pattern) in DIFFERS {
            for line in &mut shown {
                *line = line.replace(example, pattern);
            }
        }
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| command.starts_with(prefix));
        let deadline = Instant::now() + SOON;
        if starts(&STAY) {
            let running = self.terminal.leaves(&command).await;
            while !is_among(&shown, &self.terminal.read(running)) {
                let waits = Instant::now() < deadline && !self.terminal.has_ended(running);
                let output = self.terminal.read(running);
                assert!(waits, "{command}\n{output}\ninstead of\n{}", shown.join("\n"));
                sleep(Duration::from_millis(100)).await;
            }
            return;
        }
        loop {
            let ended = self.terminal.types(&command).await;
            let expected = if shown.is_empty() { ended.code == "0" } else { is_shown(&shown, &ended.output) };
            if expected {
                return;
            }
            let again = starts(&LOOK) && Instant::now() < deadline;
            assert!(again, "{command}\n{}instead of\n{}\n({})", ended.output, shown.join("\n"), ended.code);
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Does what no document says in these words.
    async fn does(&mut self, command: &str, shown: &[&str]) {
        let shown = shown.iter().map(ToString::to_string).collect();
        self.enter(Typed { command: command.to_owned(), shown }).await;
    }

    /// Has nothing left to do.
    async fn ends(self) {
        let left: Vec<_> = self.left.iter().map(|block| (&block.heading, &block.text)).collect();
        assert!(left.is_empty(), "what is not done: {left:#?}");
        self.terminal.close().await;
    }
}

#[tokio::test]
async fn the_commands_of_the_readme_work_as_they_are_typed() {
    let mut reader = Reader::of("README.md").await;
    // This test is a part of the second one. The first one is `smc-demo`, which tests/e2e/demo.rs runs.
    reader.section("SMC: Service Mesh Controller");
    reader.follow("Running it by hand").await;
    reader.ends().await;
}

#[tokio::test]
async fn the_commands_of_the_labs_page_work_as_they_are_typed() {
    let mut reader = Reader::of("docs/lab.md").await;
    reader.follow("What it needs").await;
    reader.follow("A policy of your own").await;
    reader.follow("Commands").await;
    // `smc-lab up` ends as well, with success.
    reader.does("wait $!", &[]).await;
    reader.ends().await;
}

#[tokio::test]
async fn the_commands_of_the_machines_page_work_as_they_are_typed() {
    let mut reader = Reader::of("docs/machines.md").await;
    // What the page expects to be there: a controller of a mesh, at a name that the machine resolves.
    for command in [
        "export PATH=\"$HOME/.cache/smc/target/release:$PATH\" SMC_ADMIN_SOCKET=data/admin.sock",
        "export SMC_ENVOY=\"$HOME\"/.cache/smc/envoy-*/bin/envoy",
        "mkdir mesh",
        "echo '127.0.0.1 mesh.example.com' >hosts && mount --bind hosts /etc/hosts",
    ] {
        reader.does(command, &[]).await;
    }
    let controller = "smc controller --mesh-dir mesh --data-dir data --kek-file key --create-kek";
    let address = "127.0.0.1:15128";
    reader.does(&format!("{controller} --xds-listen {address}"), &[&format!("… ready xds={address}")]).await;
    reader.follow("1. Declare it").await;
    reader.follow("2. Make its bootstrap").await;
    let files = reader.terminal.directory().join("ledger-1");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files), 0o700);
    let written = fs::read_dir(&files).unwrap().map(|file| file.unwrap().file_name());
    let written: BTreeSet<String> = written.map(|name| name.into_string().unwrap()).collect();
    let named = ["envoy.json", "smc-envoy.service", "smc-init.service", "smc-proxy.conf", "smc.env"];
    assert_eq!(written.iter().collect::<Vec<_>>(), named);
    for name in named {
        assert_eq!(mode(&files.join(name)), 0o600, "{name}");
        assert!(reader.text.contains(&format!("`{name}`")), "the page does not name {name}");
    }
    // What the machine's owner reads in smc.env is what the page says.
    let environment = fs::read_to_string(files.join("smc.env")).unwrap();
    let mut commands = reader.leave_out("4. Start it", "No test types these two commands, since");
    start_units(&mut reader, &files, &environment).await;
    reader.follow("5. Allow it").await;
    reader.follow("Its certificate").await;
    commands.extend(reader.leave_out("Leaving", "No test types the command of this section, since"));
    for command in commands {
        assert!(environment.contains(&command), "smc.env does not say: {command}");
    }
    let stop = directive(&reader, &files, "smc-init.service", "ExecStop");
    reader.does(&stop, &[]).await;
    reader.does("! iptables-save | grep SMC", &[]).await;
    reader.ends().await;
}

/// Does what systemd does with the units, in this network namespace: the rules, and the proxy.
async fn start_units(reader: &mut Reader, files: &Path, environment: &str) {
    for line in environment.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once('=') {
            reader.does(&format!("export {name}='{value}'"), &[]).await;
        }
    }
    let rules = directive(reader, files, "smc-init.service", "ExecStart");
    reader.does(&rules, &[]).await;
    reader.does("iptables-save | grep -c 'SMC_PROXY_INBOUND .* --dport 22 -j RETURN'", &["1"]).await;
    let proxy = directive(reader, files, "smc-envoy.service", "ExecStart");
    reader.does(&proxy, &[]).await;
}

/// A command of a unit, with the places of this machine instead of those that the page names.
fn directive(reader: &Reader, files: &Path, unit: &str, name: &str) -> String {
    let unit = fs::read_to_string(files.join(unit)).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let command = command.unwrap().replace("${CREDENTIALS_DIRECTORY}", "ledger-1");
    let places = [("/usr/bin/envoy ", "$SMC_ENVOY "), ("/usr/local/bin/smc ", "smc ")];
    let (place, here) = places.into_iter().find(|(place, _)| command.starts_with(place)).unwrap();
    let page = &reader.text;
    assert!(page.contains(&format!("`{}`", place.trim_end())), "the page does not name {place}");
    command.replacen(place, here, 1)
}

/// The words between backticks that name a command, up to the first that is none of its own, and the flags.
fn named_command(quoted: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let mut words = quoted.split_whitespace();
    let program = words.next().filter(|word| ["smc", "smc-lab"].contains(word))?;
    let rest: Vec<&str> = words.take_while(|word| *word != "--").collect();
    // What follows belongs to the inner program.
    let inner = program == "smc-lab" && rest.first() == Some(&"smc");
    let plain = |word: &&&str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    let own = rest.iter().take_while(|word| !word.starts_with('-')).take_while(plain);
    let own = own.take(if inner { 1 } else { usize::MAX }).copied();
    let flags = rest.iter().filter(|word| !inner && word.starts_with("--")).copied().collect();
    Some((std::iter::once(program).chain(own).collect(), flags))
}

/// What the commands print about themselves has the flags that the documents name.
#[test]
fn the_flags_that_the_documents_name_are_those_of_the_commands() {
    let help = |command: &[&str]| {
        let program = beside(if command[0] == "smc" { "smc" } else { "smc-lab" }).unwrap();
        let output = std::process::Command::new(program).args(&command[1..]).arg("--help").output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let has = |help: &str, flag: &str| {
        help.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == flag)
    };
    for document in ["README.md", "docs/lab.md", "docs/machines.md"] {
        let text = prose(&fs::read_to_string(format!("../../{document}")).unwrap());
        let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let mut all = help(&["smc", "controller"]);
        for (command, flags) in quoted.iter().filter_map(|quoted| named_command(quoted)) {
            let help = help(&command);
            for flag in flags {
                assert!(has(&help, flag), "{document}: {command:?} has no flag {flag}\n{help}");
            }
            all.push_str(&help);
        }
        for flag in quoted
            .iter()
            .filter_map(|quoted| quoted.split_whitespace().next())
            .filter(|flag| flag.starts_with("--"))
        {
            assert!(has(&all, flag), "{document}: no command has the flag {flag}");
        }
    }
}
