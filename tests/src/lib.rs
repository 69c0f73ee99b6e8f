//! Black-box suites on every provider.

pub mod bridge;
pub mod capi;
pub mod compat;
pub mod hostile;
pub mod slow;
pub mod suite;
pub mod wire;
