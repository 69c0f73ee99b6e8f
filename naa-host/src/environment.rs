//! Reads environment variables, by which users change settings without changing the program.

use std::env::{self, VarError};

use crate::Error;

/// Returns the value of the environment variable `name`, or `None` if the variable is not set, is empty, or has white
/// space only.
///
/// # Errors
/// Fails with [`Error::Environment`] if the value is not text in UTF-8.
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
