//! NAAICE's headers: the low-level interface, the middleware, and the structs that programs touch.

pub mod cm_event;
pub mod layout;
pub mod low_level;
pub mod middleware;
pub mod undeclared;

mod array;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod host;
mod numbered;
pub(crate) mod outcome;
pub(crate) mod registry;
