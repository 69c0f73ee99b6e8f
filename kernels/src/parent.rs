//! The server's side: libraries known by what a child read, and a process per session.

mod launch;
mod process;
mod session;

use std::{
    fmt,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use mrsp::catalogue::{Catalogue, FunctionInfo};

pub use launch::Launch;
pub use process::{CallError, ChildAccess, KernelResult, RegionFile};
pub use session::SessionProcess;

use launch::Launcher;
use process::KernelProcess;

/// Codes of kernels.
pub(crate) const CODES: RangeInclusive<u8> = 96..=126;
/// A library has this long to load.
const LOAD_TIME: Duration = Duration::from_secs(10);

/// Why the kernels of a library cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .library.display())]
pub struct LoadError {
    /// The path of the library as the configuration names it.
    pub library: PathBuf,
    /// The reason for which the library was refused, as text for people.
    pub why: String,
}

/// Libraries and what they offer.
pub struct Kernels {
    launcher: Launcher,
    libraries: Vec<Library>,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("libraries", &self.libraries).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Library {
    path: PathBuf,
    functions: Vec<FunctionInfo>,
}

/// One kernel of a library.
#[derive(Clone, Debug)]
pub struct Kernel {
    kernels: Arc<Kernels>,
    library: usize,
    function: FunctionInfo,
}

impl Kernels {
    /// Loads `libraries`. A process that is started for each library reads the library's table of kernels.
    ///
    /// # Errors
    /// Fails if a library cannot be loaded or described, if two kernels have one function code, or if no process can be
    /// started.
    pub fn load(launch: Launch, libraries: &[PathBuf]) -> Result<Arc<Self>, LoadError> {
        let failed = |library: &Path, why: String| LoadError { library: library.to_owned(), why };
        let first = libraries.first().map_or(Path::new(""), PathBuf::as_path);
        let launcher = Launcher::start(launch)
            .map_err(|error| failed(first, format!("cannot start a thread: {error}; raise `ulimit -u`")))?;
        let mut loaded: Vec<Library> = Vec::new();
        for named in libraries {
            // Children load it by the same path whatever happens to links.
            let path = named.canonicalize().map_err(|error| failed(named, error.to_string()))?;
            let functions = probe(&launcher, &path).map_err(|why| failed(named, why))?;
            for function in &functions {
                let other = loaded.iter().find(|l| l.functions.iter().any(|f| f.code == function.code));
                if let Some(other) = other {
                    let (code, other) = (function.code, other.path.display());
                    return Err(failed(
                        named,
                        format!(
                            "declares code {code}, which is a kernel of {other} too; give one of them another"
                        ),
                    ));
                }
            }
            loaded.push(Library { path, functions });
        }
        Ok(Arc::new(Self { launcher, libraries: loaded }))
    }

    /// All kernels, in the order of the libraries.
    pub fn kernels(self: &Arc<Self>) -> Vec<Kernel> {
        let libraries = self.libraries.iter().enumerate();
        let all = libraries.flat_map(|(library, l)| l.functions.iter().map(move |f| (library, f.clone())));
        all.map(|(library, function)| Kernel { kernels: self.clone(), library, function }).collect()
    }
}

impl Kernel {
    /// What it says about itself.
    pub fn function(&self) -> &FunctionInfo {
        &self.function
    }

    /// A place for the process of a session, which starts at its first call.
    pub fn session(&self) -> SessionProcess {
        SessionProcess::new(self.kernels.clone())
    }
}

/// A library that did not load in time.
fn too_slow() -> String {
    format!("did not load within {} s; see what its constructors wait for", LOAD_TIME.as_secs())
}

/// Lets a child read the table of the library at `path`.
fn probe(launcher: &Launcher, path: &Path) -> Result<Vec<FunctionInfo>, String> {
    let deadline = Instant::now() + LOAD_TIME;
    let mut process = KernelProcess::start(launcher).map_err(|error| error.to_string())?;
    let table = process.load(path, deadline).map_err(|error| match error {
        CallError::Refused(why) => why,
        CallError::TimedOut => too_slow(),
        other => format!("could not be read: {other}"),
    })?;
    // A child is not trusted: what it must have checked is checked again.
    let catalogue = Catalogue::decode(&table).map_err(|error| format!("cannot be described: {error}"))?;
    let sound = |f: &FunctionInfo| CODES.contains(&f.code.get()) && !f.name.is_empty() && f.pooled;
    if !catalogue.functions.iter().all(sound) {
        return Err("its process described kernels that there cannot be".into());
    }
    Ok(catalogue.functions)
}
