//! Environment variables: settings for what the program leaves open.

use std::env::{self, VarError};

use crate::Error;

/// What the variable `name` holds. `None` if it is not set; one that is empty, or holds white space only, counts as not
/// set.
///
/// # Errors
/// [`Error::Environment`] if it holds no text.
pub fn variable(name: &'static str) -> Result<Option<String>, Error> {
    match env::var(name) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => {
            let value = value.to_string_lossy().into_owned();
            Err(Error::Environment { name, value, problem: "this is no text in UTF-8".into() })
        }
    }
}
