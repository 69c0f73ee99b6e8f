//! The catalogue is the list of an accelerator's functions. Function 127 writes the catalogue to the start of its first
//! output.
//!
//! The catalogue is an extension, because MRSP has no request for the list of functions. Version 1 of the catalogue has
//! the following format, in which integers are little-endian and no padding exists:
//!
//! ```text
//! header     "NAAC" | version u16 | functions u16 | bytes in total u32 | zero u32                 16 bytes
//! function   code u8 | flags u8 | parameters u8 | name length u8 | description length u16 | zero u16
//!            name | description | parameters
//! parameter  direction u8 | kind u8 | name length u8 | description length u8 | name | description
//! ```
//!
//! In the catalogue, the functions are in the order of their codes. Flag bit 0 of a function means that its calls run
//! on pool threads and not in the server loop. Texts are UTF-8 without control characters, so that programs can print
//! the texts unchanged. If the output is too small for the catalogue, function 127 writes only the header, which
//! contains the size of the whole catalogue. The call then fails with the return code
//! [`OUTPUT_TOO_SMALL`](crate::ReturnCode::OUTPUT_TOO_SMALL).

mod decode;
mod encode;

use crate::immediate::FunctionCode;

pub use decode::{CatalogueError, Header};
pub use encode::EncodeError;

/// The size in bytes of a region that is large enough for the catalogues of most servers.
pub const USUAL_BYTES: usize = 64 << 10;
/// The size of a catalogue's header in bytes.
pub const HEADER_BYTES: usize = 16;

const MAGIC: [u8; 4] = *b"NAAC";
const VERSION: u16 = 1;
const POOLED: u8 = 1;

/// The functions of an accelerator, in the order of their codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The functions, each with a higher code than the function before it.
    pub functions: Vec<FunctionInfo>,
}

/// A function of an accelerator, as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The code with which a host calls the function.
    pub code: FunctionCode,
    /// The function's name, up to 255 bytes.
    pub name: String,
    /// One line that describes the function, up to 65535 bytes.
    pub description: String,
    /// True if calls of the function run on pool threads and not in the server loop.
    pub pooled: bool,
    /// The function's parameters, up to 255, in their order in the AAR. The list is empty if the function accepts every
    /// list of parameters.
    pub parameters: Vec<ParamInfo>,
}

impl FunctionInfo {
    /// Returns the parameters as a text for people, for example `<a:f64 <b:f64 >c:f64`. The sign `<` marks an input,
    /// `>` an output, `=` an in-out parameter, and `~` an internal region. Argument blocks and status blocks are not in
    /// the text. If a function has no parameters except argument blocks and status blocks, the text is `any`.
    pub fn signature(&self) -> String {
        let is_shown = |it: &&ParamInfo| !matches!(it.kind, ParamKind::Arguments | ParamKind::Status);
        let shown = self.parameters.iter().filter(is_shown);
        let shown: Vec<_> = shown
            .map(|ParamInfo { direction, kind, name, .. }| {
                let sign = match direction {
                    Direction::Input => '<',
                    Direction::Output => '>',
                    Direction::InOut => '=',
                    Direction::Internal => '~',
                };
                format!("{sign}{name}:{}", kind.name())
            })
            .collect();
        if shown.is_empty() { "any".to_owned() } else { shown.join(" ") }
    }
}

/// A parameter of a function, as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// The direction in which the parameter is sent.
    pub direction: Direction,
    /// The kind of data that the parameter contains.
    pub kind: ParamKind,
    /// The parameter's name, up to 255 bytes.
    pub name: String,
    /// A description of the parameter, up to 255 bytes.
    pub description: String,
}

/// The direction in which a parameter is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// The host sends the parameter to the accelerator before a call.
    Input = 0,
    /// The accelerator sends the parameter to the host after a call.
    Output = 1,
    /// The host sends the parameter before a call, and the accelerator sends the parameter back after the call.
    InOut = 2,
    /// The parameter is an internal region, which is not sent.
    Internal = 3,
}

impl Direction {
    const ALL: [Self; 4] = [Self::Input, Self::Output, Self::InOut, Self::Internal];
}

/// The kind of data that a parameter contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ParamKind {
    /// Bytes without a number type.
    Bytes = 0,
    /// The argument block of a built-in function, see [`ArgumentBlock`](crate::builtin::ArgumentBlock).
    Arguments = 1,
    /// The status block of a built-in function, see [`StatusBlock`](crate::builtin::StatusBlock).
    Status = 2,
    /// Unsigned integers of 32 bits.
    U32 = 3,
    /// Unsigned integers of 64 bits.
    U64 = 4,
    /// Floating-point numbers of 32 bits.
    F32 = 5,
    /// Floating-point numbers of 64 bits.
    F64 = 6,
    /// Pairs of f64, which are the real and the imaginary part of complex numbers.
    ComplexF64 = 7,
}

impl ParamKind {
    /// The kinds with their names, in the order of their discriminants.
    const ALL: [(Self, &str); 8] = [
        (Self::Bytes, "bytes"),
        (Self::Arguments, "arguments"),
        (Self::Status, "status"),
        (Self::U32, "u32"),
        (Self::U64, "u64"),
        (Self::F32, "f32"),
        (Self::F64, "f64"),
        (Self::ComplexF64, "complex-f64"),
    ];

    /// Returns the name of the kind, for texts that people read and for JSON output.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}
