//! The files that a module consists of.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The files of a module and of all modules and packages that it uses. Each file comes behind those that it uses itself. `folder` has one file
/// for each module or package, with the same name.
pub fn sources(folder: &Path, module: &str) -> io::Result<Vec<PathBuf>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sv")
            && let Some(name) = path.file_stem().map(|name| name.to_string_lossy().into_owned())
        {
            texts.insert(name, fs::read_to_string(&path)?);
        }
    }
    if !texts.contains_key(module) {
        let why = format!("there is no module {module} in {}", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let mut names = Vec::new();
    add(module, &texts, &mut names);
    Ok(names.into_iter().map(|name| folder.join(format!("{name}.sv"))).collect())
}

fn add<'a>(name: &'a str, texts: &'a BTreeMap<String, String>, names: &mut Vec<&'a str>) {
    if names.contains(&name) {
        return;
    }
    let used = |other: &&String| *other != name && words(&texts[name]).any(|word| word == other.as_str());
    texts.keys().filter(used).for_each(|other| add(other, texts, names));
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
        let files = sources(&Tools::rtl(), "responder_check").unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["region_check.sv", "roce_pkg.sv", "responder_check.sv"]);
        assert!(sources(&Tools::rtl(), "nothing").is_err());
    }
}
