//! The hot paths of the pure crates, set up so that they can be measured one by one. `naa bench` and the criterion benches in `benches/`
//! share them.

pub mod ejfat;
pub mod engine;
pub mod numbers;
pub mod regions;
