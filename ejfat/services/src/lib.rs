//! EJFAT's services of an accelerator: load-balancer tables, reassembly and bridge.
//!
//! The services are functions of a [`naa_server`], beside its other functions. An FPGA would offer the same services.
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
//! A request is input 0 of a call, and a reply is output 0. Requests and replies are messages of [`proto`], the
//! messages that are also sent over gRPC. In a region, a message follows its length, which is a varint. A region may be
//! longer than its message. If a reply does not fit into the region, the region gets the length of the reply, and the
//! return code is [`OUTPUT_TOO_SMALL`](mrsp::ReturnCode::OUTPUT_TOO_SMALL).
//!
//! ```rust
//! # use std::sync::Arc;
//! # use ejfat::{lb::{LbId, Rule, Rules}, segment::IpVersion};
//! # use ejfat_lb::{SharedDataPlane, When};
//! # use naa_host::Device;
//! # use naa_server::{Config, Server, functions};
//! # use naa_services::LbTables;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listen = (roce_udp::free_loopback()?, 0).into();
//! # let local = roce_udp::free_loopback()?;
//! let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
//! let server = Server::start(Config::new(listen), functions::services(naa_services::lb(&plane))?)?;
//!
//! // A host programs the tables of the accelerator.
//! let tables = LbTables::new(Device::open(local)?, server.address());
//! let mut rules = Rules::default();
//! rules.insert(Rule::Destination { address: "10.0.0.1".parse()?, lb: LbId::new(0)? }, false)?;
//! tables.load(&rules, When::Next)?;
//! assert_eq!(*plane.newest_set().rules, rules);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ask;
mod bridge;
mod host;
mod reassembly;
mod service;

pub use ask::HostError;
pub use bridge::{BridgeQueries, bridge, bridge_status};
pub use host::LbTables;
pub use reassembly::{EventSink, Reassembly, SinkError, Snapshot, message as reassembly_message};
pub use service::{lb, reassembly_counters};
