//! docs/reference/commands.md: what `--help` of every command prints.

use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{collections::VecDeque, env, fmt::Write as _, fs, path::Path, process::Command};

pub(super) const PAGE: &str = "docs/reference/commands.md";

const HEAD: &str = "\
# Commands

What `naa COMMAND --help` prints. `cargo xtask docs --commands` writes this page, and `cargo xtask docs` looks whether it is
as the programs say. Commands with the mark \"naa-bench\" are a program of their own, which `naa bench` finds beside itself.
";

/// Writes the page anew.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), made()?).with_context(|| format!("cannot write {PAGE}"))
}

/// Whether the page is as the programs have it.
pub(super) fn is_up_to_date(root: &Path) -> Result<bool> {
    let text = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    Ok(made()? == text)
}

fn made() -> Result<String> {
    let mut page = HEAD.to_owned();
    let mut left = VecDeque::from([Vec::new()]);
    while let Some(command) = left.pop_front() {
        let help = help(&command)?;
        let name =
            ["naa"].into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        let is_bench = command.first().is_some_and(|first| first == "bench");
        let mark = if is_bench && command != ["bench", "offload"] { " (naa-bench)" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {name}{mark}\n\n```text\n{}\n```\n", help.trim_end());
        // Depth first, in the order of the help.
        let mut subs = subcommands(&help);
        if command == ["bench"] {
            // This one is a part of naa, so the help of naa-bench does not list it.
            subs.push("offload".to_owned());
        }
        for sub in subs.into_iter().rev() {
            left.push_front([command.clone(), vec![sub]].concat());
        }
    }
    Ok(page)
}

fn help(command: &[String]) -> Result<String> {
    let mut naa = Command::new(repo::release_program("naa"));
    naa.args(command).arg("--help");
    // Values from the environment would be in the text.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("NAA_") {
            naa.env_remove(name);
        }
    }
    let output = naa.env_remove("COLUMNS").output().context("cannot run naa")?;
    ensure!(output.status.success(), "naa {} --help: {}", command.join(" "), output.status);
    String::from_utf8(output.stdout).context("a help that is no text")
}

/// The commands that a help lists.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let lines = list.lines().take_while(|line| !line.is_empty());
    // A description that goes on is further to the right.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_a_help() {
        let help = "Does things\n\nUsage: naa <COMMAND>\n\nCommands:\n  demo   shows it\n         in lines\n  \
                    serve  serves\n  help   Print this\n\nOptions:\n  -h, --help\n";
        assert_eq!(subcommands(help), ["demo", "serve"]);
        assert!(subcommands("Usage: naa demo\n\nOptions:\n  -h\n").is_empty());
    }
}
