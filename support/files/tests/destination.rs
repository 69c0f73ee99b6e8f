//! Where a result may go.

use std::{
    fs::{self, File},
    io::Write as _,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::PathBuf,
    sync::Arc,
};

use naa_files::{Background, CannotWrite, Destination, ResultFolder};

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("naa-destination-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn refusal(path: PathBuf) -> String {
    Destination::new(&path).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn an_own_link_stands_for_its_target_and_one_of_another_user_is_refused() {
    let there = TempFolder::new("links");
    let (target, link) = (there.path("target"), there.path("link"));
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target", &link).unwrap();
    let to = Destination::new(&link).unwrap();
    to.replace(b"new").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(to.id().unwrap(), Destination::new(&target).unwrap().id().unwrap());
    // What takes the place of the result after the start is replaced, not written through.
    let late = Destination::new(&there.path("late")).unwrap();
    symlink("target", there.path("late")).unwrap();
    late.replace(b"late").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert!(fs::symlink_metadata(there.path("late")).unwrap().is_file());

    if let Err(error) = lchown(&link, Some(12345), None) {
        println!("skipped: only root can make a link of another user: {error}");
        return;
    }
    let text = refusal(link);
    assert!(text.contains("symbolic link of user 12345") && text.contains("name target"), "{text}");
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    let there = TempFolder::new("refused");
    symlink("loop", there.path("loop")).unwrap();
    assert!(refusal(there.0.clone()).contains("it is a folder"), "{}", refusal(there.0.clone()));
    assert!(refusal(there.path("no/file")).contains("no is no folder; create it"));
    assert!(refusal(there.path("name/")).contains("it is a folder"));
    assert!(refusal(there.path("loop")).contains("os error 40"));
}

#[test]
fn devices_and_descriptors_are_written_to() {
    let there = TempFolder::new("devices");
    let null = Destination::new("/dev/null".as_ref()).unwrap();
    assert!(!null.is_file());
    null.replace(b"nothing").unwrap();
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    let full = Destination::new("/dev/full".as_ref()).unwrap().replace(b"x").unwrap_err();
    assert!(full.to_string().contains("/dev/full: No space left on device"), "{full}");
    assert!(full.to_string().contains("free space"), "{full}");
    let (reads, writes) = std::io::pipe().unwrap();
    let name = format!("/proc/self/fd/{}", writes.as_raw_fd());
    Destination::new(name.as_ref()).unwrap().replace(b"through a pipe").unwrap();
    drop(writes);
    assert_eq!(std::io::read_to_string(reads).unwrap(), "through a pipe");
    // The descriptor of a file stands for the file.
    let file = File::create(there.path("file")).unwrap();
    let name = format!("/dev/fd/{}", file.as_raw_fd());
    Destination::new(name.as_ref()).unwrap().replace(b"a file").unwrap();
    assert_eq!(fs::read(there.path("file")).unwrap(), b"a file");
}

#[test]
fn permissions_of_another_user_and_special_bits_are_not_taken_over() {
    let there = TempFolder::new("modes");
    let path = there.path("result");
    let replaced = |mode: u32, owner: Option<u32>| {
        fs::write(&path, "old").unwrap();
        let moved = owner.map_or(Ok(()), |owner| lchown(&path, Some(owner), None));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Destination::new(&path).unwrap().replace(b"new").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        fs::remove_file(&path).unwrap();
        moved.is_ok().then_some(mode)
    };
    assert_eq!(replaced(0o6755, None), Some(0o755));
    // Only root can give files away.
    if let Some(mode) = replaced(0o4777, Some(65534)) {
        fs::write(&path, "new").unwrap();
        let usual = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, usual, "{mode:o}");
    }
}

#[test]
fn a_refused_result_leaves_what_was_there() {
    let there = TempFolder::new("kept");
    let path = there.path("result");
    fs::write(&path, "old").unwrap();
    let to = Destination::new(&path).unwrap();
    let failed = || CannotWrite::new(&path, std::io::Error::other("changed"));
    let fill = |file: &mut File| file.write_all(b"new").map_err(|why| CannotWrite::new(&path, why));
    assert!(to.write(true, fill, || Err(failed())).is_err());
    assert!(to.write(true, |_| Err(failed()), || Ok(())).is_err());
    assert_eq!((fs::read(&path).unwrap(), fs::read_dir(&there.0).unwrap().count()), (b"old".to_vec(), 1));
}

#[test]
fn a_stream_of_results_is_on_disk_when_it_is_finished() {
    let there = TempFolder::new("stream");
    let folder = Arc::new(ResultFolder::open(&there.0).unwrap());
    for count in [0, 1, 100] {
        let mut disk = Background::start(folder.clone()).unwrap();
        for at in 0..count {
            let mut file = folder.begin().unwrap();
            file.file().write_all(b"event").unwrap();
            assert!(disk.appear(file, format!("{count}-{at}").as_ref()).unwrap().is_none());
        }
        disk.finish().unwrap();
    }
    assert_eq!(fs::read_dir(&there.0).unwrap().count(), 101);
}

#[test]
fn a_stream_of_results_replaces_nothing() {
    let there = TempFolder::new("stream-taken");
    let folder = Arc::new(ResultFolder::open(&there.0).unwrap());
    fs::write(there.path("taken"), "old").unwrap();
    let mut disk = Background::start(folder.clone()).unwrap();
    let mut file = folder.begin().unwrap();
    file.file().write_all(b"event").unwrap();
    let file = disk.appear(file, "taken".as_ref()).unwrap().expect("something has the name");
    assert!(disk.appear(file, "free".as_ref()).unwrap().is_none());
    disk.finish().unwrap();
    let [taken, free] = ["taken", "free"].map(|name| fs::read(there.path(name)).unwrap());
    assert_eq!((&*taken, &*free), (&b"old"[..], &b"event"[..]));
}
