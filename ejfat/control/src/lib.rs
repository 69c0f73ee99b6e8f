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
//!
//! This example begins a control plane with one load balancer and one data plane, reserves the load balancer, and
//! connects the data plane:
//!
//! ```rust
//! # use std::{collections::BTreeMap, net::Ipv4Addr, num::NonZeroU64};
//! # use ejfat::Time;
//! use ejfat_control::{
//!     config::{Config, LoadBalancerConfig}, control::{Action, Control, ControlConfig},
//!     plane::{Order, PlaneId, PlaneKind}, request::{Caller, Moment, Reply, Request, Reserve}, wall::WallTime,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ip = Some(Ipv4Addr::new(192, 0, 2, 1));
//! let (data_ports, sync_port) = (16_384..=32_767, 19_531);
//! let lb = LoadBalancerConfig { data_v4: ip, data_v6: None, data_ports, sync_v4: ip, sync_v6: None, sync_port };
//! let config = Config { load_balancers: vec![lb], ..Config::default() };
//! let planes = [(PlaneId(0), PlaneKind::Staged)].into();
//! let options = ControlConfig { planes, ..ControlConfig::default() };
//! let stored = BTreeMap::<Vec<u8>, Vec<u8>>::new();
//! let mut control = Control::begin(config, options, "root token", stored, NonZeroU64::MIN, Time(0))?;
//!
//! let at = Moment { now: Time(0), wall: WallTime(1_800_000_000_000) };
//! let caller = Caller { token: Some("root token"), peer: None };
//! let reserve = Request::Reserve(Reserve::default());
//! // The last argument must give random bytes in a real program: tokens are made of them.
//! let accepted = control.request(at, caller, &reserve, &mut |bytes| bytes.fill(7))?;
//! // The reply may be sent only after the store has the changes.
//! assert!(!accepted.changes.is_empty());
//! assert!(matches!(&accepted.reply, Reply::Reserved(reserved) if reserved.data_v4 == ip));
//!
//! control.connected(at.now, PlaneId(0));
//! let is_claim = |action: &Action| matches!(action, Action::Call(call) if call.order == Order::Claim);
//! assert!(control.poll(at).iter().any(is_claim));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
