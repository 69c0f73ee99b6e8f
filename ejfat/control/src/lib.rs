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
//! | in which order a SmartNIC's rules change, so that no event is split | [`p4`] |
//! | who may do what: tokens, and what each call needs | [`token`], [`access`] |
//! | which load balancers, senders and workers there are | [`registry::Registry`] |
//! | what of it is stored, and in which form | [`record`] |
//! | all of it together, and what data planes are asked | [`control::Control`] |

#![forbid(unsafe_code)]

pub mod access;
pub mod boundary;
pub mod calendar;
pub mod capacity;
pub mod config;
pub mod control;
pub mod durable;
pub mod p4;
pub mod plane;
mod rate;
pub mod record;
pub mod registry;
pub mod request;
pub mod reservation;
pub mod session;
pub mod sync;
pub mod token;
pub mod wall;
