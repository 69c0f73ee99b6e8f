//! `install-test`: an installation is looked at, moved, built against by pkg-config and CMake, and taken away.

mod library;
mod programs;

use super::{
    InstalledPaths,
    build::{self, Built},
    files, plan,
};
use crate::{
    packages::{self, User},
    repo, table,
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "The folder of the test, with the last builds, is target/install-test.")]
pub(crate) struct Args {
    /// Run the programs over rdma-core on kernel soft-RoCE in a machine of its own, too
    #[arg(long)]
    verbs: bool,
}

/// Where it happens.
struct Ground {
    built: Built,
    folder: PathBuf,
    prefix: PathBuf,
}

type Check = fn(&Ground) -> Result<String>;

const CHECKS: &[(&str, Check)] = &[
    ("installed twice, the same tree", installed_twice),
    ("a package's tree below --destdir", packaged),
    ("shared library: name and needs", library::name_and_needs),
    ("shared library: symbols", library::symbols),
    ("C libraries: no runtime of Rust's", library::no_runtime),
    ("manual pages", manual_pages),
    ("completions", completions),
    ("systemd unit", systemd_unit),
];

/// The checks after the prefix was moved.
const MOVED_CHECKS: &[(&str, Check)] = &[
    ("Makefile, pkg-config", programs::build_low_level),
    ("CMake, three targets", programs::build_cmake),
    ("naa.h and naa_kernel.h, both", programs::build_native),
];

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    packages::ensure(User::Install).map_err(anyhow::Error::msg)?;
    let folder = repo::target_dir().join("install-test");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut ground = Ground { built: build::build("release")?, prefix: folder.join("first"), folder };
    install(&ground, &ground.prefix, &ground.prefix)?;
    let mut rows = checked(CHECKS, &ground);
    let moved = ground.folder.join("moved/here");
    fs::create_dir_all(ground.folder.join("moved"))?;
    fs::rename(&ground.prefix, &moved).context("cannot move the prefix")?;
    ground.prefix = moved;
    let builds = checked(MOVED_CHECKS, &ground);
    let built = builds.iter().all(|row| row[1] == "ok");
    rows.extend(builds);
    if built {
        rows.extend(programs::run_embedded(&ground)?);
        if options.verbs {
            rows.extend(programs::run_verbs(&ground)?);
        }
    }
    rows.extend(checked(&[("uninstalled, nothing left", uninstalled)], &ground));
    let failed = rows.iter().filter(|row| row[1] != "ok").count();
    println!();
    let heading = ["check", "result", ""].map(str::to_owned);
    table::print(&[heading].into_iter().chain(rows.iter().cloned()).collect::<Vec<_>>());
    println!("install-test: {} checks, {failed} failed", rows.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Row = [String; 3];

/// Name, `ok` or what is wrong, details.
fn checked(checks: &[(&str, Check)], ground: &Ground) -> Vec<Row> {
    let row = |(name, check): &(&str, Check)| {
        println!("== {name}");
        match check(ground) {
            Ok(details) => [(*name).to_owned(), "ok".to_owned(), details],
            Err(error) => {
                println!("FAILED: {error:#}");
                let text = format!("{error:#}");
                [(*name).to_owned(), format!("FAILED: {}", text.lines().next().unwrap_or("")), String::new()]
            }
        }
    };
    checks.iter().map(row).collect()
}

fn install(ground: &Ground, prefix: &Path, root: &Path) -> Result<()> {
    let layout = InstalledPaths::new(prefix.to_owned(), "lib".into());
    layout.check()?;
    files::install(root, &plan::items(&ground.built, &layout)?)
}

/// What a command says; it must succeed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}\n{said}{wrong}", output.status);
    Ok(said)
}

/// Path to mode and content, of every file and link.
fn tree(root: &Path) -> Result<BTreeMap<PathBuf, (u32, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let content = if meta.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path)?
            };
            found.insert(path.strip_prefix(root)?.to_owned(), (meta.permissions().mode(), content));
        }
    }
    Ok(found)
}

fn installed_twice(ground: &Ground) -> Result<String> {
    let before = tree(&ground.prefix)?;
    install(ground, &ground.prefix, &ground.prefix)?;
    let after = tree(&ground.prefix)?;
    let differs = before.iter().find(|(path, file)| after.get(*path) != Some(file));
    let more = after.keys().find(|path| !before.contains_key(*path));
    if let Some(path) = differs.map(|(path, _)| path).or(more) {
        bail!("{} changed", path.display());
    }
    Ok(format!("{} files", after.len()))
}

fn packaged(ground: &Ground) -> Result<String> {
    let root = ground.folder.join("package");
    install(ground, Path::new("/usr"), &root.join("usr"))?;
    let ours: Vec<_> = tree(&ground.prefix)?.into_keys().map(|path| Path::new("usr").join(path)).collect();
    let package: Vec<_> = tree(&root)?.into_keys().collect();
    ensure!(ours == package, "other files than below a prefix: {package:?}");
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/naa.service"))?;
    ensure!(unit.contains("\nExecStart=/usr/bin/naa serve "), "the unit starts something else:\n{unit}");
    let flags = output(pkg_config(&root.join("usr")).args(["--cflags", "--libs", "naa"]))?;
    ensure!(flags.trim() == "-lnaa", "flags for the system's own folders: {flags}");
    output(pkg_config(&ground.prefix).args(["--validate", "naa", "naaice", "naaice-swnaa"]))?;
    Ok(format!("{} files", package.len()))
}

fn pkg_config(prefix: &Path) -> Command {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    command
}

fn manual_pages(ground: &Ground) -> Result<String> {
    let folder = ground.prefix.join("share/man/man1");
    let mut count = 0;
    for entry in fs::read_dir(&folder)? {
        let page = entry?.path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"])
            .arg(&page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "100");
        let rendered = man.output().context("cannot run man")?;
        let (text, wrong) =
            (String::from_utf8_lossy(&rendered.stdout), String::from_utf8_lossy(&rendered.stderr));
        ensure!(rendered.status.success() && wrong.is_empty(), "{}: {wrong}", page.display());
        ensure!(text.contains("SYNOPSIS"), "{}: no synopsis", page.display());
        count += 1;
    }
    ensure!(folder.join("naa-serve.1").exists(), "no page of naa serve");
    Ok(format!("{count} pages"))
}

fn completions(ground: &Ground) -> Result<String> {
    let share = ground.prefix.join("share");
    let scripts = [
        ("bash", "bash-completion/completions/naa"),
        ("zsh", "zsh/site-functions/_naa"),
        ("fish", "fish/vendor_completions.d/naa.fish"),
    ];
    for (shell, script) in scripts {
        output(Command::new(shell).arg("-n").arg(share.join(script)))?;
    }
    // What a press of the tabulator does.
    let press =
        r#"source "$1"; COMP_WORDS=(naa ser); COMP_CWORD=1; _naa naa ser naa; echo "${COMPREPLY[*]}""#;
    let reply = output(Command::new("bash").args(["-c", press, "bash"]).arg(share.join(scripts[0].1)))?;
    ensure!(reply.trim() == "serve", "`naa ser` is completed to `{}`", reply.trim());
    Ok("bash, zsh, fish".to_owned())
}

/// What `systemd-analyze security` may find, 0 to 100.
const MOST_EXPOSED: &str = "25";

fn systemd_unit(ground: &Ground) -> Result<String> {
    let unit = ground.prefix.join("lib/systemd/system/naa.service");
    if !repo::has_program("systemd-analyze") {
        return Ok("not verified: no systemd here".to_owned());
    }
    output(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit))?;
    let mut security = Command::new("systemd-analyze");
    let said = output(security.args(["security", "--offline=yes", "--threshold", MOST_EXPOSED]).arg(&unit))?;
    let level = said.lines().find(|line| line.contains("Overall exposure")).unwrap_or_default();
    let level = level.split(' ').find(|word| word.parse::<f64>().is_ok()).unwrap_or_default();
    Ok(format!("exposure {level} of 10"))
}

fn uninstalled(ground: &Ground) -> Result<String> {
    let other = ground.prefix.join("lib/other.so");
    fs::write(&other, "")?;
    let removed = files::uninstall(&ground.prefix)?;
    let left: Vec<_> = tree(&ground.prefix)?.into_keys().collect();
    ensure!(left == [Path::new("lib/other.so")], "left: {left:?}");
    let folders = fs::read_dir(&ground.prefix)?.count();
    ensure!(folders == 1, "{folders} folders are left");
    Ok(format!("{removed} files"))
}
