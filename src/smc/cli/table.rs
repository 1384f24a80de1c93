//! Text tables with aligned columns.
//!
//! Owns the layout. Control characters, line breaks included, come from untrusted objects and are shown as
//! `?`, so that they cannot control the terminal. Nor do these objects decide how much is printed.

/// The widest cell that a column is aligned to, in characters. A longer one moves the rest of its own row,
/// and does not fill all others with spaces.
const MAX_ALIGNED: usize = 100;

/// The most bytes of a table: some 100,000 rows. A person reads it; a program reads the answer as JSON, where
/// nothing is repeated in each row.
const MAX_TEXT: usize = 16 << 20;

/// Rows under headings.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    /// The bytes of the cells.
    bytes: usize,
    /// The rows that there was no room for.
    left_out: usize,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_owned)], bytes: 0, left_out: 0 }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.bytes = self.bytes.saturating_add(cells.iter().map(String::len).sum());
        if self.bytes > MAX_TEXT {
            self.left_out += 1;
            return;
        }
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.map(|cell| shown(cell.replace(char::is_control, "?"))));
    }

    /// The text, with a line break after every row, and a last line if rows had to be left out. The last
    /// column is not padded.
    pub(super) fn render(&self) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count().min(MAX_ALIGNED));
            }
        }
        let (mut text, mut left_out) = (String::new(), self.left_out);
        for row in &self.rows {
            if text.len() > MAX_TEXT {
                left_out += 1;
                continue;
            }
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()) + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if left_out == 0 {
            return text;
        }
        text + &format!("{left_out} more rows: `-o json` lists all\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_cannot_control_the_terminal() {
        let mut table = Table::new(["NAME", "AGE"]);
        table.row(["a-long-name".to_owned(), "1s".to_owned()]);
        table.row(["\u{1b}[2J".to_owned(), String::new()]);
        assert_eq!(table.render(), "NAME         AGE\na-long-name  1s\n?[2J         -\n");
    }

    #[test]
    fn one_long_cell_does_not_make_all_rows_long() {
        let mut table = Table::new(["NAME", "AGE"]);
        for row in 0..1_000 {
            table.row([if row == 500 { "x".repeat(100_000) } else { "x".to_owned() }, "1s".to_owned()]);
        }
        let text = table.render();
        assert!(text.len() < 100_000 + 1_001 * (MAX_ALIGNED + 5), "{} bytes", text.len());
        assert!(text.contains(&format!("{}  1s\n", "x".repeat(100_000))));
    }

    #[test]
    fn a_table_has_its_bound_and_says_how_many_rows_it_leaves_out() {
        for (sentence, rows, cell) in
            [("many rows", 1_000_000, 1), ("long cells", 1_000, 100_000), ("aligned cells", 200_000, 90)]
        {
            let mut table = Table::new(["NAME", "AGE", "SIZE"]);
            for row in 0..rows {
                let long = if row == 0 { MAX_ALIGNED } else { cell };
                table.row(["x".to_owned(), "x".repeat(long), "y".to_owned()]);
            }
            let text = table.render();
            assert!(text.len() < MAX_TEXT + (200 << 10), "{sentence}: {} bytes", text.len());
            let shown = text.lines().filter(|line| line.starts_with("x ")).count();
            let last = format!("{} more rows: `-o json` lists all", rows - shown);
            assert_eq!(text.lines().last(), Some(last.as_str()), "{sentence}");
            assert!(shown > 100, "{sentence}: {shown}");
        }
    }
}
