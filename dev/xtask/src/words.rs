//! `words`: draws sentences of comments, for a reader who did not write them.

use crate::{
    repo,
    sentences::{self, Sentence},
};
use anyhow::{Context, Result, ensure};
use simnet::Random;
use std::{fs, path::PathBuf, process::ExitCode};

const EXAMPLES: &str = "\
Examples:
  cargo xtask words --seed 7 > sentences.txt
  cargo xtask words --count 50 --within naa --within tests

A reader who has read docs/glossary.md marks each numbered sentence that is not understood at first reading. In
parentheses stand the sentences before it in the same paragraph, below it the item and what the item is in. Of 200 at
most 4 may be marked.";

/// The folders whose sentences are held to most.
const FOLDERS: [&str; 6] = ["rdma", "mrsp", "naa-host", "naa-server", "ejfat-bridge", "ejfat/ejfat"];

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How many sentences
    #[arg(long, value_name = "N", default_value_t = 200)]
    count: usize,
    /// The seed of the choice
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// A folder of the checkout; may be repeated [default: rdma, mrsp, naa-host, naa-server, ejfat-bridge, ejfat/ejfat]
    #[arg(long, value_name = "FOLDER")]
    within: Vec<PathBuf>,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let folders =
        if options.within.is_empty() { FOLDERS.map(PathBuf::from).to_vec() } else { options.within.clone() };
    let mut all = Vec::new();
    for path in repo::files(&repo::root())? {
        let is_wanted = folders.iter().any(|folder| path.starts_with(folder));
        if is_wanted && path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(repo::root().join(&path)).with_context(|| path.display().to_string())?;
            all.extend(sentences::of_comments(&text).into_iter().map(|sentence| (path.clone(), sentence)));
        }
    }
    ensure!(!all.is_empty(), "there is no Rust in {folders:?}");
    println!("The project's terms, such as AAR, event and loop service, are in docs/glossary.md.\n");
    let mut random = Random::new(options.seed, 0);
    for number in 1..=options.count.min(all.len()) {
        let drawn = random.below(all.len() as u64) as usize;
        let (path, Sentence { line, text, before, item, parent }) = all.swap_remove(drawn);
        if !before.is_empty() {
            println!("     ({before})");
        }
        println!("{number:3}  {text}\n     {}:{line}: {item}", path.display());
        println!("{}", if parent.is_empty() { String::new() } else { format!("     in {parent}\n") });
    }
    Ok(ExitCode::SUCCESS)
}
