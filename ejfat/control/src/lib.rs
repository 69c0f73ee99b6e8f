//! What an EJFAT control plane decides.
//!
//! The crate has no sockets, clocks, threads or files: times, ticks and what others report are arguments, and the decision is
//! what a function returns.
//!
//! | question | answer |
//! |---|---|
//! | how many slots each member of a calendar gets | [`calendar::counts`] |
//! | which slots these are | [`calendar::Calendar`] |

#![forbid(unsafe_code)]

pub mod calendar;
