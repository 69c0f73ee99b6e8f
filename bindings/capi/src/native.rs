//! `naa.h`: the API for programs in C and in all languages that call C.
//!
//! The header is made of these files by `cargo xtask header`, texts included, so they are written for who reads
//! the header. Types have their C names.
#![allow(non_camel_case_types)]

pub(crate) mod address;
mod any;
mod arguments;
mod buffer;
mod call;
mod functions;
pub(crate) mod mapped;
pub(crate) mod options;
mod outcome;
mod regions;
pub(crate) mod result;
pub(crate) mod session;
mod text;

pub use arguments::*;
pub use buffer::*;
pub use call::*;
pub use functions::*;
pub use options::*;
pub use outcome::*;
pub use regions::{NAA_INOUT, NAA_INPUT, NAA_INTERNAL, NAA_OUTPUT, NAA_SINGLE_SEND, naa_region};
pub use result::naa_result;
pub use session::*;
pub use text::*;
