//! Makes a shared library of a module.

use std::{
    ffi::{OsStr, c_int},
    fmt::Write,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Model, OpenError, Tools,
    purpose::Purpose,
    rtl::sources,
    shim::{ports, source},
};

/// Why a model was not made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program}; install it")]
    Run { program: &'static str, source: io::Error },
    #[error("{program} refused the module {module}:\n{said}")]
    Refused { program: &'static str, module: &'static str, said: String },
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A module of `fpga/rtl` with values for its parameters.
#[derive(Clone, Debug)]
pub struct Module {
    name: &'static str,
    parameters: Vec<(&'static str, u64)>,
    seed: c_int,
}

impl Module {
    /// The module of this name, which is in the file of the same name.
    pub fn new(name: &'static str) -> Self {
        Self { name, parameters: Vec::new(), seed: 1 }
    }

    #[must_use]
    pub fn with(mut self, parameter: &'static str, value: u64) -> Self {
        self.parameters.push((parameter, value));
        self
    }

    /// Lets registers and memories begin with other random values. Models with the same seed begin with the same values.
    #[must_use]
    pub fn seeded(mut self, seed: u16) -> Self {
        // Verilator takes 0 for a seed that is another one in each run.
        self.seed = c_int::from(seed) + 1;
        self
    }

    /// Opens the model of the module. It is made first, unless it was made of the same files and by the
    /// same tools before.
    ///
    /// The environment may ask for more: `NAA_FPGA_MUTANT` for the fault with that number, `NAA_FPGA_TRACE` for a waveform in that file, and
    /// `NAA_FPGA_COVERAGE` for a file of coverage in that folder.
    ///
    /// # Panics
    /// If a variable that is a number has none.
    pub fn model(&self, tools: &Tools) -> Result<Model, BuildError> {
        let purpose = match Purpose::of_environment() {
            Purpose::Mutant(_) if !self.mutants(tools).exists() => Purpose::Plain,
            purpose => purpose,
        };
        Ok(Model::open(&self.library(tools, &purpose)?, purpose, self.seed)?)
    }

    /// The file of the design with mutants of this module. `cargo xtask fpga --mutate` makes it: Verilog without parameters, with one more input,
    /// `mutsel`, which is the number of the mutant. With 0, and with the number of another module's mutant, the module has no fault.
    pub fn mutants(&self, tools: &Tools) -> PathBuf {
        let parameters = self.parameters.iter().map(|(name, value)| format!("-{name}{value}"));
        tools.mutants.join(format!("{}{}.v", self.name, parameters.collect::<String>()))
    }

    /// Makes the library of the model, unless it is there. Returns its file.
    fn library(&self, tools: &Tools, purpose: &Purpose) -> Result<PathBuf, BuildError> {
        let (files, parameters) = if matches!(purpose, Purpose::Mutant(_)) {
            (vec![self.mutants(tools)], Vec::new())
        } else {
            let files = sources(&[&Tools::rtl()], self.name).map_err(failed(&Tools::rtl()))?;
            (files, self.parameters.iter().map(|(name, value)| format!("-G{name}={value}")).collect())
        };
        let mut hasher = DefaultHasher::new();
        let versions = read(&Tools::versions())?;
        (self.name, &parameters, source(&[]), OPTIONS, COMPILER, versions).hash(&mut hasher);
        let [options, more_sources, flags] = purpose.extras();
        (options, flags, more_sources).hash(&mut hasher);
        for file in &files {
            (file, read(file)?).hash(&mut hasher);
        }
        let name = format!("{}-{:016x}", self.name, hasher.finish());
        let library = tools.models.join(format!("{name}.so"));
        let folder = tools.models.join(&name);
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        // Several tests may want the same model at a time. The first one makes it, and the others wait.
        let lock = folder.join("lock");
        let lock =
            fs::File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(failed(&lock))?;
        if !library.exists() {
            let mut verilator = tools.verilator();
            verilator.args(OPTIONS).args(options).args(parameters);
            verilator.args(["--prefix", "Vtop", "--top-module", self.name]).arg("--Mdir").arg(&folder);
            self.run("Verilator", verilator.args(&files))?;
            let header = read(&folder.join("Vtop.h"))?;
            let shim = folder.join("shim.cpp");
            fs::write(&shim, source(&ports(&header))).map_err(failed(&shim))?;
            let made = folder.join("model.so");
            self.compile(tools, &folder, purpose, &made)?;
            fs::rename(&made, &library).map_err(failed(&library))?;
        }
        drop(lock);
        Ok(library)
    }

    fn compile(
        &self,
        tools: &Tools,
        folder: &Path,
        purpose: &Purpose,
        library: &Path,
    ) -> Result<(), BuildError> {
        let include = tools.include();
        let mut compiler = Command::new("c++");
        compiler.args(COMPILER).arg("-I").arg(folder);
        compiler.arg("-I").arg(&include).arg("-I").arg(include.join("vltstd"));
        compiler.args(files_in(folder, "cpp")?);
        let [_, more_sources, flags] = purpose.extras();
        let sources = ["verilated.cpp", "verilated_threads.cpp"].iter().chain(more_sources);
        compiler.args(sources.map(|name| include.join(name))).args(flags);
        self.run("c++", compiler.arg("-o").arg(library))
    }

    fn run(&self, program: &'static str, command: &mut Command) -> Result<(), BuildError> {
        let output = command.output().map_err(|source| BuildError::Run { program, source })?;
        if output.status.success() {
            return Ok(());
        }
        let mut said = String::new();
        for text in [&output.stdout, &output.stderr] {
            let _ = writeln!(said, "{}", String::from_utf8_lossy(text));
        }
        Err(BuildError::Refused { program, module: self.name, said })
    }
}

/// Options of Verilator for every model. Each of its warnings is an error.
const OPTIONS: &[&str] =
    &["--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-assert", "-Wall", "-Wpedantic"];

/// Options of the C++ compiler for every model.
const COMPILER: &[&str] = &["-std=c++20", "-O2", "-fPIC", "-shared", "-w", "-DVL_TIME_CONTEXT", "-pthread"];

fn files_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, BuildError> {
    let entries =
        fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed(folder))?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension() == Some(OsStr::new(extension)));
    files.sort();
    Ok(files)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    |source| BuildError::File { path, source }
}

fn read(path: &Path) -> Result<String, BuildError> {
    fs::read_to_string(path).map_err(failed(path))
}
