//! The user's choice of a provider.

use std::{env::VarError, fmt, str::FromStr};

/// The environment variable by which the user chooses a provider for programs whose command line has no option for this
/// choice.
pub const VARIABLE: &str = "NAA_PROVIDER";

/// The provider that a program is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProviderChoice {
    /// The verbs provider if an RDMA device has the local address, otherwise the embedded provider. The embedded
    /// provider is also chosen if the RDMA device is soft-RoCE and rdma-core cannot be used.
    #[default]
    Auto,
    /// The verbs provider: rdma-core, for NICs and the Linux kernel's soft-RoCE.
    Verbs,
    /// The embedded provider: the RoCEv2 stack of this project, on UDP sockets.
    Embedded,
}

/// The error for a text that names none of the choices of [`ProviderChoice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadChoice {
    /// The text that was given as a choice; it is none of `auto`, `verbs` and `embedded`.
    pub value: String,
}

impl BadChoice {
    /// A text that says which values the user can write to choose a provider.
    pub const REMEDY: &'static str =
        "write auto (verbs where an RDMA device has the local address, else embedded), verbs or embedded";
}

impl fmt::Display for BadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no provider; {}", self.value, Self::REMEDY)
    }
}

impl std::error::Error for BadChoice {}

impl ProviderChoice {
    /// Returns the choice in the variable `NAA_PROVIDER`, or `Auto` if the variable is not set or empty.
    ///
    /// # Errors
    /// Fails if the variable has a value that is not empty and is none of `auto`, `verbs` and `embedded`.
    pub fn from_env() -> Result<Self, BadChoice> {
        match std::env::var(VARIABLE) {
            Ok(text) if text.trim().is_empty() => Ok(Self::Auto),
            Ok(text) => text.parse(),
            Err(VarError::NotPresent) => Ok(Self::Auto),
            Err(VarError::NotUnicode(value)) => Err(BadChoice { value: value.to_string_lossy().into() }),
        }
    }

    /// Returns the text that stands for the choice: `auto`, `verbs` or `embedded`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Verbs => "verbs",
            Self::Embedded => "embedded",
        }
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProviderChoice {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<Self, BadChoice> {
        let all = [Self::Auto, Self::Verbs, Self::Embedded];
        let found = all.into_iter().find(|choice| choice.name() == text.trim());
        found.ok_or_else(|| BadChoice { value: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for choice in [ProviderChoice::Auto, ProviderChoice::Verbs, ProviderChoice::Embedded] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for bad in ["", "Verbs", "rxe", "auto,verbs"] {
            let error = bad.parse::<ProviderChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("embedded"), "{error}");
        }
    }
}
