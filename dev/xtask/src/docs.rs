//! `docs`: the commands of the README and of the pages in docs/ do what the pages say, and the pages' links lead somewhere.

mod commands;
mod page;
mod shell;

use crate::{
    install,
    packages::{self, User},
    repo, table,
};
use anyhow::{Context, Result, ensure};
use page::Page;
use shell::Shell;
use std::{
    fs,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "\
All ```sh blocks of a page run in order, in one bash, as a reader copies them: at the root of the checkout, with
target/release first on the PATH, a home folder and a /tmp of their own, in network namespaces without a network.
A block behind a line `<!-- not run: REASON -->` is left out.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Run the pages whose path contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Name the pages, and the blocks that are not run
    #[arg(long)]
    list: bool,
    /// Write docs/reference/commands.md anew, which has the help of every command
    #[arg(long)]
    commands: bool,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let root = repo::root();
    if options.commands {
        repo::build_release()?;
        commands::write(&root)?;
        println!("wrote {}", commands::PAGE);
        return Ok(ExitCode::SUCCESS);
    }
    let pages = pages(&root)?;
    let dead: Vec<_> = pages.iter().flat_map(|page| page.dead_links(&root)).collect();
    dead.iter().for_each(|link| println!("FAILED: {link}"));
    let wrong: Vec<_> = pages.iter().flat_map(|page| &page.wrong).cloned().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let has_blocks = |page: &Page| page.path == "README.md" || page.path.starts_with("docs/");
    let wanted = |page: &&Page| {
        has_blocks(page) && options.only.as_ref().is_none_or(|text| page.path.contains(text.as_str()))
    };
    let pages: Vec<_> = pages.iter().filter(wanted).collect();
    ensure!(!pages.is_empty(), "no page has that in its path; --list names all");
    if !options.list {
        packages::ensure(User::Docs).map_err(anyhow::Error::msg)?;
        repo::build_release()?;
        // These builds may take longer than the time limit of a page, so they are made before a page runs.
        if pages.iter().any(|page| page.runs("cargo xtask install")) {
            install::build_release()?;
        }
    }
    let shell = if options.list { None } else { Some(Shell::new(&root)?) };
    let mut rows = vec![["page", "blocks", "not run", "result", "seconds"].map(str::to_owned)];
    let mut failed = 0;
    if !options.list && options.only.is_none() && !commands::is_up_to_date(&root)? {
        println!("FAILED: {} is not as the programs have it: cargo xtask docs --commands", commands::PAGE);
        failed += 1;
    }
    for page in &pages {
        let begin = Instant::now();
        let result = match &shell {
            Some(shell) if page.is_run() => shell.run(page)?,
            _ => Ok(()),
        };
        let told = match &result {
            Ok(()) if page.is_run() && shell.is_some() => "ok".to_owned(),
            Ok(()) => "-".to_owned(),
            Err(why) => {
                println!("FAILED: {}: {why}", page.path);
                failed += 1;
                "FAILED".to_owned()
            }
        };
        let left_out = page.left_out().count();
        let seconds = table::seconds(begin.elapsed());
        rows.push([page.path.clone(), page.blocks.len().to_string(), left_out.to_string(), told, seconds]);
    }
    println!();
    table::print(&rows);
    println!();
    for page in &pages {
        page.left_out().for_each(|(line, why)| println!("not run: {}:{line}: {why}", page.path));
    }
    println!("docs: {} pages, {failed} failed, {} dead links", pages.len(), dead.len());
    Ok(if failed == 0 && dead.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every page of the checkout.
fn pages(root: &Path) -> Result<Vec<Page>> {
    let files = repo::files(root).context("cannot list the checkout")?;
    let mut pages = Vec::new();
    for path in files {
        let is_page = path.extension().is_some_and(|kind| kind == "md");
        let path = path.to_string_lossy().into_owned();
        if is_page {
            let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            pages.push(Page::read(path, &text));
        }
    }
    Ok(pages)
}

/// Time limit of a page; its process is killed when it is reached.
const LIMIT: Duration = Duration::from_secs(300);
