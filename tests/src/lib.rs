//! Black-box suites on every provider.

pub mod sim;
pub mod slow;
