//! A network-attached accelerator in software.

pub mod arena;
pub mod call;
pub mod function;
pub mod functions;
pub mod pool;
