//! `naa_events.h`: workers of an EJFAT bridge. The header is made of these files, as `naa.h` is of those beside them.
#![allow(non_camel_case_types)]

mod event;
mod options;
mod worker;

pub use event::{naa_event, naa_event_copy, naa_event_delivered_again, naa_event_release};
pub use options::{naa_worker_options, naa_worker_options_init};
pub use worker::*;
