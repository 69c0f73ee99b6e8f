//! The return code, a number of 24 bits that gives the reason why a call failed.
//!
//! | codes | owner |
//! |---|---|
//! | 0x01-0x02 | NAAICE |
//! | 0x03-0x0f | reserved by NAAICE |
//! | 0x10-0x3f | the server of this project, from the range that NAAICE leaves to applications |
//! | 0x40-0x7f | kernels |

use std::{fmt, num::NonZeroU32};

use crate::immediate::U24;

/// A return code other than success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReturnCode(NonZeroU32);

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl ReturnCode {
            $(#[doc = $text] pub const $name: Self = Self::constant($code);)*

            /// All codes that have a name, each with its name and its text for people.
            pub const TABLE: &[(Self, &str, &str)] = &[$((Self::$name, stringify!($name), $text),)*];
        }
    };
}

codes! {
    SOCKET_UNAVAILABLE = 0x01, "the accelerator's socket is not available";
    KERNEL_TIMEOUT = 0x02, "the function did not finish in time; raise the time allowed or give it less to do";
    UNKNOWN_FUNCTION = 0x10, "the accelerator does not offer this function; ask for its catalogue";
    BAD_ARGUMENTS = 0x11, "the arguments or regions do not fit the function";
    MALFORMED_INPUT = 0x12, "the input data cannot be read";
    OUTPUT_TOO_SMALL = 0x13, "an output region is too small for the result; map a larger one";
    INTERNAL = 0x14, "the accelerator failed inside; its log says more";
    BUSY = 0x15, "the accelerator is busy; try again later";
    OVER_LIMIT = 0x16, "the call exceeds a limit of the accelerator; ask for less";
    ABANDONED = 0x17, "the call was given up because the session or the accelerator ends";
}

impl ReturnCode {
    /// The return codes that kernels may use.
    pub const KERNELS: std::ops::RangeInclusive<u32> = 0x40..=0x7f;

    /// Returns the return code with the number `code`, or `None` if `code` is 0, because 0 means success.
    pub const fn new(code: U24) -> Option<Self> {
        match NonZeroU32::new(code.get()) {
            Some(code) => Some(Self(code)),
            None => None,
        }
    }

    const fn constant(code: u32) -> Self {
        Self(NonZeroU32::new(code).expect("codes of the table are not 0"))
    }

    /// Returns the code as a number from 1 to 2^24 - 1.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the meaning of the code, if the code has a fixed meaning.
    pub fn text(self) -> Option<&'static str> {
        Self::TABLE.iter().find(|(code, ..)| *code == self).map(|(_, _, text)| *text)
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "{text} (return code {:#04x})", self.0),
            None => write!(f, "the function's own return code {:#04x}", self.0),
        }
    }
}

impl fmt::Debug for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::TABLE.iter().find(|(code, ..)| code == self) {
            Some((_, name, _)) => f.write_str(name),
            None => write!(f, "ReturnCode({:#04x})", self.0),
        }
    }
}
