//! The functions that the accelerator offers, by function code.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mrsp::{FunctionCode, catalogue};
use naa_kernels::Kernel;

use crate::call::{Call, Failure};

/// The description of a function: an entry of the catalogue.
pub use mrsp::catalogue::Function as FunctionInfo;

/// Where a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// In the server loop, which does nothing else meanwhile: for some microseconds of work.
    Inline,
    /// Executed by a pool thread.
    Pooled,
}

/// A function that hosts can call.
pub trait Function: Send + Sync + 'static {
    fn info(&self) -> &FunctionInfo;

    /// Where a call with regions of `bytes` in total runs.
    fn execution(&self, bytes: u64) -> Execution {
        let _ = bytes;
        if self.info().pooled { Execution::Pooled } else { Execution::Inline }
    }

    /// The kernel of this function, if it is one; it runs in the session's process instead of [`Self::run`].
    fn kernel(&self) -> Option<&Kernel> {
        None
    }

    /// Whether hosts subscribe by this function with the server's [`Resident`](crate::resident::Resident), which is called
    /// instead of [`Self::run`].
    fn subscribes(&self) -> bool {
        false
    }

    /// Computes. The content of the regions comes from the host, so nothing in it may be trusted.
    ///
    /// # Errors
    /// The failure that the host is to learn of.
    fn run(&self, call: &mut Call<'_>) -> Result<(), Failure>;
}

impl fmt::Debug for dyn Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} {})", self.info().code, self.info().name)
    }
}

/// Why a function was not registered. The cause is always the configuration of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("functions {former} and {name} both have number {code}; give one another number")]
    Duplicate { code: FunctionCode, name: String, former: String },
    #[error("the catalogue cannot be written: {0}; change what the function says about itself")]
    Catalogue(#[from] catalogue::EncodeError),
}

/// Functions by function code, 1 to 127.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<FunctionCode, Arc<dyn Function>>);

impl Registry {
    /// # Errors
    /// An error if the number is taken.
    pub fn register(&mut self, function: Arc<dyn Function>) -> Result<(), RegistryError> {
        let FunctionInfo { code, name, .. } = function.info().clone();
        if let Some(former) = self.0.get(&code) {
            return Err(RegistryError::Duplicate { code, name, former: former.info().name.clone() });
        }
        self.0.insert(code, function);
        Ok(())
    }

    pub fn get(&self, code: FunctionCode) -> Option<&Arc<dyn Function>> {
        self.0.get(&code)
    }

    /// The name of a function for log lines: its number if it is not registered, `none` if there is no number.
    pub(crate) fn name(&self, code: Option<FunctionCode>) -> String {
        let Some(code) = code else { return "none".into() };
        self.get(code).map_or_else(|| code.to_string(), |function| function.info().name.clone())
    }

    /// The functions in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Function>> {
        self.0.values()
    }

    /// Whether sessions' memory must be in files, so that processes can map it.
    pub(crate) fn has_kernels(&self) -> bool {
        self.iter().any(|function| function.kernel().is_some())
    }

    /// The descriptions of all functions.
    pub fn catalogue(&self) -> catalogue::Catalogue {
        catalogue::Catalogue { functions: self.iter().map(|function| function.info().clone()).collect() }
    }
}
