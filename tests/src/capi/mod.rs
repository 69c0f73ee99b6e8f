//! The C libraries, judged from outside: programs of `tests/capi` against an accelerator, the wire against a capture,
//! peers that die (`cargo xtask capi`).

mod capture;
mod captured;
mod functions;
mod headers;
mod kills;
mod own;
mod process;
mod programs;
mod raw_end;
mod replay_host;
mod replay_server;
mod row;
mod run;

pub use functions::serve;
pub use row::Row;
pub use run::{RunConfig, run};
