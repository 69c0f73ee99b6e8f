//! The exit status of a command that failed.

use std::process::ExitCode;

use crate::Usage;

const FAILURE: u8 = 1;
/// The status that clap uses for wrong command lines.
const USAGE: u8 = 2;

/// 2 if the command line or an environment variable makes no sense, else 1.
pub(crate) fn status(error: &anyhow::Error) -> ExitCode {
    let is_usage = error.is::<Usage>() || error.chain().any(is_environment);
    ExitCode::from(if is_usage { USAGE } else { FAILURE })
}

/// The error of a host: the cause itself, or the session's error inside an error of a call or subscription. Such an error is
/// displayed as the session's error, which is therefore not in its chain of causes.
pub(crate) fn host_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a naa_host::Error> {
    match (cause.downcast_ref(), cause.downcast_ref()) {
        (Some(naa_events::Error::Session(error)), _) => Some(error),
        (_, Some(naa_services::HostError::Session(error))) => Some(error),
        _ => cause.downcast_ref(),
    }
}

/// Whether an environment variable is wrong.
fn is_environment(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(host_error(cause), Some(naa_host::Error::Environment { .. }))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_wrong_variable_is_an_error_of_usage_whoever_reports_it() {
        let wrong = || naa_host::Error::Environment {
            name: "NAA_TIMEOUT",
            value: "soon".into(),
            problem: "this is no time".into(),
        };
        let usage = format!("{:?}", ExitCode::from(USAGE));
        for error in [
            anyhow!(wrong()),
            anyhow!(wrong()).context("cannot call"),
            anyhow!(naa_events::Error::Session(wrong())),
            anyhow!(naa_services::HostError::Session(wrong())).context("cannot ask"),
            Usage::error("no such command"),
        ] {
            assert_eq!(format!("{:?}", status(&error)), usage, "{error:#}");
        }
        let failure = anyhow!(naa_host::Error::NoCall);
        assert_eq!(format!("{:?}", status(&failure)), format!("{:?}", ExitCode::from(FAILURE)));
    }
}
