//! What is left to do for the system to find what was installed.

use super::InstalledPaths;
use std::{
    env,
    path::{Path, PathBuf},
};

/// Where compilers, linkers, shells and systemd look by themselves.
const STANDARD: [&str; 2] = ["/usr", "/usr/local"];

/// `variable` tells the environment.
pub(super) fn text(layout: &InstalledPaths, variable: impl Fn(&str) -> Option<String>) -> String {
    let libraries = layout.prefix.join(&layout.libdir);
    if STANDARD.iter().any(|standard| layout.prefix == Path::new(standard)) {
        return "\nAs root, `ldconfig` tells the loader about the library, `systemctl daemon-reload` systemd about the unit.\n"
            .to_owned();
    }
    let wanted = [
        ("PATH", layout.prefix.join("bin"), "naa"),
        ("LD_LIBRARY_PATH", libraries.clone(), "programs linked with the library"),
        ("PKG_CONFIG_PATH", libraries.join("pkgconfig"), "building them with pkg-config"),
        ("CMAKE_PREFIX_PATH", layout.prefix.clone(), "building them with CMake"),
        ("XDG_DATA_DIRS", layout.prefix.join("share"), "completions in bash and fish"),
    ];
    let has = |name: &str, folder: &PathBuf| {
        variable(name).is_some_and(|value| env::split_paths(&value).any(|path| path == *folder))
    };
    let mut lines = String::new();
    for (name, folder, purpose) in wanted.iter().filter(|(name, folder, _)| !has(name, folder)) {
        let rest = match *name {
            "PATH" => ":$PATH".to_owned(),
            // Empty it means these two.
            "XDG_DATA_DIRS" => format!(":${{{name}:-/usr/local/share:/usr/share}}"),
            _ => format!("${{{name}:+:${name}}}"),
        };
        lines += &format!("  export {name}={}{rest}  # {purpose}\n", folder.display());
    }
    let mut text = String::new();
    if !lines.is_empty() {
        text += "\nThe system does not look there by itself. In a shell, or for good in its profile:\n";
        text += &lines;
    }
    let unit = layout.prefix.join("lib/systemd/system/naa.service");
    text += &format!("\nAs root, `systemctl enable --now {}` serves on this machine.\n", unit.display());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_not_told() {
        let layout = InstalledPaths::new("/opt/naa".into(), "lib64".into());
        let shown = text(&layout, |name| (name == "PATH").then(|| "/bin:/opt/naa/bin".to_owned()));
        assert!(!shown.contains(" PATH=/opt"), "{shown}");
        let line = "export LD_LIBRARY_PATH=/opt/naa/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # ";
        assert!(shown.contains(line), "{shown}");
        let system = InstalledPaths::new("/usr/local".into(), "lib".into());
        assert!(text(&system, |_| None).contains("ldconfig"));
    }
}
