//! One line of the table.

use std::{fmt, time::Duration};

use serde::Serialize;

/// What became of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What cases are counted by: a program and its language, or a suite.
    pub label: String,
    pub case: String,
    /// "ok", or why not.
    pub result: String,
    pub seconds: f64,
    pub note: String,
}

impl Row {
    pub(super) fn new(label: &str, case: &str, took: Duration, result: Result<String, String>) -> Self {
        let (result, note) = match result {
            Ok(note) => ("ok".to_owned(), note),
            Err(why) => (why, String::new()),
        };
        Self { label: label.to_owned(), case: case.to_owned(), result, seconds: took.as_secs_f64(), note }
    }

    pub fn passed(&self) -> bool {
        self.result == "ok"
    }
}

/// The text without the characters that separate cells and lines.
fn cell(text: &str) -> String {
    text.replace(['|', '\n'], " ")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [label, case, result, note] =
            [&self.label, &self.case, &self.result, &self.note].map(|t| cell(t));
        write!(f, "{label}|{case}|{result}|{:.2}|{note}", self.seconds)
    }
}
