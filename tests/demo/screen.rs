//! Owns the output of pictures: in place on a terminal, one after another elsewhere.

use std::io::{self, IsTerminal, Stdout, Write};

/// Cursor home.
const HOME: &str = "\x1b[H";
/// Erase the rest of the line.
const ERASE_LINE: &str = "\x1b[K";
/// Erase the rest of the screen.
const ERASE_BELOW: &str = "\x1b[J";
/// Erase everything, hide the cursor, cut long lines instead of wrapping them.
const ENTER: &str = "\x1b[2J\x1b[?25l\x1b[?7l";
/// Show the cursor, wrap long lines.
const LEAVE: &str = "\x1b[?25h\x1b[?7h";

/// An output for pictures.
#[derive(Debug)]
pub(super) struct Screen<W: Write> {
    out: W,
    terminal: bool,
}

impl Screen<Stdout> {
    /// Prepares standard output.
    pub(super) fn standard_output() -> io::Result<Self> {
        let out = io::stdout();
        let terminal = out.is_terminal();
        Self::new(out, terminal)
    }
}

impl<W: Write> Screen<W> {
    /// Prepares an output that is, or is not, a terminal.
    pub(super) fn new(out: W, terminal: bool) -> io::Result<Self> {
        let mut screen = Self { out, terminal };
        if terminal {
            screen.write(ENTER)?;
        }
        Ok(screen)
    }

    /// Returns true if pictures are drawn in place.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Shows a picture.
    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        self.write(&frame(self.terminal, lines))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        if self.terminal {
            // A terminal that is gone needs no restoring.
            let _ = self.write(LEAVE);
        }
    }
}

/// Renders a whole picture for one write. Lines are erased only behind their new text, so that
/// nothing flickers.
fn frame(terminal: bool, lines: &[String]) -> String {
    let (start, line_end, end) = if terminal { (HOME, ERASE_LINE, ERASE_BELOW) } else { ("", "", "") };
    let mut frame = start.to_owned();
    for line in lines {
        frame.push_str(line);
        frame.push_str(line_end);
        frame.push('\n');
    }
    // On a terminal this erases the rest of a longer picture; in a file a blank line separates
    // pictures.
    frame.push_str(if terminal { end } else { "\n" });
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_drawn_over_and_a_file_is_appended_to() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(frame(true, &lines), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(frame(false, &lines), "a\nb\n\n");
    }
}
