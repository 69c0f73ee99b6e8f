//! Chooses the layout of a session.

use mrsp::{
    RegionFlags,
    layout::{self, Layout, LayoutChoice, LayoutRule, Placed},
    region::MAX_REGION_BYTES,
};

use crate::{Error, Param, SessionConfig, variable};

/// The environment variable that holds the layout rule of `auto`, as `naa bench layouts --fit` prints it.
pub const LAYOUT_RULE_VARIABLE: &str = "NAA_LAYOUT_RULE";

/// Returns the default layout rule of a provider. The rule of the embedded provider was fitted with `naa bench layouts`
/// on the Intel Xeon machine of docs/explanation/layouts.md.
pub fn default_rule(provider: &str) -> LayoutRule {
    match provider {
        // The numbers in this rule were not measured on a NIC. The packed layout saves WRITEs, but costs time for
        // copying the small parameters. A WRITE costs less on a NIC than with the embedded provider, so copying saves
        // time only for smaller parameters. Therefore `small` is less than in the rule of the embedded provider. The
        // program can copy bytes while the NIC sends, so `most` is more than in the rule of the embedded provider.
        "verbs" => LayoutRule { small: 4096, at_least: 2, most: 4 << 20, otherwise: Layout::Gathered },
        _ => LayoutRule { small: 64 << 10, at_least: 2, most: 1 << 20, otherwise: Layout::Gathered },
    }
}

/// Returns the locations at which the parameters are to lie on the accelerator, or `None` if each parameter lies in a
/// region of its own. `params` must not contain internal regions.
pub(crate) fn arrange(
    config: &SessionConfig,
    provider: &str,
    params: &[&Param<'_>],
) -> Result<Option<Placed>, Error> {
    let layout = match config.layout {
        LayoutChoice::Fixed(layout) => layout,
        LayoutChoice::Auto => rule(config, provider)?.choose(params.iter().map(|param| param.len as u64)),
    };
    // If the program asks for the address of a parameter, each parameter needs a region of its own, because only
    // regions have addresses. Each parameter also gets a region of its own if one parameter is larger than the largest
    // permitted region. The error about the size can then name the parameter that is too large.
    let has_address = params.iter().any(|param| param.address.is_some());
    let size = |len| u32::try_from(len).ok().filter(|&bytes| u64::from(bytes) <= MAX_REGION_BYTES);
    let sizes: Option<Vec<(RegionFlags, u32)>> =
        params.iter().map(|param| Some((param.flags, size(param.len)?))).collect();
    match sizes.filter(|_| layout != Layout::Symmetric && !has_address && !params.is_empty()) {
        Some(sizes) => Ok(Some(layout::place(layout, &sizes).map_err(mrsp::host::SetupError::from)?)),
        None => Ok(None),
    }
}

fn rule(config: &SessionConfig, provider: &str) -> Result<LayoutRule, Error> {
    match config.layout_rule {
        Some(rule) => Ok(rule),
        None => Ok(rule_from_env()?.unwrap_or_else(|| default_rule(provider))),
    }
}

/// Returns the layout rule in the environment variable [`LAYOUT_RULE_VARIABLE`]. Returns `None` if
/// [`LAYOUT_RULE_VARIABLE`] is not set, is empty, or has white space only.
///
/// # Errors
/// Fails with [`Error::Environment`] if the value of [`LAYOUT_RULE_VARIABLE`] is not a layout rule.
pub fn rule_from_env() -> Result<Option<LayoutRule>, Error> {
    let Some(value) = variable(LAYOUT_RULE_VARIABLE)? else { return Ok(None) };
    match value.parse() {
        Ok(rule) => Ok(Some(rule)),
        Err(error) => {
            let problem = layout::ParseError::to_string(&error);
            Err(Error::Environment { name: LAYOUT_RULE_VARIABLE, value, problem })
        }
    }
}
