//! Puts small faults into the RTL, one at a time, and sees to it that the tests find them.
//!
//! yosys makes one design of each module with all of its mutants; an input chooses one of them. Thus each design is compiled once, and a mutant
//! costs only short runs of the module's test.

mod designs;
mod trial;

use crate::{explained::Explained, parallel::side_by_side, repo, table, venv::Venv};
use anyhow::{Context, Result};
use designs::{DESIGNS, Mutant};
use naa_fpga::Tools;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use trial::Tests;

/// The least share of mutants that the tests must find, in percent.
const LEAST_CAUGHT: usize = 95;

/// Makes about `count` mutants, an equal number in each part of each design, and runs the tests with each of them.
pub(super) fn run(venv: &Venv, count: usize, seed: u64) -> Result<ExitCode> {
    let tools = Tools::find().context("Verilator is not where it was installed")?;
    let explained = Explained::read(&repo::root().join("fpga/mutants.txt"))?;
    let mutants = designs::make(venv, &tools, count, seed)?;
    let tests = Tests::build(venv)?;
    println!("the tests without a fault");
    side_by_side(DESIGNS, |design| tests.pass(design))?;
    println!("{} mutants", mutants.len());
    let outcomes = side_by_side(&mutants, |mutant| {
        let begun = Instant::now();
        let is_caught = tests.catch(mutant)?;
        if !is_caught {
            println!("mutant {} survived: {mutant}", mutant.number);
        }
        Ok(Outcome {
            mutant,
            is_caught,
            reason: explained.reason(&mutant.to_string()),
            time: begun.elapsed(),
        })
    })?;
    println!();
    table::print(&rows(&outcomes));
    let caught = outcomes.iter().filter(|outcome| outcome.is_caught).count();
    println!("caught: {caught} of {}; the least is {LEAST_CAUGHT} %", outcomes.len());
    let mut is_good = 100 * caught >= LEAST_CAUGHT * outcomes.len();
    for Outcome { mutant, is_caught, reason, .. } in &outcomes {
        match (is_caught, reason) {
            (false, Some(reason)) => println!("{mutant}\n    survived: {reason}"),
            (false, None) => {
                is_good = false;
                println!("{mutant}\n    SURVIVED, and fpga/mutants.txt has no reason for it");
            }
            (true, Some(_)) => {
                is_good = false;
                println!(
                    "{mutant}\n    CAUGHT, but fpga/mutants.txt says that nobody can see it: delete it there"
                );
            }
            (true, None) => {}
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What became of a mutant.
struct Outcome<'a> {
    mutant: &'a Mutant,
    is_caught: bool,
    /// Why nobody can see the fault, as `fpga/mutants.txt` says.
    reason: Option<&'a str>,
    time: Duration,
}

/// One row for each part of each design.
fn rows(outcomes: &[Outcome<'_>]) -> Vec<[String; 6]> {
    let mut rows =
        vec![["design", "module", "mutants", "caught", "survived with reason", "seconds"].map(str::to_owned)];
    for design in DESIGNS {
        for part in design.parts {
            let of_part = || {
                outcomes.iter().filter(|Outcome { mutant, .. }| {
                    mutant.design.name() == design.name() && mutant.part == *part
                })
            };
            let survived = of_part().filter(|outcome| !outcome.is_caught && outcome.reason.is_some());
            rows.push([
                design.name(),
                (*part).to_owned(),
                of_part().count().to_string(),
                of_part().filter(|outcome| outcome.is_caught).count().to_string(),
                survived.count().to_string(),
                table::seconds(of_part().map(|outcome| outcome.time).sum()),
            ]);
        }
    }
    rows
}
