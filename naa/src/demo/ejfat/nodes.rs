//! The processes of the demonstration: what they do, and how they are started.

mod child;
mod many_streams;
mod sender;
mod worker;

pub(super) use child::{Balancer, WorkerProcess, start_sender, start_streams};
pub(in crate::demo) use many_streams::{MANY_STREAMS, MANY_STREAMS_GIGABITS, ManyStreams};
pub(in crate::demo) use sender::Args as SenderArgs;
pub(super) use sender::run as send;
pub(super) use worker::{Args as WorkerArgs, run as work};
