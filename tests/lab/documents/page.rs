//! Owns a document as what a person types: its blocks by heading, the commands of a block, and whether an
//! output is the one that stands under a command. Pure.

use std::path::Path;

/// Any text in a line; as a line of its own, any lines.
const ANYTHING: &str = "…";

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The heading that it stands under.
    pub(crate) heading: String,
    /// The text between the block before it, or the heading, and this block.
    pub(crate) prose: String,
    /// What stands behind the fence.
    pub(crate) language: String,
    /// Its content.
    pub(crate) text: String,
}

/// A command, and the output that the document shows under it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// The command, without the prompt.
    pub(crate) command: String,
    /// The lines under it.
    pub(crate) shown: Vec<String>,
}

/// The blocks of a document that hold commands or files, in their order. A block without a language is
/// a picture.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut prose, mut open) = (String::new(), String::new(), None::<Block>);
    for line in document.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let (heading, prose) = (heading.clone(), std::mem::take(&mut prose));
                open = Some(Block { heading, prose, language: language.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|block| !block.language.is_empty())),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) if line.starts_with('#') => {
                line.trim_start_matches('#').trim().clone_into(&mut heading);
                prose.clear();
            }
            (None, None) => {
                prose.push_str(line);
                prose.push(' ');
            }
        }
    }
    blocks
}

/// The document without its blocks.
pub(crate) fn prose(document: &str) -> String {
    let mut inside = false;
    let lines = document.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Block {
    /// The file that the text before the block names for it.
    pub(crate) fn file(&self) -> Option<&str> {
        let quoted = self.prose.split('`').skip(1).step_by(2);
        quoted.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "yaml")).last()
    }

    /// The commands of the block. In a `console`, each has a prompt, and its output below it; in a `sh`, each
    /// is a line.
    pub(crate) fn commands(&self) -> Vec<Typed> {
        let mut commands: Vec<Typed> = Vec::new();
        for line in self.text.lines() {
            let command = match self.language.as_str() {
                "sh" => Some(line),
                _ => line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
            };
            match (command, commands.last_mut()) {
                (Some(command), _) => {
                    commands.push(Typed { command: command.to_owned(), shown: Vec::new() });
                }
                (None, Some(typed)) if typed.shown.is_empty() && typed.command.ends_with('\\') => {
                    typed.command.push('\n');
                    typed.command.push_str(line);
                }
                (None, Some(typed)) => typed.shown.push(line.to_owned()),
                (None, None) => panic!("without a prompt: {line}"),
            }
        }
        commands
    }
}

/// Whether the output is, from its first to its last line, what is shown.
pub(crate) fn is_shown<'a>(shown: &'a [String], output: &'a str) -> bool {
    fn match_lines(shown: &[&str], lines: &[&str]) -> bool {
        match (shown, lines) {
            ([], lines) => lines.is_empty(),
            ([ANYTHING, rest @ ..], lines) => {
                (0..=lines.len()).any(|skipped| match_lines(rest, &lines[skipped..]))
            }
            ([first, rest @ ..], [line, lines @ ..]) => is_like(first, line) && match_lines(rest, lines),
            (_, []) => false,
        }
    }
    match_lines(&shown.iter().map(String::as_str).collect::<Vec<_>>(), &output.lines().collect::<Vec<_>>())
}

/// Whether each line that is shown is somewhere in the output: several parts of a program write at once.
pub(crate) fn is_among(shown: &[String], output: &str) -> bool {
    shown.iter().all(|shown| output.lines().any(|line| is_like(shown, line)))
}

/// Whether a line is the one that is shown. The width of columns does not count.
fn is_like(shown: &str, line: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (squeezed(shown), squeezed(line));
    let Some((first, others)) = shown.split_once(ANYTHING) else { return shown == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = others.split(ANYTHING).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn a_document_is_read_as_blocks_with_their_heading_and_text() {
    let document = "# Top\nWrite `a.yaml`, `b.yaml`, not `c.txt`:\n\n```yaml\nkind: Pod\n```\n\n```\npicture\n```\n\
                    lost\n## Next `x.yaml`\n\nText\n```sh\none\n# two\n```\n";
    let [file, commands] = &blocks(document)[..] else { panic!("{:?}", blocks(document)) };
    assert_eq!((file.heading.as_str(), file.text.as_str()), ("Top", "kind: Pod\n"));
    assert_eq!(file.file(), Some("b.yaml"));
    assert_eq!((commands.heading.as_str(), commands.prose.trim()), ("Next `x.yaml`", "Text"));
    assert_eq!((commands.file(), commands.commands().len()), (None, 2));
}

#[test]
fn commands_of_a_console_have_their_output_under_them() {
    let block = |text: &str| Block {
        heading: String::new(),
        prose: String::new(),
        language: "console".to_owned(),
        text: text.to_owned(),
    };
    let typed = |command: &str, shown: &[&str]| Typed {
        command: command.to_owned(),
        shown: shown.iter().map(ToString::to_string).collect(),
    };
    let console = block("$ one \\\n    --flag\nout\n\nout $ 2\n# two\n$ three\n");
    assert_eq!(
        console.commands(),
        [typed("one \\\n    --flag", &["out", "", "out $ 2"]), typed("two", &[]), typed("three", &[])]
    );
}

#[test]
fn an_output_is_compared_with_what_is_shown() {
    let lines = |text: &str| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    for (shown, output, whole, among) in [
        ("", "", true, true),
        ("", "more\n", false, true),
        ("a b\n", "a   b\n", true, true),
        ("a b\n", "x\na b\n", false, true),
        ("a b\n", "a c\n", false, false),
        ("a\nb\n", "b\na\n", false, true),
        ("a…z…c\n", "a1z2c\n", true, true),
        ("a…z…c\n", "a1c2z\n", false, false),
        ("a…a\n", "a\n", false, false),
        ("a …\n", "a b c\n", true, true),
        ("…\nb\n", "x\n\ny\nb\n", true, true),
        ("a\n…\nb\n", "a\nb\n", true, true),
        ("a\n…\nb\n", "a\nb\nc\n", false, true),
        ("a\n", "", false, false),
    ] {
        assert_eq!(is_shown(&lines(shown), output), whole, "{shown:?} {output:?}");
        assert_eq!(is_among(&lines(shown), output), among, "{shown:?} {output:?}");
    }
}
