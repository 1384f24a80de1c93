//! Owns what a page tells its reader to type, which of it is done, and whether an output is the one
//! that the page shows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use smc_testkit::page::{self, Typed};

/// Commands that are typed into one shell, and what the page says comes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) commands: String,
    /// The output beside the commands, if the page shows one.
    pub(super) shown: Option<String>,
}

/// The blocks of a page, by the heading that they stand under.
type Sections = BTreeMap<String, Vec<Block>>;

/// A page, and how far its readers are. Several of them may have it in hand, as at several machines.
#[derive(Debug)]
pub(super) struct Page {
    name: String,
    sections: Sections,
    done: Mutex<BTreeSet<(String, usize)>>,
}

impl Page {
    /// Opens a page of `docs/`.
    pub(super) fn open(name: &str) -> Self {
        let text = std::fs::read_to_string(Path::new("../../docs").join(name)).unwrap();
        Self { name: name.to_owned(), sections: sections(&text), done: Mutex::default() }
    }

    /// Number of blocks of a section.
    pub(super) fn len(&self, section: &str) -> usize {
        let blocks = self.sections.get(section);
        blocks.unwrap_or_else(|| panic!("{}: no commands under {section:?}", self.name)).len()
    }

    /// Takes blocks of a section, which are done then.
    pub(super) fn take(&self, section: &str, blocks: Range<usize>) -> &[Block] {
        assert!(blocks.end <= self.len(section), "{}: {section:?} has fewer blocks", self.name);
        self.done.lock().unwrap().extend(blocks.clone().map(|block| (section.to_owned(), block)));
        &self.sections[section][blocks]
    }

    /// Does without a section.
    pub(super) fn leave_out(&self, section: &str) {
        self.take(section, 0..self.len(section));
    }

    /// Fails for blocks that were neither typed nor left out.
    pub(super) fn assert_done(&self) {
        let done = self.done.lock().unwrap();
        let all = self.sections.iter().flat_map(|(section, blocks)| {
            blocks.iter().enumerate().map(move |(number, block)| (section, number, block))
        });
        let left: Vec<_> =
            all.filter(|(section, number, _)| !done.contains(&((*section).clone(), *number))).collect();
        assert!(left.is_empty(), "{}: commands that are not run: {left:#?}", self.name);
    }
}

/// Reads a page. Commands are in blocks of the kind `sh`, whose output may follow in one of the
/// kind `text`, and behind the prompts of those of the kind `console`.
fn sections(page: &str) -> Sections {
    let mut sections = Sections::new();
    // Where the block before stands, if its output may follow.
    let mut before = None;
    for block in page::blocks(page) {
        let adjacent = before.take().as_ref() == Some(&block.heading) && block.prose.trim().is_empty();
        let commands = sections.entry(block.heading.clone()).or_default();
        match block.language.as_str() {
            "sh" => {
                commands.push(Block { commands: block.text, shown: None });
                before = Some(block.heading);
            }
            "console" => commands.push(console(&block.commands())),
            "text" if adjacent => {
                if let Some(shell) = commands.last_mut() {
                    shell.shown = Some(block.text);
                }
            }
            _ => {}
        }
    }
    sections.retain(|_, commands| !commands.is_empty());
    sections
}

/// The commands behind the prompts, typed one after the other, and all of their output.
fn console(typed: &[Typed]) -> Block {
    let mut block = Block::default();
    for Typed { command, shown } in typed {
        block.commands.extend([command.as_str(), "\n"]);
        for line in shown {
            block.shown.get_or_insert_default().extend([line.as_str(), "\n"]);
        }
    }
    block
}

/// Whether an output is the one that a page shows. `...` and `…` stand for any text, of a line or
/// of several; how wide the columns of a table are depends on what is in it.
pub(super) fn fits(shown: &str, output: &str) -> bool {
    let plain = |text: &str| {
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.join("\n")
    };
    let (shown, output) = (plain(shown.trim_end()).replace('…', "..."), plain(output.trim_end()));
    let parts: Vec<_> = shown.split("...").collect();
    let [first, between @ .., last] = &parts[..] else { return shown == output };
    let Some(mut rest) = output.strip_prefix(first) else { return false };
    for part in between {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[test]
fn a_page_is_read_as_a_person_reads_it() {
    let page = "\
# First
```sh
echo a
```

```text
a
```
1. An item:

   ```sh
   cat <<END
     b
   END
   ```
   It says so, and this is no output of it:
   ```text
   b
   ```
```yaml
# no heading
```
## Second
```console
$ echo c \\
  d
c d
# echo e
```
";
    let block = |commands: &str, shown: Option<&str>| Block {
        commands: commands.to_owned(),
        shown: shown.map(ToOwned::to_owned),
    };
    let read = sections(page);
    assert_eq!(read["First"], [block("echo a\n", Some("a\n")), block("cat <<END\n  b\nEND\n", None)]);
    assert_eq!(read["Second"], [block("echo c \\\n  d\necho e\n", Some("c d\n"))]);
    assert_eq!(read.len(), 2);
}

#[test]
fn an_output_fits_what_a_page_shows_but_for_its_placeholders() {
    let output = "NAME    AGE\nweb-1   3s\nweb-2   4s\n";
    for (shown, expected) in [
        ("NAME AGE\nweb-1 3s\nweb-2 4s", true),
        ("NAME AGE\nweb-1 …\nweb-2 ...", true),
        ("NAME AGE\n...", true),
        ("... 4s", true),
        ("NAME AGE\n...-2 4s\n", true),
        ("NAME AGE\nweb-1 3s", false),
        ("NAME AGE\nweb-2 ...", false),
        ("... 3s", false),
        ("", false),
    ] {
        assert_eq!(fits(shown, output), expected, "{shown}");
    }
}
