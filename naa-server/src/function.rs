//! The functions that the accelerator offers, and the registry of their handlers.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mrsp::{FunctionCode, catalogue};
use naa_kernels::Kernel;

use crate::{
    call::{Call, CallFailure},
    tasks::AsyncFunction,
};

/// The description of a function in the catalogue.
pub use mrsp::catalogue::FunctionInfo;

/// The thread that executes a call: the server loop or a pool thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The server loop executes the call and does nothing else meanwhile. Inline execution is for calls that take some
    /// microseconds.
    Inline,
    /// A pool thread executes the call.
    Pooled,
}

/// A function that hosts can call, and that runs in the server's own process.
pub trait Function: Send + Sync + 'static {
    /// Returns the description of the function, which hosts find in the catalogue.
    fn info(&self) -> &FunctionInfo;

    /// Returns whether the server loop or a pool thread executes a call whose regions have `bytes` bytes in total.
    fn execution(&self, bytes: u64) -> Execution {
        let _ = bytes;
        if self.info().pooled { Execution::Pooled } else { Execution::Inline }
    }

    /// Executes a call. The function must not trust the bytes of the regions, because the host determines them.
    ///
    /// # Errors
    /// If the call does not succeed, the [`CallFailure`] says why. The host gets [`CallFailure::code`] as return code.
    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure>;
}

impl fmt::Debug for dyn Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} {})", self.info().code, self.info().name)
    }
}

/// What the server does for a call with a certain function code.
#[derive(Clone, Debug)]
pub enum Handler {
    /// This function runs in the process of the server.
    Function(Arc<dyn Function>),
    /// This kernel runs in the process of the session.
    Kernel(Arc<Kernel>),
    /// This function runs as a task on a runtime of the application.
    Async(Arc<AsyncFunction>),
    /// The call is a subscription. The server calls
    /// [`LoopService::subscribe`](crate::loop_service::LoopService::subscribe) of its loop service. The value is the
    /// description of the function in the catalogue.
    Subscription(FunctionInfo),
}

impl Handler {
    /// Returns the description of the function, which hosts find in the catalogue.
    pub fn info(&self) -> &FunctionInfo {
        match self {
            Self::Function(function) => function.info(),
            Self::Kernel(kernel) => kernel.function(),
            Self::Async(function) => function.info(),
            Self::Subscription(info) => info,
        }
    }
}

impl<F: Function> From<F> for Handler {
    fn from(function: F) -> Self {
        Self::Function(Arc::new(function))
    }
}

impl From<Arc<dyn Function>> for Handler {
    fn from(function: Arc<dyn Function>) -> Self {
        Self::Function(function)
    }
}

impl From<AsyncFunction> for Handler {
    fn from(function: AsyncFunction) -> Self {
        Self::Async(Arc::new(function))
    }
}

impl From<Kernel> for Handler {
    fn from(kernel: Kernel) -> Self {
        Self::Kernel(Arc::new(kernel))
    }
}

/// The reason for which a function was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two functions have the same function code.
    #[error("functions {former} and {name} both have number {code}; give one another number")]
    Duplicate {
        /// The function code of both functions.
        code: FunctionCode,
        /// The name of the function that was to be registered.
        name: String,
        /// The name of the function that already had this function code.
        former: String,
    },
    /// The descriptions of the functions cannot be encoded as a catalogue, because a text or a list is too long.
    #[error("the catalogue cannot be written: {0}; change what the function says about itself")]
    Catalogue(#[from] catalogue::EncodeError),
}

/// The handlers of a server, at most one for each function code. The keys of the map are the function codes, from 1 to
/// 127.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<FunctionCode, Handler>);

impl Registry {
    /// Adds a handler. If `handler` is a [`Function`], the added handler runs this function.
    ///
    /// # Errors
    /// Fails if another function has the same function code.
    pub fn register(&mut self, handler: impl Into<Handler>) -> Result<(), RegistryError> {
        let handler = handler.into();
        let FunctionInfo { code, name, .. } = handler.info().clone();
        if let Some(former) = self.0.get(&code) {
            return Err(RegistryError::Duplicate { code, name, former: former.info().name.clone() });
        }
        self.0.insert(code, handler);
        Ok(())
    }

    /// Returns the handler of function code `code`, or `None` if the registry has no such handler.
    pub fn get(&self, code: FunctionCode) -> Option<&Handler> {
        self.0.get(&code)
    }

    /// Returns the name of a function for log lines. If no function with the code is registered, the result is the
    /// function code. If `code` is `None`, the result is `none`.
    pub(crate) fn name(&self, code: Option<FunctionCode>) -> String {
        let Some(code) = code else { return "none".into() };
        self.get(code).map_or_else(|| code.to_string(), |handler| handler.info().name.clone())
    }

    /// Returns the handlers in the order of their function codes.
    pub fn iter(&self) -> impl Iterator<Item = &Handler> {
        self.0.values()
    }

    /// Returns true if at least one handler is a kernel. If a kernel is registered, the memory of sessions
    /// must be in files, because the processes that run kernels map these files.
    pub(crate) fn has_kernels(&self) -> bool {
        self.iter().any(|handler| matches!(handler, Handler::Kernel(_)))
    }

    /// Returns the descriptions of all functions.
    pub fn catalogue(&self) -> catalogue::Catalogue {
        catalogue::Catalogue { functions: self.iter().map(|handler| handler.info().clone()).collect() }
    }
}
