//! Makes a shared library of a module.

use std::{
    ffi::OsStr,
    fmt::Write,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Model, OpenError, Tools,
    rtl::sources,
    shim::{ports, source},
};

/// Why a model was not made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program}; install it")]
    Run { program: String, source: io::Error },
    #[error("{program} refused the module {module}:\n{said}")]
    Refused { program: String, module: String, said: String },
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A module of `fpga/rtl` with values for its parameters.
#[derive(Clone, Debug)]
pub struct Module {
    name: &'static str,
    parameters: Vec<(&'static str, u64)>,
}

impl Module {
    /// The module in the file of its name.
    pub fn new(name: &'static str) -> Self {
        Self { name, parameters: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, parameter: &'static str, value: u64) -> Self {
        self.parameters.push((parameter, value));
        self
    }

    /// Makes the model, or opens the one that was made of the same files before.
    pub fn model(&self, tools: &Tools) -> Result<Model, BuildError> {
        Ok(Model::open(&self.library(tools, false)?)?)
    }

    /// The same with [`Model::trace`], which makes it slower.
    pub fn traced(&self, tools: &Tools) -> Result<Model, BuildError> {
        Ok(Model::open(&self.library(tools, true)?)?)
    }

    /// The file of the library.
    fn library(&self, tools: &Tools, traced: bool) -> Result<PathBuf, BuildError> {
        let files = sources(&Tools::rtl(), self.name).map_err(failed(&Tools::rtl()))?;
        let mut hasher = DefaultHasher::new();
        (self.name, &self.parameters, traced, source(&[]), WARNINGS).hash(&mut hasher);
        for file in &files {
            (file, read(file)?).hash(&mut hasher);
        }
        let kind = if traced { "-traced" } else { "" };
        let name = format!("{}{kind}-{:016x}", self.name, hasher.finish());
        let library = tools.models().join(format!("{name}.so"));
        let folder = tools.models().join(&name);
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        // Tests run beside each other: the first one makes the model.
        let lock = folder.join("lock");
        let lock =
            fs::File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(failed(&lock))?;
        if !library.exists() {
            self.verilate(tools, &folder, &files, traced)?;
            let header = read(&folder.join("Vtop.h"))?;
            write(&folder.join("shim.cpp"), &source(&ports(&header)))?;
            let made = folder.join("model.so");
            self.compile(tools, &folder, &made, traced)?;
            fs::rename(&made, &library).map_err(failed(&library))?;
        }
        drop(lock);
        Ok(library)
    }

    fn verilate(
        &self,
        tools: &Tools,
        folder: &Path,
        files: &[PathBuf],
        traced: bool,
    ) -> Result<(), BuildError> {
        let mut verilator = Command::new(tools.verilator());
        verilator.args(["--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-assert"]);
        verilator.args(WARNINGS).args(["--prefix", "Vtop", "--top-module", self.name]);
        verilator.arg("--Mdir").arg(folder);
        if traced {
            verilator.args(["--trace-fst", "--trace-structs"]);
        }
        verilator.args(self.parameters.iter().map(|(name, value)| format!("-G{name}={value}")));
        self.run(verilator.args(files))
    }

    fn compile(&self, tools: &Tools, folder: &Path, library: &Path, traced: bool) -> Result<(), BuildError> {
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++20", "-O2", "-fPIC", "-shared", "-w", "-DVL_TIME_CONTEXT"]);
        compiler.arg("-I").arg(folder).arg("-I").arg(tools.include()).arg("-I");
        compiler.arg(tools.include().join("vltstd")).arg("-o").arg(library);
        let mut support = vec!["verilated.cpp", "verilated_threads.cpp"];
        if traced {
            support.push("verilated_fst_c.cpp");
            compiler.arg("-DTRACE");
        }
        compiler.args(files_in(folder, "cpp")?);
        compiler.args(support.iter().map(|name| tools.include().join(name)));
        if traced {
            compiler.arg("-lz");
        }
        self.run(compiler.arg("-pthread"))
    }

    fn run(&self, command: &mut Command) -> Result<(), BuildError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.output();
        let output = output.map_err(|source| BuildError::Run { program: program.clone(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let mut said = String::new();
        for text in [&output.stdout, &output.stderr] {
            let _ = writeln!(said, "{}", String::from_utf8_lossy(text));
        }
        Err(BuildError::Refused { program, module: self.name.to_owned(), said })
    }
}

/// All that Verilator warns of is an error.
const WARNINGS: &[&str] = &["-Wall", "-Wpedantic"];

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

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(failed(path))
}
