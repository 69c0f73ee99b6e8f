//! Files that name the version, the folders and the libraries: templates with `@NAME@` in them.

use super::InstalledPaths;
use std::path::{Path, PathBuf};

pub(super) const NAA_PC: &str = include_str!("../../install/naa.pc.in");
pub(super) const NAAICE_PC: &str = include_str!("../../install/naaice.pc.in");
pub(super) const SWNAA_PC: &str = include_str!("../../install/naaice-swnaa.pc.in");
pub(super) const NAA_CMAKE: &str = include_str!("../../install/naaConfig.cmake.in");
pub(super) const NAAICE_CMAKE: &str = include_str!("../../install/naaiceConfig.cmake.in");
pub(super) const VERSION_CMAKE: &str = include_str!("../../install/ConfigVersion.cmake.in");
pub(super) const SERVICE: &str = include_str!("../../install/naa.service.in");

/// What the static library needs from the system, as `rustc --print native-static-libs` tells it. Without `-lgcc_s`, which
/// C compilers add by themselves, each in the form that fits the link.
const PRIVATE_LIBS: [&str; 5] = ["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The template with its names replaced.
pub(super) fn fill(template: &str, layout: &InstalledPaths) -> String {
    let libdir = layout.libdir.to_string_lossy();
    let values = [
        ("@PC_PREFIX@", pc_prefix(layout)),
        ("@PREFIX@", layout.prefix.to_string_lossy().into_owned()),
        ("@LIBDIR@", libdir.into_owned()),
        ("@CMAKE_UP@", up(&layout.libdir.join("cmake/naa"))),
        ("@VERSION@", layout.version.to_owned()),
        ("@ABI@", layout.abi().to_owned()),
        ("@PRIVATE_LIBS@", PRIVATE_LIBS.join(" ")),
        ("@PRIVATE_LIBS_CMAKE@", PRIVATE_LIBS.join(";")),
        ("@POINTER_BYTES@", size_of::<usize>().to_string()),
    ];
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Relative, so that the tree can be moved; but pkg-config must recognize the system's own folders to leave them out.
fn pc_prefix(layout: &InstalledPaths) -> String {
    if layout.prefix == Path::new("/usr") {
        return "/usr".to_owned();
    }
    format!("${{pcfiledir}}/{}", up(&layout.libdir.join("pkgconfig")))
}

/// The way from a folder below the prefix back to it.
fn up(folder: &Path) -> String {
    let steps: PathBuf = folder.components().map(|_| "..").collect();
    steps.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_folders_relative() {
        let layout = InstalledPaths::new("/opt/naa".into(), "lib/x86_64-linux-gnu".into());
        let text = fill(NAA_PC, &layout);
        assert!(text.starts_with("prefix=${pcfiledir}/../../..\n"), "{text}");
        assert!(text.contains("libdir=${prefix}/lib/x86_64-linux-gnu\n"), "{text}");
        for template in [NAA_PC, NAAICE_PC, SWNAA_PC, NAA_CMAKE, NAAICE_CMAKE, VERSION_CMAKE, SERVICE] {
            let text = fill(template, &layout);
            let left =
                text.split('@').skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            assert_eq!(left, None);
        }
        let system = InstalledPaths::new("/usr".into(), "lib".into());
        assert!(fill(NAAICE_PC, &system).starts_with("prefix=/usr\n"));
    }
}
