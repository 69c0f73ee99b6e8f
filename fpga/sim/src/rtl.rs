//! The files that a module consists of.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The files of a module and of all modules and packages that it uses. Each file comes behind those that it uses itself. The folders have one
/// file for each module or package, with the same name.
///
/// # Errors
/// If a folder cannot be read, or none has the module.
pub fn sources(folders: &[&Path], module: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = BTreeMap::new();
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sv")
                && let Some(name) = path.file_stem().map(|name| name.to_string_lossy().into_owned())
            {
                let text = fs::read_to_string(&path)?;
                files.insert(name, (path, text));
            }
        }
    }
    if !files.contains_key(module) {
        let why = format!("there is no module {module} in {folders:?}");
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let mut names = Vec::new();
    add(module, &files, &mut names);
    Ok(names.into_iter().map(|name| files[name].0.clone()).collect())
}

fn add<'a>(name: &'a str, files: &'a BTreeMap<String, (PathBuf, String)>, names: &mut Vec<&'a str>) {
    if names.contains(&name) {
        return;
    }
    let used = |other: &&String| *other != name && words(&files[name].1).any(|word| word == other.as_str());
    files.keys().filter(used).for_each(|other| add(other, files, names));
    names.push(name);
}

/// The words of a text that are not in comments.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tools;

    #[test]
    fn a_module_comes_behind_what_it_uses() {
        let files = sources(&[&Tools::rtl()], "responder_check").unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["region_check.sv", "roce_pkg.sv", "responder_pkg.sv", "responder_check.sv"]);
        assert!(sources(&[&Tools::rtl()], "nothing").is_err());
    }
}
