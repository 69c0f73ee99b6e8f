//! EJFAT's services as an FPGA would host them, beside the functions of a [`naa_server`]: load-balancer tables, and
//! reassembly.
//!
//! | code | service | request | reply |
//! |---|---|---|---|
//! | 64 | lb-load | `LoadRequest` | `LoadReply` |
//! | 65 | lb-edit | `EditRequest` | `EditReply` |
//! | 66 | lb-tables | | `GetReply` |
//! | 67 | lb-counters | | `GetCountersReply` |
//! | 72 | reassembly-counters | | `ReassemblyCounters` |
//! | 81 | bridge-status | | `BridgeStatus` |
//! | 82 | bridge-trace | `TraceRequest` | `TraceReply` |
//!
//! Requests are input 0, replies output 0: messages of [`proto`], the same as over gRPC, each behind its length as a
//! varint. A region may be longer than its message. A reply that does not fit tells its length, and
//! [`OUTPUT_TOO_SMALL`](mrsp::ReturnCode::OUTPUT_TOO_SMALL).
#![forbid(unsafe_code)]

mod ask;
mod bridge;
mod host;
mod reassembly;
mod service;

pub use ask::HostError;
pub use bridge::{BridgeQueries, bridge, bridge_status};
pub use host::LbTables;
pub use reassembly::{Reassembly, Sink, SinkError, Snapshot, message as reassembly_message};
pub use service::{lb, reassembly_counters};
