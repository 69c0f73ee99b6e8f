//! RoCEv2 protocol core: reliable connections and their management, sans-IO.
//!
//! Bytes, time and memory come in as arguments; packets, completions and events are polled for. See
//! ARCHITECTURE.md for the order of calls.
#![forbid(unsafe_code)]

pub mod icrc;
pub mod opcode;
pub mod psn;
pub mod time;
pub mod wire;
