//! Kernel and first file system of the machine, kept from run to run.

use crate::packages::is_root;
use anyhow::{Context, Result, ensure};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const BUILD: &str = include_str!("../../rxe-vm/image.sh");
const INIT: &str = include_str!("../../rxe-vm/init.sh");

#[derive(Debug)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

impl Image {
    fn at(folder: &Path) -> Self {
        Self { kernel: folder.join("vmlinuz"), initrd: folder.join("initrd.gz") }
    }
}

/// The image of the newest kernel package that apt knows, made if it is not there yet. Without a package list and
/// without a network, one made earlier by the same scripts will do.
pub(super) fn ready() -> Result<Image> {
    let cache = cache_folder()?;
    let scripts = format!("{:016x}", fnv1a(&[BUILD, INIT].concat()));
    newest(&cache, &scripts).or_else(|error| earlier(&cache, &scripts).ok_or(error))
}

/// The image of the newest kernel package.
fn newest(cache: &Path, scripts: &str) -> Result<Image> {
    let (name, version) = newest_kernel()?;
    let folder = cache.join(format!("{scripts}-{name}_{}", version.replace(['/', ':'], "-")));
    if !folder.is_dir() {
        make(cache, &folder, &name)?;
    }
    Ok(Image::at(&folder))
}

fn cache_folder() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Ok(cache.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?.join("naa/rxe-vm"))
}

fn earlier(cache: &Path, scripts: &str) -> Option<Image> {
    let mut folders: Vec<_> =
        fs::read_dir(cache).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(scripts)));
    folders.sort();
    folders.pop().map(|folder| Image::at(&folder))
}

fn make(cache: &Path, folder: &Path, package: &str) -> Result<()> {
    eprintln!("making the machine's image from {package}, once");
    let work = cache.join(format!("making-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let init = work.join("init");
    fs::write(&init, INIT).with_context(|| format!("cannot write {}", init.display()))?;
    let status = Command::new("bash")
        .args(["-c", BUILD, "image.sh"])
        .args([&work, Path::new(package), &init])
        .stdout(Stdio::null())
        .status()
        .context("cannot run bash")?;
    let made = if status.success() { fs::rename(&work, folder).is_ok() || folder.is_dir() } else { false };
    if !made {
        // It holds nothing but a half-made image.
        let _ = fs::remove_dir_all(&work);
    }
    ensure!(
        made,
        "cannot make the machine's image from the Debian package {package}; see the messages above"
    );
    Ok(())
}

/// The name and the version of what `linux-image-amd64` stands for.
fn newest_kernel() -> Result<(String, String)> {
    let mut name = dependency();
    if name.is_none() && is_root() {
        let update = Command::new("apt-get").args(["update", "-qq"]).stdout(Stdio::null()).status();
        update.context("cannot run apt-get")?;
        name = dependency();
    }
    let name = name
        .context("apt knows no package linux-image-amd64: a Debian host with `apt-get update` is needed")?;
    let version = apt_cache(&["show", "--no-all-versions", &name])
        .lines()
        .find_map(|line| line.strip_prefix("Version: ").map(str::to_owned))
        .with_context(|| format!("apt knows no version of {name}"))?;
    Ok((name, version))
}

fn dependency() -> Option<String> {
    let depends = apt_cache(&["depends", "linux-image-amd64"]);
    depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_owned))
}

fn apt_cache(arguments: &[&str]) -> String {
    let output = Command::new("apt-cache").args(arguments).stderr(Stdio::null()).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
}

/// FNV-1a: a change of the scripts changes the name of what they make.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_its_published_values() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
