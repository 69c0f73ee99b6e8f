//! Shares that a controller gives to simulated workers. A failure prints the seed.

mod behaviour;
mod criterion;
mod outcome;
mod setting;
