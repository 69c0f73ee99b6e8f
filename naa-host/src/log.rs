//! Reads the environment variable `NAA_LOG`, which filters the log lines on standard error.

use std::{fmt::Display, str::FromStr};

use tracing::level_filters::LevelFilter;

use crate::{Error, variable};

/// The environment variable with the filter of log lines that programs write to standard error. The program `naa` and
/// this project's C library read the filter from this variable. The filter has the grammar of tracing-subscriber's
/// `Targets`. The other modules of this library only emit log records; [`log_filter`] reads the filter for a program
/// that writes log lines.
pub const LOG_VARIABLE: &str = "NAA_LOG";

/// The path of each module of this project that emits log records begins with one of these words.
const OWN: [&str; 5] = ["naa", "roce", "verbs", "ejfat", "mrsp"];

const REMEDY: &str = "write off, error, warn, info, debug or trace, or PART=LEVEL such as naa_server=debug, with commas \
                      between several";

/// Returns the filter in [`LOG_VARIABLE`], or `None` if the variable is not set or is empty.
///
/// # Errors
/// Fails with [`Error::Environment`] if the value of [`LOG_VARIABLE`] is not a valid filter. If an element of the
/// filter has no `=`, it must be a level or must begin like a module path of this project. Such a path begins, for
/// example, with `naa` or `verbs`. A misspelt level is refused, because a misspelt level would otherwise be taken for
/// the name of a module.
pub fn log_filter<F: FromStr<Err: Display>>() -> Result<Option<F>, Error> {
    variable(LOG_VARIABLE)?.map(|text| read(&text)).transpose()
}

fn read<F: FromStr<Err: Display>>(text: &str) -> Result<F, Error> {
    let wrong = |problem: String| Error::Environment {
        name: LOG_VARIABLE,
        value: text.into(),
        problem: format!("{problem}; {REMEDY}"),
    };
    let directives: Vec<_> = text.split(',').map(str::trim).collect();
    if let Some(word) = directives.iter().find(|directive| !is_understood(directive)) {
        return Err(wrong(format!("{word:?} is no level and no part of naa")));
    }
    directives.join(",").parse().map_err(|error: F::Err| wrong(error.to_string()))
}

fn is_understood(directive: &str) -> bool {
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    match directive.rsplit_once('=') {
        Some((part, level)) => !part.is_empty() && is_level(level),
        None => is_level(directive) || OWN.iter().any(|own| directive.starts_with(own)),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::Targets;

    use super::*;

    #[test]
    fn filters_are_levels_and_parts_of_this_project() {
        for good in
            ["off", "WARN", "3", "warn, naa_server=debug", "naa_host::device", "roce,h2=info", "naa=off"]
        {
            assert!(read::<Targets>(good).is_ok(), "{good}");
        }
        for (bad, word) in [
            ("loud", "\"loud\""),
            ("naa=loud", "\"naa=loud\""),
            ("info,", "\"\""),
            ("info,verbose", "\"verbose\""),
        ] {
            let error = read::<Targets>(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("NAA_LOG={bad}: {word} is no level")), "{error}");
            assert!(error.contains("debug or trace") && error.contains("naa_server=debug"), "{error}");
        }
    }
}
