//! Loads librdmacm once per process. The dynamic linker loads libibverbs together with librdmacm.

use std::{ffi::OsString, sync::OnceLock};

use verbs::Error;

use super::bindings::Library;

/// The environment variable that may name another file to load in place of [`NAME`].
const VARIABLE: &str = "NAA_LIBRDMACM";
/// The file name of librdmacm. The name has a version number, because the file without a version number is only for
/// compiling programs.
const NAME: &str = "librdmacm.so.1";

/// Returns the functions of librdmacm and libibverbs. The first call loads librdmacm, and with it libibverbs.
///
/// # Errors
/// Returns [`Error::NoDevice`] if the library cannot be loaded. The text of the error names the packages to install.
pub(crate) fn load() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(|why| Error::NoDevice(why.clone()))
}

fn open() -> Result<Library, String> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = named.unwrap_or_else(|| OsString::from(NAME));
    // SAFETY: loading runs the initialisers of rdma-core, which also run in every program that is linked to rdma-core.
    // The declarations in `bindings` are generated from the headers of rdma-core. The version number in `NAME`
    // identifies the ABI of these headers. A file that the user names in `VARIABLE` must have the same ABI.
    let library = unsafe { Library::new(&path) }.map_err(|error| {
        format!(
            "{} cannot be loaded ({error}); install rdma-core's libraries \
             (Debian: `apt install librdmacm1 ibverbs-providers`), or name the file in {VARIABLE}",
            path.to_string_lossy()
        )
    })?;
    // SAFETY: this crate calls `ibv_fork_init` before any other function of libibverbs. If the Linux kernel copies
    // pinned pages on fork(), `ibv_fork_init` does nothing. On Linux kernels that do not copy pinned pages,
    // `ibv_fork_init` prevents the device and the program from using different pages after fork().
    if unsafe { library.ibv_fork_init() } != 0 {
        tracing::debug!("libibverbs cannot protect registered memory from fork()");
    }
    Ok(library)
}

/// The process that created an object of the Linux kernel. A child process that inherited an object by fork() must not
/// destroy the object, because the object belongs to the parent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker(u32);

impl Maker {
    pub(super) fn this() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Library")
    }
}
