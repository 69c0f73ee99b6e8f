//! The designs with mutants: what they consist of, and how they are made.

use crate::{fpga::command, repo, venv::Venv};
use anyhow::{Context, Result};
use naa_fpga::{Module, Tools};
use std::{fmt, fs};

/// A module with values for its parameters, whose mutants are tried.
#[derive(Debug)]
pub(super) struct Design {
    module: &'static str,
    parameters: &'static [(&'static str, u64)],
    /// The tests that run the module, in their order.
    pub(super) tests: &'static [Test],
    /// The modules in which mutants are made: the module itself, or modules that it uses.
    pub(super) parts: &'static [&'static str],
}

/// A test of `naa-fpga` for a design.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) name: &'static str,
    /// The arguments with which it runs this design only.
    pub(super) arguments: &'static [&'static str],
    /// The numbers of random packets with which it runs, one after the other until it fails.
    pub(super) packets: &'static [u64],
}

const fn random(name: &'static str, arguments: &'static [&'static str]) -> Test {
    Test { name, arguments, packets: &[500, 5000, 20_000] }
}

/// A test that does the same with any number of packets.
const fn fixed(name: &'static str, arguments: &'static [&'static str]) -> Test {
    Test { name, arguments, packets: &[500] }
}

pub(super) const DESIGNS: &[Design] = &[
    Design { module: "icrc512", parameters: &[], tests: &[random("icrc", &[])], parts: &["icrc512"] },
    Design {
        module: "responder_check",
        parameters: &[],
        tests: &[random("responder", &[])],
        parts: &["responder_check"],
    },
    Design {
        module: "region_check",
        parameters: &[],
        tests: &[random("region", &[])],
        parts: &["region_check"],
    },
    Design { module: "lb_lookup", parameters: &[], tests: &[random("lookup", &[])], parts: &["lb_lookup"] },
    Design {
        module: "lb_addresses",
        parameters: &[],
        tests: &[random("addresses", &[])],
        parts: &["lb_addresses"],
    },
    Design { module: "lb_begins", parameters: &[], tests: &[random("begins", &[])], parts: &["lb_begins"] },
    Design {
        module: "lb_path",
        parameters: &[("Width", 512)],
        tests: &[random("path", &["--skip", "128_bits"])],
        parts: &["fifo", "lb_parse", "lb_path", "lb_rewrite"],
    },
    Design {
        module: "lb_path",
        parameters: &[("Width", 128)],
        tests: &[random("path", &["128_bits"])],
        parts: &["lb_parse", "lb_rewrite"],
    },
    Design {
        module: "counters",
        parameters: &[("Bits", 6)],
        tests: &[random("counters", &[])],
        parts: &["counters"],
    },
    Design {
        module: "lb_top",
        parameters: &[("Width", 512)],
        tests: &[
            random("lb_top", &["frames_of_512"]),
            random("answers", &["--skip", "128_bits"]),
            fixed("lb_top", &["--skip", "frames_of"]),
        ],
        parts: &["eth_add", "eth_strip", "lb_answers", "lb_counters", "lb_sets", "lb_top"],
    },
];

impl Design {
    pub(super) fn name(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{}{}", self.module, parameters.collect::<String>())
    }
}

/// A small fault in a part of a design.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) design: &'static Design,
    pub(super) part: &'static str,
    /// Its number among the mutants of all designs, from 1.
    pub(super) number: usize,
    /// The fault, as yosys prints it, without the number.
    pub(super) mutation: String,
}

impl Mutant {
    /// The mutant of a line that yosys printed: `mutate -ctrl mutsel WIDTH NUMBER`, and then the mutation.
    fn new(design: &'static Design, part: &'static str, line: &str) -> Option<Self> {
        let rest = line.strip_prefix("mutate -ctrl mutsel 16 ")?;
        let (number, mutation) = rest.split_once(' ')?;
        Some(Self { design, part, number: number.parse().ok()?, mutation: mutation.to_owned() })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.design.name(), self.mutation)
    }
}

/// Makes all designs. Together they have about `count` mutants, and each part has the same number of them.
pub(super) fn make(venv: &Venv, tools: &Tools, count: usize, seed: u64) -> Result<Vec<Mutant>> {
    let parts: usize = DESIGNS.iter().map(|design| design.parts.len()).sum();
    let each = count.div_ceil(parts);
    let mut mutants = Vec::new();
    for design in DESIGNS {
        let with = |module: Module, (name, value): &(&'static str, u64)| module.with(name, *value);
        let module = design.parameters.iter().fold(Module::new(design.module), with);
        let out = module.mutants(tools);
        fs::create_dir_all(out.parent().context("the design has no folder")?)?;
        let mut yosys = venv.python();
        yosys.current_dir(repo::root()).args(["fpga/tools/mutate.py", "--top", design.module]);
        yosys.args(["--seed", &seed.to_string()]).arg("--out").arg(&out);
        yosys.args(design.parameters.iter().map(|(name, value)| format!("--parameter={name}={value}")));
        let first = |part: usize| mutants.len() + part * each + 1;
        let parts = design.parts.iter().enumerate();
        yosys.args(parts.map(|(at, part)| format!("--part={}:{each}:{part}", first(at))));
        for file in naa_fpga::sources(&[&repo::root().join("fpga/rtl")], design.module)? {
            yosys.arg(file.strip_prefix(repo::root())?);
        }
        command::run(&mut yosys)?;
        for part in design.parts {
            let list = fs::read_to_string(format!("{}.{part}", out.display()))?;
            for line in list.lines() {
                mutants.push(Mutant::new(design, part, line).with_context(|| format!("a mutant: {line}"))?);
            }
        }
    }
    Ok(mutants)
}
