//! Tables as HTML.

use super::text::escape;

/// Cells are HTML already; the first of each row is its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Columns with text: left-aligned. The first is.
    pub(super) text: Vec<usize>,
}

impl Table {
    /// Names in plain text.
    pub(super) fn new(head: &[&str], text: &[usize]) -> Self {
        Self { head: head.iter().map(|name| escape(name)).collect(), rows: Vec::new(), text: text.into() }
    }

    /// Empty without rows.
    pub(super) fn html(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let class = |column: usize| {
            if column == 0 || self.text.contains(&column) { "" } else { " class=\"num\"" }
        };
        let mut html = "<div class=\"wide\"><table><thead><tr>".to_owned();
        for (column, name) in self.head.iter().enumerate() {
            html += &format!("<th scope=\"col\"{}>{name}</th>", class(column));
        }
        html += "</tr></thead><tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for (column, cell) in row.iter().enumerate() {
                let tag = if column == 0 { "th scope=\"row\"" } else { "td" };
                let end = if column == 0 { "th" } else { "td" };
                html += &format!("<{tag}{}>{cell}</{end}>", class(column));
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div>\n"
    }
}
