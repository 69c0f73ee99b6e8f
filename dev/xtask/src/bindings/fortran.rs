//! The module of Fortran.

use super::{folder, serve, succeeds};
use crate::{
    packages::{self, User},
    repo,
};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const ADDRESS: &str = "127.7.42.1";
const HEADER: &str = "bindings/capi/include/naa.h";
const MODULE: &str = "bindings/fortran/naa.f90";

pub(super) fn run() -> Result<ExitCode> {
    packages::ensure(User::Fortran).map_err(anyhow::Error::msg)?;
    let read = |name: &str| fs::read_to_string(repo::root().join(name)).with_context(|| name.to_owned());
    let missing = missing(&read(HEADER)?, &read(MODULE)?);
    ensure!(missing.is_empty(), "{MODULE} lacks what {HEADER} has: {}", missing.join(", "));
    repo::build_release()?;
    let libraries = libraries()?;
    let out = folder("fortran")?;
    let mut make = Command::new("make");
    make.arg("-C").arg(repo::root().join("bindings/fortran"));
    make.arg(format!("OUT={}", out.display()));
    make.arg(format!("LIBS=-L{0} -lnaa -Wl,-rpath,{0}", libraries.display()));
    succeeds(&mut make)?;
    let _server = serve(ADDRESS)?;
    for program in ["dgemm", "check"] {
        let mut run = Command::new("timeout");
        run.arg("60").arg(out.join(program)).arg(ADDRESS).env("NAA_PROVIDER", "embedded");
        succeeds(&mut run)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A folder with the library under the names of an installed one.
fn libraries() -> Result<PathBuf> {
    let folder = folder("lib")?;
    let built = repo::release_program("libnaa_c.so");
    for name in ["libnaa.so", "libnaa.so.0"] {
        link(&built, &folder.join(name)).with_context(|| format!("cannot make the link {name}"))?;
    }
    Ok(folder)
}

fn link(to: &Path, name: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(name).is_ok() {
        fs::remove_file(name)?;
    }
    symlink(to, name)
}

/// Constants and functions of the header that the module has not, or has with another value.
fn missing(header: &str, module: &str) -> Vec<String> {
    let constants = header.lines().filter_map(constant);
    let constants = constants
        .filter(|(name, value)| !module.contains(&format!(":: {name} = {value}\n")))
        .map(|(name, value)| format!("{name} = {value}"));
    let functions = header.lines().filter_map(function);
    let functions = functions.filter(|name| !module.contains(&format!("function {name}(")));
    constants.chain(functions.map(str::to_owned)).collect()
}

/// The name and the value of the constant that a line defines, if it defines one.
fn constant(line: &str) -> Option<(&str, i64)> {
    let (name, value) = match line.strip_prefix("#define ") {
        Some(definition) => definition.split_once(' ')?,
        None => line.trim().strip_suffix(',')?.split_once(" = ")?,
    };
    let value = value.trim_matches(['(', ')']).parse().ok()?;
    name.starts_with("NAA_").then_some((name, value))
}

/// The name of the function that a line declares, if it is the first line of a declaration.
fn function(line: &str) -> Option<&str> {
    let declares = line.starts_with(|first: char| first.is_ascii_lowercase()) && !line.starts_with("typedef");
    let (before, _) = line.split_once('(').filter(|_| declares)?;
    before.rsplit([' ', '*']).next().filter(|name| name.starts_with("naa_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_functions_of_a_header_are_found() {
        let header = "#define NAA_H\n#define NAA_A 1\n#define NAA_B (-2)\n    NAA_C = -3,\n * naa_none()\n\
                      const char *naa_d(void);\nnaa_result naa_e(int x,\n               int naa_f);\n";
        assert_eq!(missing(header, ""), ["NAA_A = 1", "NAA_B = -2", "NAA_C = -3", "naa_d", "naa_e"]);
        let module = "x :: NAA_A = 1\nx :: NAA_B = 2\nx :: NAA_C = -3\nfunction naa_d()\nfunction naa_e(x)\n";
        assert_eq!(missing(header, module), ["NAA_B = -2"]);
    }
}
