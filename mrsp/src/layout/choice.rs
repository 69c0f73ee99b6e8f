//! The layout that a program chooses, and the textual form of this choice.

use std::{fmt, str::FromStr};

use crate::region::RegionFlags;

/// The layout of parameters in the accelerator's regions, which also decides by which WRITEs the parameters are sent. A
/// region has at most 2 GiB. If a layout has one region for all parameters and they need more than 2 GiB together, the
/// accelerator has several regions instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// The layout with one region and one WRITE for each parameter. Every accelerator supports the symmetric layout.
    #[default]
    Symmetric,
    /// The layout with one region for all parameters and one WRITE for each parameter.
    Asymmetric,
    /// The layout with one region for all parameters, in which one WRITE sends all inputs by a scatter-gather list.
    Gathered,
    /// The gathered layout, in which the host also copies small parameters through its staging region. An output is
    /// copied if its size is at most `threshold`. A parameter that is not an output is copied if its size is at most a
    /// [sixteenth](Layout::INPUT_SHARE) of `threshold`.
    Packed {
        /// The maximum size in bytes of an output that is copied through the staging region.
        threshold: u32,
    },
}

impl Layout {
    /// The packed layout with the default threshold. A user chooses this layout by the text `packed`. A text such as
    /// `packed:4096` chooses the packed layout with another threshold. The default threshold is 65,536 bytes, because
    /// copying an output of 65,536 bytes takes about as long as an additional WRITE.
    pub const PACKED: Self = Self::Packed { threshold: 65_536 };
    /// The number by which `threshold` of [`Self::Packed`] is divided for parameters that are not outputs. In the
    /// packed layout, such a parameter is copied through the staging region if its size is at most the quotient. The
    /// limit for outputs is `threshold` itself. This limit is higher, because copying an output together with other
    /// outputs saves a WRITE. Copying an input saves only a scatter-gather element.
    pub const INPUT_SHARE: u32 = 16;

    /// Returns true if the host copies a parameter of `bytes` bytes through its staging region, provided that the
    /// parameter lies in region 0.
    pub fn copies(self, flags: RegionFlags, bytes: u32) -> bool {
        let Self::Packed { threshold } = self else { return false };
        let comes_back = flags.contains(RegionFlags::OUTPUT);
        bytes <= if comes_back { threshold } else { threshold / Self::INPUT_SHARE }
    }
}

/// The error for a text that cannot be converted to the type that the caller asked for: [`Layout`], [`LayoutChoice`] or
/// [`LayoutRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no layout: symmetric, asymmetric, gathered, packed or packed:BYTES, and auto; \
     a rule is packed:BYTES:COUNT,OTHERWISE or packed:BYTES:COUNT:MOST,OTHERWISE"
)]
pub struct ParseError(String);

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symmetric => f.write_str("symmetric"),
            Self::Asymmetric => f.write_str("asymmetric"),
            Self::Gathered => f.write_str("gathered"),
            Self::Packed { threshold } => write!(f, "packed:{threshold}"),
        }
    }
}

impl FromStr for Layout {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "symmetric" => Ok(Self::Symmetric),
            "asymmetric" => Ok(Self::Asymmetric),
            "gathered" => Ok(Self::Gathered),
            "packed" => Ok(Self::PACKED),
            other => other
                .strip_prefix("packed:")
                .and_then(|bytes| bytes.parse().ok())
                .map(|threshold| Self::Packed { threshold })
                .ok_or_else(|| ParseError(text.into())),
        }
    }
}

/// A fixed layout, or the layout that a [`LayoutRule`] chooses for the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutChoice {
    /// The layout that the program named.
    Fixed(Layout),
    /// The layout that a [`LayoutRule`] chooses.
    Auto,
}

impl Default for LayoutChoice {
    fn default() -> Self {
        Self::Fixed(Layout::default())
    }
}

impl fmt::Display for LayoutChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(layout) => layout.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for LayoutChoice {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Fixed) }
    }
}

/// A rule that chooses the layout for given parameters. The rule chooses the packed layout if two conditions are met:
/// at least `at_least` parameters are small, and all small parameters together have at most `most` bytes. If not, the
/// rule chooses the layout `otherwise`. The command `naa bench layouts --fit` fits the numbers of a rule to
/// measurements. The textual form of a rule is `packed:BYTES:COUNT,OTHERWISE` or `packed:BYTES:COUNT:MOST,OTHERWISE`.
/// In this form, BYTES is `small`, COUNT is `at_least`, MOST is `most`, and OTHERWISE is `otherwise`. If the text has
/// no MOST, `most` is [`LayoutRule::UNBOUNDED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRule {
    /// The maximum size in bytes of a parameter that counts as small.
    pub small: u32,
    /// The minimum number of small parameters with which the rule chooses the packed layout.
    pub at_least: u8,
    /// The rule chooses the packed layout only if all small parameters together have at most this number of bytes. The
    /// limit exists because copying small parameters saves time only if the copied data fits into the CPU's caches.
    pub most: u64,
    /// The layout that the rule chooses if the condition of `at_least` or the condition of `most` is not met.
    pub otherwise: Layout,
}

impl LayoutRule {
    /// The value of `most` with which the total size of the small parameters is not limited.
    pub const UNBOUNDED: u64 = u64::MAX;

    /// Returns the layout for parameters with the given sizes in bytes. `sizes` must not contain internal regions.
    pub fn choose(&self, sizes: impl IntoIterator<Item = u64>) -> Layout {
        let small = sizes.into_iter().filter(|&bytes| bytes <= u64::from(self.small));
        let (count, together) = small.fold((0, 0_u64), |(n, sum), bytes| (n + 1, sum.saturating_add(bytes)));
        if count >= usize::from(self.at_least) && together <= self.most {
            Layout::Packed { threshold: self.small }
        } else {
            self.otherwise
        }
    }
}

impl fmt::Display for LayoutRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { small, at_least, most, otherwise } = self;
        match *most {
            Self::UNBOUNDED => write!(f, "packed:{small}:{at_least},{otherwise}"),
            most => write!(f, "packed:{small}:{at_least}:{most},{otherwise}"),
        }
    }
}

impl FromStr for LayoutRule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (packed, otherwise) = text.split_once(',')?;
            let mut numbers = packed.strip_prefix("packed:")?.split(':');
            let (small, at_least) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
            let most = numbers.next().map_or(Some(Self::UNBOUNDED), |most| most.parse().ok())?;
            let done = numbers.next().is_none();
            done.then_some(Self { small, at_least, most, otherwise: otherwise.parse().ok()? })
        };
        parse().ok_or_else(|| ParseError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for text in ["symmetric", "asymmetric", "gathered", "packed:0", "packed:65536", "auto"] {
            assert_eq!(text.parse::<LayoutChoice>().unwrap().to_string(), text);
        }
        assert_eq!("packed".parse(), Ok(Layout::Packed { threshold: 65_536 }));
        for text in ["", "Packed", "packed:", "packed:-1", "packed:4294967296", "auto,"] {
            assert!(text.parse::<LayoutChoice>().is_err(), "{text}");
        }
        for text in ["packed:4096:2,gathered", "packed:0:255,packed:7", "packed:4096:2:65536,symmetric"] {
            assert_eq!(text.parse::<LayoutRule>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "packed:1:1",
            "packed:1,gathered",
            "packed:1:256,gathered",
            "packed:1:1,auto",
            "packed:1:1:1:1,gathered",
        ] {
            assert!(text.parse::<LayoutRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rule_counts_small_parameters() {
        let rule: LayoutRule = "packed:100:2,gathered".parse().unwrap();
        assert_eq!(rule.choose([100, 100, 1 << 40]), Layout::Packed { threshold: 100 });
        assert_eq!(rule.choose([100, 101, 101]), Layout::Gathered);
        assert_eq!(rule.choose([]), Layout::Gathered);
        let bounded: LayoutRule = "packed:100:2:150,gathered".parse().unwrap();
        assert_eq!(bounded.choose([50, 100, 101]), Layout::Packed { threshold: 100 });
        assert_eq!(bounded.choose([51, 100]), Layout::Gathered);
    }
}
