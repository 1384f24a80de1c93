//! A document as what a person types: its blocks by heading, and the commands of a block. Pure.

use std::path::Path;

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The heading that it stands under.
    pub heading: String,
    /// The text between the block before it, or the heading, and this block.
    pub prose: String,
    /// What stands behind the fence.
    pub language: String,
    /// Its content.
    pub text: String,
}

/// A command, and the output that the document shows under it.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed {
    /// The command, without the prompt.
    pub command: String,
    /// The lines under it.
    pub shown: Vec<String>,
}

/// The fenced blocks of a document, in their order. Where a block belongs to an item of a list, it is
/// indented, and its text is not.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut prose, mut open) = (String::new(), String::new(), None::<(usize, Block)>);
    for line in document.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, &mut open) {
            (Some(language), None) => {
                let (heading, prose) = (heading.clone(), std::mem::take(&mut prose));
                let indent = line.len() - line.trim_start().len();
                let block = Block { heading, prose, language: language.to_owned(), text: String::new() };
                open = Some((indent, block));
            }
            (Some(""), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (_, Some((indent, block))) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
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

impl Block {
    /// The file that the text before the block names for it.
    pub fn file(&self) -> Option<&str> {
        let quoted = self.prose.split('`').skip(1).step_by(2);
        quoted.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "yaml")).last()
    }

    /// The commands of the block. In a `console`, each has a prompt, and its output below it; in a `sh`, each
    /// is a line.
    pub fn commands(&self) -> Vec<Typed> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_blocks_with_their_heading_and_text() {
        let document = "# Top\nWrite `a.yaml`, `b.yaml`, not `c.txt`:\n\n```yaml\nkind: Pod\n```\n\n```\npicture\n```\n\
                    lost\n## Next `x.yaml`\n\nText\n```sh\none\n# two\n```\n";
        let [file, picture, commands] = &blocks(document)[..] else { panic!("{:?}", blocks(document)) };
        assert_eq!((picture.language.as_str(), picture.text.as_str()), ("", "picture\n"));
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
}
