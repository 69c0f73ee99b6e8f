//! The 32-bit immediates that start a call and end a call.
//!
//! ```text
//! request    user's 24 bits | 1 | function code, 7 bits        0 altogether: the host signals an error
//! response   return code, 24 bits | ignored, 8 bits            return code 0: success
//! ```
//!
//! Bit 7 of a request immediate is the start bit, which a host sets for each call. An accelerator that uses the C
//! library ignores the start bit, so it also executes calls without this bit. This crate accepts such calls, too.

use std::fmt;

use crate::return_code::ReturnCode;

const START: u32 = 0x80;

/// A number of 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct U24(u32);

impl U24 {
    /// The number 0.
    pub const ZERO: Self = Self(0);
    /// The largest number of 24 bits, which is 16,777,215.
    pub const MAX: Self = Self(0xff_ffff);

    /// Returns `value` as a number of 24 bits, or `None` if `value` has more than 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// Returns the number as a `u32` below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the user bits from the three bytes that the C library's `naaice_set_immediate` takes.
    pub const fn from_le_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_le_bytes([a, b, c, 0]))
    }

    /// Returns the three bytes that the C library's `naaice_set_immediate` takes for these user bits.
    pub const fn to_le_bytes(self) -> [u8; 3] {
        let [a, b, c, _] = self.0.to_le_bytes();
        [a, b, c]
    }
}

/// The code of a function, from 1 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionCode(u8);

impl FunctionCode {
    /// The highest function code. MRSP uses 7 bits of the request immediate for the function code.
    pub const MAX: u8 = 127;

    /// Returns the function code with the number `code`, or `None` if `code` is not from 1 to 127.
    pub const fn new(code: u8) -> Option<Self> {
        if code != 0 && code <= Self::MAX { Some(Self(code)) } else { None }
    }

    /// Returns `code` as a function code, for use in constants.
    ///
    /// # Panics
    /// Panics if `code` is not from 1 to 127.
    pub const fn constant(code: u8) -> Self {
        Self::new(code).expect("function codes are 1 to 127")
    }

    /// Returns the code as a number from 1 to 127.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for FunctionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The meaning of a request immediate, which a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestImmediate {
    /// The host signals an error and ends the session.
    HostError,
    /// The host calls a function.
    Call(CallRequest),
}

/// A call that was decoded from its request immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRequest {
    /// The code of the function, or `None` for code 0. If a program asks the C library for function 128, code 0
    /// arrives, because the request immediate has only 7 bits for the code. The response to a call with code 0 is
    /// [`ReturnCode::UNKNOWN_FUNCTION`].
    pub function: Option<FunctionCode>,
    /// The user bits, which have the meaning that the host's program and the function agree on.
    pub user: U24,
}

impl RequestImmediate {
    /// The immediate of [`RequestImmediate::HostError`].
    pub const HOST_ERROR: u32 = 0;

    /// Returns the request immediate that calls `function` with the user bits `user`, in native byte order.
    pub const fn call(function: FunctionCode, user: U24) -> u32 {
        user.0 << 8 | START | function.0 as u32
    }

    /// Returns the meaning of a request immediate. `immediate` is in native byte order.
    pub const fn decode(immediate: u32) -> Self {
        if immediate == Self::HOST_ERROR {
            return Self::HostError;
        }
        let function = FunctionCode::new(immediate as u8 & FunctionCode::MAX);
        Self::Call(CallRequest { function, user: U24(immediate >> 8) })
    }
}

/// The meaning of the upper 24 bits of a response immediate, which depends on the accelerator's version of the NAAICE
/// library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect `main`, which the released version of the NAAICE library uses. In the dialect `main`, the upper 24
    /// bits of a response immediate are a return code.
    #[default]
    Main,
    /// The dialect `next`, which the version `next` of the NAAICE library uses. In the dialect `next`, the upper 24
    /// bits of a response immediate are data that the function returns to the host's program. A host that uses
    /// [`Dialect::Next`] cannot distinguish a failed call from a successful call.
    Next,
}

/// The meaning of a response immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResponse {
    /// The call succeeded.
    Success,
    /// The call failed for the reason that the return code names.
    Failure(ReturnCode),
    /// The data that the function returns to the host's program in the upper 24 bits of the response immediate. This
    /// variant occurs only with [`Dialect::Next`].
    User(U24),
}

impl CallResponse {
    /// Returns the response immediate, whose low byte is 0.
    pub const fn encode(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::Failure(code) => code.get() << 8,
            Self::User(user) => user.0 << 8,
        }
    }

    /// Returns the meaning of a response immediate by the rules of `dialect`. `immediate` is in native byte order.
    pub const fn decode(immediate: u32, dialect: Dialect) -> Self {
        let upper = U24(immediate >> 8);
        match dialect {
            Dialect::Next => Self::User(upper),
            Dialect::Main => match ReturnCode::new(upper) {
                Some(code) => Self::Failure(code),
                None => Self::Success,
            },
        }
    }
}
