//! Tables as HTML.

use maud::{Markup, html};

/// The first cell of each row is its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    head: Vec<String>,
    pub(super) rows: Vec<Vec<Markup>>,
    /// Columns with text: left-aligned. The first is.
    text: Vec<usize>,
}

impl Table {
    pub(super) fn new(head: &[&str], text: &[usize]) -> Self {
        Self { head: head.iter().map(|&name| name.into()).collect(), rows: Vec::new(), text: text.into() }
    }

    /// Empty without rows.
    pub(super) fn html(&self) -> Markup {
        if self.rows.is_empty() {
            return Markup::default();
        }
        let class = |column: usize| (column > 0 && !self.text.contains(&column)).then_some("num");
        html! {
            div class="wide" {
                table {
                    thead {
                        tr {
                            @for (column, name) in self.head.iter().enumerate() {
                                th scope="col" class=[class(column)] { (name) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if column == 0 {
                                        th scope="row" { (cell) }
                                    } @else {
                                        td class=[class(column)] { (cell) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
