//! Proves statements about the RTL for all inputs.
//!
//! A proof could succeed because its harness looks at nothing. So its cover statements must be reached, and it must fail for modules in which a
//! mistake was made.

use super::{
    jobs::Job,
    proofs::{Mutant, PROOFS, Proof},
    smtbmc::{Model, Question},
};
use crate::{repo, table, venv::Venv};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// A job for each proof.
pub(super) fn jobs(tools: &Venv) -> impl Iterator<Item = Job<'_>> {
    PROOFS
        .iter()
        .map(move |proof| Job::new(format!("prove {}", proof.name()), move || Ok(vec![row(tools, proof)])))
}

fn row(tools: &Venv, proof: &Proof) -> [String; 5] {
    let begun = Instant::now();
    let result = match attempt(tools, proof) {
        Ok(Ok(())) => "ok".to_owned(),
        Ok(Err(why)) => format!("FAILED: {why}"),
        Err(error) => {
            println!("{}: {error:#}", proof.name());
            "FAILED: see above".to_owned()
        }
    };
    let seconds = format!("{} s", table::seconds(begun.elapsed()));
    [proof.name(), proof.shows.to_owned(), seconds, String::new(), result]
}

/// Tries a proof, its cover statements, and its mutants, with which the proof must fail. The inner error says which of these went wrong.
fn attempt(tools: &Venv, proof: &Proof) -> Result<Result<(), String>> {
    let folder = repo::target_dir().join("fpga/prove").join(proof.name().replace(' ', "-"));
    fs::create_dir_all(&folder)?;
    let files = sources(proof, &folder)?;
    let model = |folder: &Path, files: &[PathBuf]| {
        fs::create_dir_all(folder)?;
        Model::make(tools, folder, proof, files)
    };
    let whole = model(&folder, &files)?;
    // The reset is in the first cycle, and the induction begins after it.
    if let Err(why) = whole.ask(Question::Holds(proof.depth + 2))? {
        return Ok(Err(why));
    }
    if let Some(assertion) = whole.not_inductive(proof.depth)? {
        let why = match whole.ask(Question::Inductive(proof.depth))? {
            Ok(()) => "there is no trace".to_owned(),
            Err(why) => why,
        };
        return Ok(Err(format!(
            "the induction fails at {assertion}, maybe from a state that is never reached: {why}"
        )));
    }
    if let Err(why) = whole.ask(Question::Reaches(proof.reach))? {
        return Ok(Err(why));
    }
    for (number, mutant) in proof.mutants.iter().enumerate() {
        let folder = folder.join(format!("mutant-{number}"));
        fs::create_dir_all(&folder)?;
        let files = with_mistake(&folder, &files, mutant)?;
        // The induction is tried first, because it usually fails, and fails quickly.
        let mutated = model(&folder, &files)?;
        let is_proved = mutated.not_inductive(proof.depth)?.is_none()
            && mutated.ask(Question::Holds(proof.reach))?.is_ok();
        if is_proved {
            return Ok(Err(format!("a mistake in {} is not found: {}", mutant.module, mutant.to)));
        }
    }
    Ok(Ok(()))
}

/// The files of a proof. Hollow modules are written into the folder, without what is in them.
fn sources(proof: &Proof, folder: &Path) -> Result<Vec<PathBuf>> {
    let folders = ["fpga/rtl", "fpga/formal"].map(|folder| repo::root().join(folder));
    let mut files = naa_fpga::sources(&folders.each_ref().map(PathBuf::as_path), proof.harness)?;
    for module in proof.hollow {
        let name = format!("{module}.sv");
        let file = file_of(&mut files, module)?;
        let text = fs::read_to_string(&*file)?;
        let (ports, _) =
            text.split_once("\n);\n").with_context(|| format!("{name} has no end of its ports"))?;
        *file = folder.join(name);
        fs::write(&*file, format!("{ports}\n);\nendmodule\n"))?;
    }
    Ok(files)
}

fn file_of<'a>(files: &'a mut [PathBuf], module: &str) -> Result<&'a mut PathBuf> {
    let name = format!("{module}.sv");
    let file = files.iter_mut().find(|file| file.ends_with(&name));
    file.with_context(|| format!("the proof does not use the module {module}"))
}

/// Writes the module of a mutant into a folder. Returns the files with this one in its place.
fn with_mistake(folder: &Path, files: &[PathBuf], mutant: &Mutant) -> Result<Vec<PathBuf>> {
    let name = format!("{}.sv", mutant.module);
    let mut files = files.to_owned();
    let file = file_of(&mut files, mutant.module)?;
    let text = fs::read_to_string(&*file)?;
    let times = text.matches(mutant.from).count();
    ensure!(
        times == 1,
        "{name} must have this text once, for a mutant, and has it {times} times: {}",
        mutant.from
    );
    *file = folder.join(name);
    fs::write(&*file, text.replace(mutant.from, mutant.to))?;
    Ok(files)
}
