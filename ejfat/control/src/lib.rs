//! What an EJFAT control plane decides.
//!
//! The crate has no sockets, clocks, threads or files: times, ticks and what others report are arguments, and the decision is
//! what a function returns.
//!
//! | question | answer |
//! |---|---|
//! | how many slots each member of a calendar gets | [`calendar::counts`] |
//! | what part of the events each worker can take | [`capacity::Controller`] |
//! | which slots these are | [`calendar::Calendar`] |
//! | from which tick on an epoch applies | [`boundary`] |
//! | whether a sender's sync is true | [`sync::Gate`] |

#![forbid(unsafe_code)]

pub mod boundary;
pub mod calendar;
pub mod capacity;
pub mod sync;
