//! Where the tools are that make models.

use std::{
    env,
    path::{Path, PathBuf},
};

/// A folder with the tools that `cargo xtask fpga` installs, and one for what they make.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
    models: PathBuf,
}

impl Tools {
    /// The folder of the tools, `target/fpga/tools` if it is not set.
    const FOLDER: &str = "NAA_FPGA_TOOLS";
    /// Tests fail where they would be skipped, if it is set.
    const STRICT: &str = "NAA_FPGA_STRICT";

    /// `None` if they are not installed.
    pub fn find() -> Option<Self> {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Self::repository().join("target")).join("fpga");
        let folder = env::var_os(Self::FOLDER).map_or_else(|| target.join("tools"), PathBuf::from);
        let tools = Self { bin: folder.join("bin"), models: target.join("models") };
        tools.verilator().exists().then_some(tools)
    }

    /// For tests: `None`, with the reason on standard error, if they are not installed.
    ///
    /// # Panics
    /// If they are not, and `NAA_FPGA_STRICT` is set.
    pub fn for_test() -> Option<Self> {
        let tools = Self::find();
        if tools.is_none() {
            let why = "Verilator is not installed; `cargo xtask fpga` does that and runs this test";
            assert!(env::var_os(Self::STRICT).is_none(), "{why}");
            eprintln!("skipped: {why}");
        }
        tools
    }

    pub(crate) fn verilator(&self) -> PathBuf {
        self.bin.join("verilator-cli")
    }

    /// Where the headers and sources are that models are compiled with.
    pub(crate) fn include(&self) -> PathBuf {
        self.bin.join("../include/verilator")
    }

    pub(crate) fn models(&self) -> &Path {
        &self.models
    }

    /// Where the RTL is.
    pub fn rtl() -> PathBuf {
        Self::repository().join("fpga/rtl")
    }

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }
}
