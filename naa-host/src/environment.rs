//! Environment variables: settings that the program itself does not make.

use std::env::{self, VarError};

use crate::Error;

/// What the environment variable `name` holds. `None` if it is not set. A variable that is empty, or holds white space
/// only, counts as not set.
///
/// # Errors
/// [`Error::Environment`] if its value is not text.
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
