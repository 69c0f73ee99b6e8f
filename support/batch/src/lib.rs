//! Calls one function of an accelerator on files: one call, or one for each of many files.
//!
//! | for | see |
//! |---|---|
//! | the accelerator, the function, and how it is to work | [`Accelerator`], [`Target`], [`CallConfig`], [`Call`] |
//! | one call, whose files are all named | [`Single`] |
//! | a call for each file, over several sessions at once | [`Batch`], [`Files`], [`FileEnd`] |
//! | what is told about a call | [`Report`], [`Status`], [`Phase`] |
//!
//! Files are read straight into the regions of a session. A result appears under its name when it is complete.
//!
//! ```rust
//! use std::{net::SocketAddr, sync::atomic::AtomicBool};
//!
//! use naa_batch::{Accelerator, Batch, Call, CallConfig, Files, Target};
//! use naa_host::{Device, ProviderChoice, SessionConfig};
//! use naa_server::{Config, Server, functions};
//!
//! let folder = std::env::temp_dir().join(format!("naa-batch-example-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! std::fs::write(folder.join("empty"), "")?;
//!
//! let mut config = Config::new(SocketAddr::new(naa_provider::free_loopback()?, 0));
//! config.provider = Some(ProviderChoice::Embedded);
//! let server = Server::start(config, functions::builtins()?)?;
//! let device = Device::towards_with(server.address(), ProviderChoice::Embedded)?;
//! let (server, config) = (server.address(), SessionConfig::default());
//! let peer = Accelerator { device, server, config, others: Vec::new(), pool: None };
//!
//! let target = Target::find("crc32c", &peer)?;
//! let call = Call { peer: &peer, target: &target, settings: &CallConfig::default() };
//! let files = Files { in_dir: vec![folder.clone()], ..Files::default() };
//! let stopped = AtomicBool::new(false);
//! let batch = Batch::new(call, &files, &stopped)?;
//! batch.run(|results| {
//!     for ended in results {
//!         assert_eq!(ended.report.result.as_deref(), Some("00000000"));
//!     }
//!     Ok(())
//! })?;
//! batch.sync()?;
//! std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), anyhow::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
mod call;
mod files;
mod names;
mod offload;
mod output;
mod plan;
mod progress;
mod report;
pub mod room;
mod single;
mod target;

pub use batch::{Batch, FileEnd, is_lost};
pub use call::{Call, CallConfig};
pub use names::{Files, Item, expand};
pub use offload::Accelerator;
pub use output::is_stdout;
pub use progress::{Interrupted, Phase, Progress};
pub use report::{Report, Status};
pub use single::Single;
pub use target::Target;

/// Why a call cannot be made as it was asked for. The text names options of `naa call`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    fn error(problem: impl Into<String>) -> anyhow::Error {
        Self(problem.into()).into()
    }
}
