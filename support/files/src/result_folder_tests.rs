use std::{ffi::OsString, io::Write as _, os::unix::fs::symlink, sync::atomic::AtomicU32};

use super::*;

/// A folder that goes with the test.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(test: &str) -> (Self, ResultFolder) {
        let path = std::env::temp_dir().join(format!("naa-files-{test}-{}", std::process::id()));
        let folder = ResultFolder::create(&path).unwrap();
        (Self(path), folder)
    }

    fn names(&self) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Both ways to begin a file.
const WAYS: [fn(&ResultFolder) -> io::Result<Unfinished<'_>>; 2] =
    [ResultFolder::begin, ResultFolder::begin_named];

fn written<'a>(begun: io::Result<Unfinished<'a>>, text: &str) -> Unfinished<'a> {
    let mut file = begun.unwrap();
    file.file().write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn a_file_has_its_name_when_it_is_complete_and_replaces_only_when_asked() {
    for (at, begin) in WAYS.into_iter().enumerate() {
        let (there, folder) = TempFolder::new(&format!("complete-{at}"));
        let name = OsStr::new("result");
        let file = written(begin(&folder), "first");
        assert!(!folder.has(name));
        assert!(file.appear(name).unwrap().is_none());
        let second = written(begin(&folder), "second").appear(name).unwrap().unwrap();
        assert_eq!(fs::read(there.0.join(name)).unwrap(), b"first");
        second.replace(name).unwrap();
        assert_eq!(fs::read(there.0.join(name)).unwrap(), b"second");
        drop(written(begin(&folder), "never"));
        written(begin(&folder), "other").replace(OsStr::new("other")).unwrap();
        assert_eq!(there.names(), ["other", "result"]);
    }
}

#[test]
fn links_are_not_written_through() {
    for (at, begin) in WAYS.into_iter().enumerate() {
        let (there, folder) = TempFolder::new(&format!("links-{at}"));
        fs::write(there.0.join("victim"), "old").unwrap();
        for target in ["victim", "nowhere"] {
            let link = there.0.join("link");
            symlink(target, &link).unwrap();
            let name = OsStr::new("link");
            let file = written(begin(&folder), "new").appear(name).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            file.expect("the link has the name").replace(name).unwrap();
            assert_eq!(fs::read(&link).unwrap(), b"new");
            fs::remove_file(&link).unwrap();
            assert_eq!(fs::read(there.0.join("victim")).unwrap(), b"old");
            assert_eq!(there.names(), ["victim"]);
        }
    }
}

#[test]
fn of_many_writers_of_one_name_one_has_it() {
    for (at, begin) in WAYS.into_iter().enumerate() {
        let (there, _) = TempFolder::new(&format!("many-{at}"));
        let had = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (had, there) = (&had, &there);
                scope.spawn(move || {
                    let folder = ResultFolder::open(&there.0).unwrap();
                    for round in 0..50 {
                        let file = written(begin(&folder), &format!("{writer}"));
                        let gone = file.appear(OsStr::new(&format!("{round}"))).unwrap().is_none();
                        had.fetch_add(u32::from(gone), Relaxed);
                    }
                });
            }
        });
        assert_eq!((had.into_inner(), there.names().len()), (50, 50));
    }
}

#[test]
fn only_abandoned_files_are_removed() {
    let (there, folder) = TempFolder::new("abandoned");
    let living = folder.begin_named().unwrap();
    fs::write(there.0.join(".naa-1-0.partial"), "of a dead process").unwrap();
    fs::write(there.0.join("naa-1-0.partial"), "of somebody").unwrap();
    symlink("naa-1-0.partial", there.0.join(".naa-2-0.partial")).unwrap();
    folder.remove_abandoned();
    assert!(folder.is_at(&living.file, living.name.as_deref().unwrap()));
    assert_eq!(there.names().len(), 3, "{:?}", there.names());
    drop(living);
    assert_eq!(there.names(), [".naa-2-0.partial", "naa-1-0.partial"]);
}

#[test]
fn a_folder_that_is_renamed_is_still_the_one() {
    let (there, folder) = TempFolder::new("renamed");
    let moved = TempFolder(there.0.with_extension("moved"));
    let file = written(folder.begin(), "here");
    fs::rename(&there.0, &moved.0).unwrap();
    fs::create_dir(&there.0).unwrap();
    assert!(file.appear(OsStr::new("result")).unwrap().is_none());
    folder.sync().unwrap();
    assert_eq!((there.names().len(), moved.names()), (0, vec!["result".into()]));
}
