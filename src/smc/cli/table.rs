//! Text tables with aligned columns.
//!
//! Owns the layout. Control characters, line breaks included, come from untrusted objects and are shown as
//! `?`, so that they cannot control the terminal.

/// Rows under headings.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_owned)] }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.map(|cell| shown(cell.replace(char::is_control, "?"))));
    }

    /// The text, with a line break after every row. The last column is not padded.
    pub(super) fn render(&self) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
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
}
