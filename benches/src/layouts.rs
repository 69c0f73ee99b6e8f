//! `naa bench layouts`: which memory-region layout is best for which parameters.
//!
//! | for | see |
//! |---|---|
//! | a point, in JSON | [`point`] |
//! | what the command is told | `args` |
//! | which workloads, and the sizes of their parameters | `grid`, `workload`, `sizes` |
//! | which layouts at each, how often, and how long that takes | `contenders`, `effort` |
//! | what the machine has | `look` |
//! | contenders taking turns, and points from what they did | `measure`, `samples` |
//! | a run with its files, and what it is said to come to | `run`, `file`, `csv`, `summary` |
//! | a rule fitted to points, and judged | `fit` |
//! | the page that shows them | `report` |

mod args;
mod contenders;
mod csv;
mod effort;
mod file;
pub(crate) mod fit;
mod grid;
mod look;
mod measure;
pub(crate) mod point;
mod progress;
pub(crate) mod report;
mod run;
mod samples;
pub(crate) mod sizes;
mod summary;
mod workload;

pub(crate) use args::Args;
pub(crate) use run::run;
