//! Tables for people.

use std::io::{self, Write as _};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets::NOTHING};

/// The number of spaces between columns.
const GAP: u16 = 2;

/// A column of a [`TextTable`], with its least width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The cells of the column are aligned to the left.
    Left(u16),
    /// The cells of the column are aligned to the right.
    Right(u16),
}

/// A table of text. It is printed row by row, or made at once by [`TextTable::of`].
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    on_stderr: bool,
}

impl TextTable {
    /// Creates a table whose further columns are aligned to the left.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), on_stderr: false }
    }

    /// Prints the table to standard error if standard output belongs to the JSON.
    #[must_use]
    pub fn on_stderr(self, on_stderr: bool) -> Self {
        Self { on_stderr, ..self }
    }

    /// Returns a whole table, all columns of which are aligned to the left.
    pub fn of<C: ToString>(
        head: impl IntoIterator<Item: ToString>,
        rows: impl IntoIterator<Item: IntoIterator<Item = C>>,
    ) -> String {
        Self::default().whole(head, rows)
    }

    /// Returns the lines of a head and rows, without a line feed at the end.
    pub fn whole<C: ToString>(
        &mut self,
        head: impl IntoIterator<Item: ToString>,
        rows: impl IntoIterator<Item: IntoIterator<Item = C>>,
    ) -> String {
        let mut table = Table::new();
        table.add_row(head).add_rows(rows);
        self.shaped(table)
    }

    /// Returns the line of a row. Each column stays as wide as its widest cell until then.
    pub fn format(&mut self, cells: impl IntoIterator<Item: ToString>) -> String {
        let mut table = Table::new();
        table.add_row(cells);
        self.shaped(table)
    }

    fn shaped(&mut self, mut table: Table) -> String {
        table.load_style(NOTHING);
        let widths = table.column_max_content_widths();
        self.columns.resize(self.columns.len().max(widths.len()), Column::Left(0));
        for ((shown, column), width) in table.column_iter_mut().zip(&mut self.columns).zip(widths) {
            let (Column::Left(least) | Column::Right(least)) = column;
            *least = width.max(*least);
            shown.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least.saturating_add(GAP))));
            shown.set_padding((0, GAP)).set_cell_alignment(match column {
                Column::Left(_) => CellAlignment::Left,
                Column::Right(_) => CellAlignment::Right,
            });
        }
        table.trim_fmt()
    }

    /// Prints a row.
    ///
    /// # Errors
    /// Fails if the output stream cannot be written.
    pub fn row(&mut self, cells: impl IntoIterator<Item: ToString>) -> anyhow::Result<()> {
        let line = self.format(cells);
        self.line(&line)
    }

    /// Prints a line that is not in columns.
    ///
    /// # Errors
    /// Fails if the output stream cannot be written.
    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        let written = if self.on_stderr { writeln!(io::stderr(), "{text}") } else { line(text) };
        Ok(written?)
    }
}

/// Prints a line to standard output.
///
/// # Errors
/// Fails if standard output cannot be written, for example because the reader of a pipe has ended.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    // The kind of the error stays, so that a closed pipe can be recognised, which is no failure.
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        assert_eq!(TextTable::of(["a", "b"], [["long", "x"], ["  in", ""]]), "a     b\nlong  x\n  in");
        assert_eq!(TextTable::of(["name", "n"], [["日本", "1"]]), "name  n\n日本  1");
        assert_eq!(TextTable::of(["only", "a head"], [[""; 2]; 0]), "only  a head");
    }

    #[test]
    fn columns_that_are_printed_row_by_row_never_become_narrower() {
        let mut table = TextTable::new([Column::Right(3), Column::Left(2)]);
        assert_eq!(table.format(["1", "a", "b"]), "  1  a   b");
        assert_eq!(table.format(["12345", "abc"]), "12345  abc");
        assert_eq!(table.format(["1", "a", "b"]), "    1  a    b");
        assert_eq!(table.format(["1"]), "    1");
    }
}
