//! Sessions and pools of accelerators for programs on tokio (feature `tokio`).
//!
//! ```no_run
//! use naa_host::{Device, FunctionCode, Param, SessionConfig, asynchronous::Session};
//!
//! # async fn example() -> Result<(), naa_host::Error> {
//! let peer = "192.0.2.7:12345".parse().unwrap();
//! let device = Device::towards(peer)?;
//! let params = [Param::in_out_values(&[1_u8, 2, 3])];
//! let mut session = Session::connect(&device, peer, &params, &SessionConfig::default()).await?;
//! session.call(FunctionCode::constant(1)).await?;
//! println!("{:?}", session.values::<u8>(0)?);
//! session.finalize()
//! # }
//! ```
//!
//! | for | use |
//! |---|---|
//! | a connection with its regions; calls on it | [`Session`] |
//! | several accelerators: the one with the least to do | [`Accelerators`], [`PoolConfig`], [`Repeat`] |
//! | a file descriptor of another crate of naa | [`Readiness`] |
//!
//! The crate starts no runtime and no thread of its own here. A deadline is set by `tokio::time::timeout`: a future that
//! is dropped leaves its session in a state that says so, see [Cancellation](Session#cancellation).

mod accelerators;
mod assignment;
mod places;
mod pool;
mod readiness;
mod session;

pub use accelerators::{AcceleratorCounters, Accelerators, Attempts, PoolConfig, PoolCounters, Repeat};
pub use places::PooledSession;
pub(crate) use places::UsedPlace;
pub use readiness::Readiness;
pub use session::{Outcome, Session, SessionState};
