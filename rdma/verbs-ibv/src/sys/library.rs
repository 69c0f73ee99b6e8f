//! librdmacm, which brings libibverbs with it, loaded once per process.

use std::{ffi::OsString, sync::OnceLock};

use verbs::Error;

use super::bindings::Library;

/// The environment variable that names another file to load.
const VARIABLE: &str = "NAA_LIBRDMACM";
/// The library's file. The name without the version is for programs that compile against it.
const NAME: &str = "librdmacm.so.1";

/// The library's functions.
///
/// # Errors
/// [`Error::NoDevice`] with the packages to install.
pub(crate) fn load() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(|why| Error::NoDevice(why.clone()))
}

fn open() -> Result<Library, String> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = named.unwrap_or_else(|| OsString::from(NAME));
    // SAFETY: loading runs the initialisers of rdma-core, which any program linked to it runs; the declarations of
    // `bindings` are those of its headers, and its ABI is versioned by the file's name.
    let library = unsafe { Library::new(&path) }.map_err(|error| {
        format!(
            "{} cannot be loaded ({error}); install rdma-core's libraries \
             (Debian: `apt install librdmacm1 ibverbs-providers`), or name the file in {VARIABLE}",
            path.to_string_lossy()
        )
    })?;
    // SAFETY: called before any other function of libibverbs in this crate. Where the kernel copies pinned pages on
    // fork() it does nothing; elsewhere it keeps a child's writes from taking pages away from the device.
    if unsafe { library.ibv_fork_init() } != 0 {
        tracing::debug!("libibverbs cannot protect registered memory from fork()");
    }
    Ok(library)
}

/// The process that made a kernel object. A child process that inherited the object by fork() must not destroy it,
/// because that would destroy the parent's object.
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
