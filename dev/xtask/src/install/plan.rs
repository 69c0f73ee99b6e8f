//! What is installed, and where below the prefix.

use super::{
    InstalledPaths,
    build::{self, Built},
    template,
};
use crate::repo;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

#[derive(Debug)]
pub(super) enum Source {
    File(PathBuf),
    Text(Vec<u8>),
    /// A symbolic link to a file beside it.
    Link(String),
}

#[derive(Debug)]
pub(super) struct Item {
    /// Relative to the prefix.
    pub(super) path: PathBuf,
    pub(super) what: &'static str,
    pub(super) source: Source,
    pub(super) mode: u32,
}

fn text(path: PathBuf, what: &'static str, text: impl Into<Vec<u8>>) -> Item {
    Item { path, what, source: Source::Text(text.into()), mode: DATA }
}

fn file(path: PathBuf, what: &'static str, from: PathBuf) -> Item {
    Item { path, what, source: Source::File(from), mode: DATA }
}

/// All items, in the order in which they are printed.
pub(super) fn items(built: &Built, layout: &InstalledPaths) -> Result<Vec<Item>> {
    let programs = [("bin/naa", &built.program), ("bin/naa-bench", &built.bench)];
    let program = |(path, from): (&str, &PathBuf)| file(path.into(), "program", from.clone());
    let mut items: Vec<_> =
        programs.into_iter().map(|named| Item { mode: PROGRAM, ..program(named) }).collect();
    items.extend(libraries(built, layout));
    items.extend(headers(&repo::root().join("bindings/capi/include"))?);
    items.extend(for_builds(layout));
    items.extend(pages(built)?);
    items.extend(completions(built)?);
    items.push(text(
        "lib/systemd/system/naa.service".into(),
        "systemd unit",
        template::fill(template::SERVICE, layout),
    ));
    let fortran = repo::root().join("bindings/fortran/naa.f90");
    items.push(file("share/naa/fortran/naa.f90".into(), "Fortran module", fortran));
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        items.push(file(Path::new("share/doc/naa").join(name), "licence", repo::root().join(name)));
    }
    Ok(items)
}

/// One library under all names that programs link with.
fn libraries(built: &Built, layout: &InstalledPaths) -> Vec<Item> {
    let at = |name: &str| layout.libdir.join(name);
    let real = format!("libnaa.so.{}", layout.version);
    let shared = file(at(&real), "shared library", built.shared.clone());
    let link = |name: &str, to: &str| Item {
        path: at(name),
        what: "link",
        source: Source::Link(to.to_owned()),
        mode: DATA,
    };
    let mut items = vec![
        Item { mode: PROGRAM, ..shared },
        link(&layout.soname(), &real),
        link("libnaa.so", &layout.soname()),
        link("libnaaice.so", "libnaa.so"),
        file(at("libnaa.a"), "static library", built.archive.clone()),
    ];
    let names = ["naaice", "naaice_low_level", "naaice_middleware", "naaice_swnaa"];
    items.extend(names.map(|name| link(&format!("lib{name}.a"), "libnaa.a")));
    items
}

/// The headers of naa. The other headers are NAAICE's and go into a folder of their own, so that they hide no other
/// program's `config.h`.
const OURS: [&str; 3] = ["naa.h", "naa_events.h", "naa_kernel.h"];
const NAAICE: [&str; 7] = [
    "naaice.h",
    "naaice_ap2.h",
    "naaice_ap2_cpp.h",
    "naaice_swnaa.h",
    "swnaa_kernels.h",
    "config.h",
    "ulog.h",
];

fn headers(folder: &Path) -> Result<Vec<Item>> {
    let names = repo::names(folder)?;
    let missing: Vec<_> =
        OURS.iter().chain(&NAAICE).filter(|name| !names.iter().any(|n| n == *name)).collect();
    ensure!(missing.is_empty(), "{} lacks headers: {missing:?}; is the checkout complete?", folder.display());
    let item = |name: String| {
        let to = if OURS.contains(&name.as_str()) { "include" } else { "include/naaice" };
        file(Path::new(to).join(&name), "header", folder.join(&name))
    };
    let mut items: Vec<_> = names.into_iter().map(item).collect();
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(items)
}

/// What pkg-config and CMake find.
fn for_builds(layout: &InstalledPaths) -> Vec<Item> {
    let files = [
        ("pkgconfig/naa.pc", "pkg-config", template::NAA_PC),
        ("pkgconfig/naaice.pc", "pkg-config", template::NAAICE_PC),
        ("pkgconfig/naaice-swnaa.pc", "pkg-config", template::SWNAA_PC),
        ("cmake/naa/naaConfig.cmake", "CMake package", template::NAA_CMAKE),
        ("cmake/naa/naaConfigVersion.cmake", "CMake package", template::VERSION_CMAKE),
        ("cmake/naaice/naaiceConfig.cmake", "CMake package", template::NAAICE_CMAKE),
        ("cmake/naaice/naaiceConfigVersion.cmake", "CMake package", template::VERSION_CMAKE),
    ];
    let item =
        |(path, what, template)| text(layout.libdir.join(path), what, template::fill(template, layout));
    files.map(item).into()
}

/// The page of naa, and those it names.
fn pages(built: &Built) -> Result<Vec<Item>> {
    let folder = Path::new("share/man/man1");
    let main = build::output_of(built, &["man"])?;
    let mut items = Vec::new();
    for command in commands(&String::from_utf8_lossy(&main)) {
        let page = build::output_of(built, &["man", &command])?;
        items.push(text(folder.join(format!("naa-{command}.1")), "manual page", page));
    }
    ensure!(!items.is_empty(), "naa(1) names no commands");
    items.insert(0, text(folder.join("naa.1"), "manual page", main));
    Ok(items)
}

fn commands(page: &str) -> Vec<String> {
    let name = |line: &str| line.strip_prefix(r"naa\-")?.strip_suffix("(1)").map(|n| n.replace(r"\-", "-"));
    // Clap's own, which tells nothing new.
    page.lines().filter_map(name).filter(|name| name != "help").collect()
}

fn completions(built: &Built) -> Result<Vec<Item>> {
    let shells = [
        ("bash", "share/bash-completion/completions/naa"),
        ("zsh", "share/zsh/site-functions/_naa"),
        ("fish", "share/fish/vendor_completions.d/naa.fish"),
    ];
    let item = |(shell, path): (&str, &str)| {
        Ok(text(path.into(), "completion", build::output_of(built, &["completions", shell])?))
    };
    shells.into_iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_page_names_its_commands() {
        let page = ".TH naa 1\n.TP\nnaa\\-demo(1)\nOffload\n.TP\nnaa\\-two\\-words(1)\nnaa\\-help(1)\nother\\-page(1)\n";
        assert_eq!(commands(page), ["demo", "two-words"]);
    }

    #[test]
    fn missing_headers_are_named() {
        let folder = std::env::temp_dir().join(format!("naa-headers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in OURS.iter().chain(&NAAICE[1..]).chain(&["more.h"]) {
            fs::write(folder.join(name), "").unwrap();
        }
        let error = headers(&folder).unwrap_err().to_string();
        assert!(error.contains("lacks headers: [\"naaice.h\"]"), "{error}");
        fs::write(folder.join("naaice.h"), "").unwrap();
        let items = headers(&folder).unwrap();
        let paths: Vec<_> = items.iter().map(|item| item.path.to_string_lossy()).collect();
        assert_eq!(items.len(), 11);
        for path in ["include/naa.h", "include/naaice/config.h", "include/naaice/more.h"] {
            assert!(paths.iter().any(|p| p == path), "{paths:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
