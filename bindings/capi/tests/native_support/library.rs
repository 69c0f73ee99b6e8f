//! The library that a test was built with, for the programs of the test.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

/// Which file a program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Shared,
    Static,
}

impl Library {
    /// Lets `compiler` link with the library.
    pub fn link(self, compiler: &mut Command) {
        let program = std::env::current_exe().unwrap();
        let libraries = program.parent().unwrap();
        match self {
            Self::Shared => {
                // The folder has the library under the name that programs look for when they start.
                let folder =
                    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("library-{}", std::process::id()));
                fs::create_dir_all(&folder).unwrap();
                // Another test of this process may have made it.
                let _ = symlink(libraries.join("libnaa_c.so"), folder.join("libnaa.so.0"));
                compiler.arg("-L").arg(libraries).arg("-lnaa_c");
                compiler.arg(format!("-Wl,-rpath,{}", folder.display()));
            }
            Self::Static => {
                compiler.arg(libraries.join("libnaa_c.a")).args(["-ldl", "-lm"]);
            }
        }
    }
}
