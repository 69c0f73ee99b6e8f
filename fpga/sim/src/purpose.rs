//! What models are made for: plain simulation, or what an environment variable asks for.

use std::{env, path::PathBuf, str::FromStr};

use crate::Tools;

/// What a model is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Plain,
    /// The module has the fault with this number, or none if it is 0.
    Mutant(u16),
    /// The values of all signals go to this file from a cycle on.
    Waveform {
        file: PathBuf,
        from: u64,
    },
    /// A file in this folder says which lines were reached and which signals changed.
    Coverage(PathBuf),
}

impl Purpose {
    /// The environment variable with the number of a mutant.
    const MUTANT: &str = "NAA_FPGA_MUTANT";
    /// The environment variable with the file of a waveform.
    pub(crate) const WAVEFORM: &str = "NAA_FPGA_TRACE";
    /// The environment variable with the first cycle of a waveform. Without it, a waveform begins at cycle 0.
    pub(crate) const FROM: &str = "NAA_FPGA_TRACE_FROM";
    /// The environment variable with the folder of files of coverage.
    const COVERAGE: &str = "NAA_FPGA_COVERAGE";

    /// What the environment asks for. Relative paths begin at the root of the checkout, because Cargo runs tests in the folder of their crate.
    ///
    /// # Panics
    /// If a variable that is a number has none.
    pub(crate) fn of_environment() -> Self {
        let path = |variable| env::var_os(variable).map(|path| Tools::repository().join(path));
        if let Some(number) = number(Self::MUTANT) {
            Self::Mutant(number)
        } else if let Some(file) = path(Self::WAVEFORM) {
            Self::Waveform { file, from: number(Self::FROM).unwrap_or(0) }
        } else {
            path(Self::COVERAGE).map_or(Self::Plain, Self::Coverage)
        }
    }

    /// What a model has beside what every model has: options of Verilator, sources of Verilator that are compiled with it, and options of the C++
    /// compiler.
    pub(crate) fn extras(&self) -> [&'static [&'static str]; 3] {
        match self {
            Self::Plain => [&[], &[], &[]],
            // Yosys wrote this Verilog for programs. Warnings about its style would help nobody.
            Self::Mutant(_) => [&["-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT", "-Wno-MULTIDRIVEN"], &[], &[]],
            Self::Waveform { .. } => [
                &["--trace-fst", "--trace-structs"],
                &["verilated_fst_c.cpp"],
                &["-DVM_TRACE=1", "-DVM_TRACE_FST=1", "-llz4", "-lz"],
            ],
            Self::Coverage(_) => {
                [&["--coverage-line", "--coverage-toggle"], &["verilated_cov.cpp"], &["-DVM_COVERAGE=1"]]
            }
        }
    }
}

fn number<T: FromStr>(variable: &str) -> Option<T> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number that it can have")))
}
