//! `install` and `uninstall`: everything naa is to its users, below a prefix.

mod build;
mod files;
mod hints;
mod plan;
mod template;
pub(crate) mod trial;

use crate::table;
use anyhow::{Context, Result, ensure};
use plan::{Item, Source};
use std::{
    env,
    path::{Component, Path, PathBuf, absolute},
    process::ExitCode,
};

const EXAMPLES: &str = "\
Examples:
  cargo xtask install --prefix ~/.local                    for yourself
  sudo cargo xtask install                                 for everybody, below /usr/local
  cargo xtask install --prefix /usr --libdir lib/x86_64-linux-gnu --destdir build/root
                                                           for a package, below build/root
  cc program.c $(pkg-config --cflags --libs naa)           a program of naa.h
  cc program.c $(pkg-config --cflags --libs naaice)        a program of NAAICE's headers
  find_package(naaice)                                     the same with CMake, and then
  target_link_libraries(program naaice::middleware)        or ::low_level, ::swnaa, or naa::naa

The folder can be moved afterwards; only the systemd unit names it. What is installed is noted in
PREFIX/share/naa/installed; `cargo xtask uninstall` takes it away.";

/// Where things go.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InstallPrefix {
    /// Below it are bin, lib, include and share
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Write below DIR what will be at the prefix in the end; for packages
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    prefix: InstallPrefix,
    /// Libraries go there, below the prefix
    #[arg(long, value_name = "DIR", default_value = "lib")]
    libdir: PathBuf,
    /// What cargo builds
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask uninstall --prefix ~/.local")]
pub(crate) struct Uninstall {
    #[command(flatten)]
    prefix: InstallPrefix,
}

/// What the installed files are told about their places.
#[derive(Debug)]
struct InstalledPaths {
    /// Absolute.
    prefix: PathBuf,
    /// Relative to the prefix.
    libdir: PathBuf,
    version: &'static str,
}

impl InstalledPaths {
    fn new(prefix: PathBuf, libdir: PathBuf) -> Self {
        // All packages of the workspace have one version.
        Self { prefix, libdir, version: env!("CARGO_PKG_VERSION") }
    }

    /// What programs are bound to: as bindings/capi/build.rs has it.
    fn abi(&self) -> &'static str {
        self.version.split('.').next().unwrap_or(self.version)
    }

    fn check(&self) -> Result<()> {
        let plain = self.libdir.components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(plain, "--libdir {} is not a folder below the prefix, such as lib64", self.libdir.display());
        let special = |c: char| c.is_whitespace() || "%$\"'\\".contains(c);
        ensure!(
            !self.prefix.to_string_lossy().contains(special),
            "{}: pkg-config and systemd need a prefix without spaces, quotes, backslashes, % and $",
            self.prefix.display()
        );
        Ok(())
    }

    fn soname(&self) -> String {
        format!("libnaa.so.{}", self.abi())
    }
}

impl InstallPrefix {
    /// The prefix at run time, and the folder to write to.
    fn resolve(&self) -> Result<(PathBuf, PathBuf)> {
        let cannot = |dir: &Path| format!("{} is no folder", dir.display());
        let prefix: PathBuf =
            absolute(&self.prefix).with_context(|| cannot(&self.prefix))?.components().collect();
        let Some(destdir) = &self.destdir else { return Ok((prefix.clone(), prefix)) };
        let destdir = absolute(destdir).with_context(|| cannot(destdir))?;
        let root = destdir.join(prefix.strip_prefix("/").unwrap_or(&prefix));
        Ok((prefix, root))
    }
}

/// Builds the programs and libraries that `cargo xtask install` installs.
pub(crate) fn build_release() -> Result<()> {
    build::build("release").map(drop)
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let (prefix, root) = options.prefix.resolve()?;
    let layout = InstalledPaths::new(prefix, options.libdir.clone());
    layout.check()?;
    let built = build::build(&options.profile)?;
    let items = plan::items(&built, &layout)?;
    files::install(&root, &items)?;
    println!("below {}:", root.display());
    table::print(&items.iter().map(row).collect::<Vec<_>>());
    if options.prefix.destdir.is_none() {
        print!("{}", hints::text(&layout, |name| env::var(name).ok()));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(item: &Item) -> [String; 2] {
    let path = item.path.display();
    let path = match &item.source {
        Source::Link(to) => format!("{path} -> {to}"),
        Source::File(_) | Source::Text(_) => path.to_string(),
    };
    [path, item.what.to_owned()]
}

pub(crate) fn uninstall(options: &Uninstall) -> Result<ExitCode> {
    let (_, root) = options.prefix.resolve()?;
    let removed = files::uninstall(&root)?;
    println!("removed {removed} files below {}", root.display());
    Ok(ExitCode::SUCCESS)
}
