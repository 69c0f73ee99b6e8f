//! The choice of a session's layout.

use mrsp::{
    RegionFlags,
    layout::{self, Choice, Layout, Placed, Rule},
    region::MAX_REGION_BYTES,
};

use crate::{Error, Param, SessionConfig, variable};

/// The environment variable that holds the layout rule of `auto`, as `naa bench layouts --fit` prints it.
pub const LAYOUT_RULE_VARIABLE: &str = "NAA_LAYOUT_RULE";

/// The layout rule of a provider, fitted with `naa bench layouts` on the machines of docs/explanation/layouts.md.
pub fn default_rule(provider: &str) -> Rule {
    match provider {
        // These numbers were not measured on a NIC. On a NIC, WRITEs cost less, and the program can copy bytes while
        // the NIC sends.
        "verbs" => Rule { small: 4096, at_least: 2, most: 4 << 20, otherwise: Layout::Gathered },
        _ => Rule { small: 64 << 10, at_least: 2, most: 1 << 20, otherwise: Layout::Gathered },
    }
}

/// Returns where the parameters are to lie on the accelerator; internal regions are not among `params`. `None`: each
/// parameter lies in a region of its own.
pub(crate) fn arrange(
    config: &SessionConfig,
    provider: &str,
    params: &[&Param<'_>],
) -> Result<Option<Placed>, Error> {
    let layout = match config.layout {
        Choice::Fixed(layout) => layout,
        Choice::Auto => rule(config, provider)?.choose(params.iter().map(|param| param.len as u64)),
    };
    // Addresses that the program asks for are addresses of regions, so each parameter needs a region of its own. A
    // parameter that is too large also needs a region of its own, so that the error names this parameter.
    let has_address = params.iter().any(|param| param.address.is_some());
    let size = |len| u32::try_from(len).ok().filter(|&bytes| u64::from(bytes) <= MAX_REGION_BYTES);
    let sizes: Option<Vec<(RegionFlags, u32)>> =
        params.iter().map(|param| Some((param.flags, size(param.len)?))).collect();
    match sizes.filter(|_| layout != Layout::Symmetric && !has_address && !params.is_empty()) {
        Some(sizes) => Ok(Some(layout::place(layout, &sizes).map_err(mrsp::host::SetupError::from)?)),
        None => Ok(None),
    }
}

fn rule(config: &SessionConfig, provider: &str) -> Result<Rule, Error> {
    match config.layout_rule {
        Some(rule) => Ok(rule),
        None => Ok(rule_from_env()?.unwrap_or_else(|| default_rule(provider))),
    }
}

/// The layout rule that [`LAYOUT_RULE_VARIABLE`] holds; `None` if the variable is not set, or empty.
///
/// # Errors
/// [`Error::Environment`] if the value of the variable is not a layout rule.
pub fn rule_from_env() -> Result<Option<Rule>, Error> {
    let Some(value) = variable(LAYOUT_RULE_VARIABLE)? else { return Ok(None) };
    match value.parse() {
        Ok(rule) => Ok(Some(rule)),
        Err(error) => {
            let problem = layout::ParseError::to_string(&error);
            Err(Error::Environment { name: LAYOUT_RULE_VARIABLE, value, problem })
        }
    }
}
