//! The places of the tools that make models, and of the models.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of the tools that `cargo xtask fpga` installs, and the folder of the models that they make.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
    /// The folder of the models.
    pub(crate) models: PathBuf,
    /// The folder of the designs with mutants.
    pub(crate) mutants: PathBuf,
}

impl Tools {
    /// The environment variable with the folder of the tools. Without it, the folder is `target/fpga/tools`.
    const FOLDER: &str = "NAA_FPGA_TOOLS";
    /// The environment variable that makes tests fail where they would be skipped.
    const STRICT: &str = "NAA_FPGA_STRICT";

    /// Finds the tools. Returns `None` if they are not installed.
    pub fn find() -> Option<Self> {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Self::repository().join("target")).join("fpga");
        let folder = env::var_os(Self::FOLDER).map_or_else(|| target.join("tools"), PathBuf::from);
        let (models, mutants) = (target.join("models"), target.join("mutants"));
        let tools = Self { bin: folder.join("bin"), models, mutants };
        tools.script().exists().then_some(tools)
    }

    /// Finds the tools for a test. If they are not installed, the reason is written to standard error, and `None` says that the test is
    /// skipped.
    ///
    /// # Panics
    /// If they are not installed and `NAA_FPGA_STRICT` is set.
    pub fn for_test() -> Option<Self> {
        let tools = Self::find();
        if tools.is_none() {
            let why = "Verilator is not installed; `cargo xtask fpga` does that and runs this test";
            assert!(env::var_os(Self::STRICT).is_none(), "{why}");
            eprintln!("skipped: {why}");
        }
        tools
    }

    /// Runs Verilator. Its script names the Python of the folder where it was installed, so that it is given to the one that is here.
    pub(crate) fn verilator(&self) -> Command {
        let mut command = Command::new(self.bin.join("python"));
        command.arg(self.script());
        command
    }

    fn script(&self) -> PathBuf {
        self.bin.join("verilator-cli")
    }

    /// The folder of Verilator's headers and sources, with which models are compiled.
    pub(crate) fn include(&self) -> PathBuf {
        self.bin.join("../include/verilator")
    }

    /// The folder of the RTL.
    pub fn rtl() -> PathBuf {
        Self::repository().join("fpga/rtl")
    }

    /// The list of the tools with their versions.
    pub(crate) fn versions() -> PathBuf {
        Self::repository().join("fpga/tools/sim.txt")
    }

    /// The root of the checkout.
    pub(crate) fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }
}
