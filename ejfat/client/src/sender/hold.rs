//! A lock that the senders of one user share while they send from one address, so that the last of them knows that it is the last.
//!
//! The lock is a file in a folder of the user. It has content if one of these senders added the address to the reservation's
//! list. The content outlives a sender that was killed, so the next last sender takes the address off.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// The most time that a sender waits while another one takes the address off. That takes one call of the control plane, and a second
/// one if the token is refused; each has five seconds.
const MOST: Duration = Duration::from_secs(11);
const RETRY: Duration = Duration::from_millis(10);

/// Returns the folder of this user's locks, or `None` if the environment names no folder of the user.
pub(super) fn folder() -> Option<PathBuf> {
    let of = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let state = || of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    of("XDG_RUNTIME_DIR").or_else(state).map(|folder| folder.join("naa/senders"))
}

/// Returns the name of the lock of an address: a hash (FNV-1a) that all versions of this program compute alike.
pub(super) fn name(control_plane: &str, lb: &str, address: IpAddr) -> String {
    let text = format!("{control_plane}\n{lb}\n{address}");
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A shared lock.
#[derive(Debug)]
pub(super) struct Hold {
    file: File,
    path: PathBuf,
}

/// The lock of the last sender, which no other sender has meanwhile.
#[derive(Debug)]
pub(super) struct Last {
    hold: Hold,
    /// Whether one of the senders added the address.
    pub(super) added: bool,
}

impl Hold {
    /// Takes the lock `name`, together with other senders.
    ///
    /// # Errors
    /// If the folder cannot be made, the file cannot be opened, or the lock cannot be had within some seconds.
    pub(super) fn take(folder: &Path, name: &str) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (path, begin) = (folder.join(name), Instant::now());
        loop {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path)?;
            match file.try_lock_shared() {
                // The last sender may have removed the file in between.
                Ok(()) if is_at(&file, &path)? => return Ok(Self { file, path }),
                Ok(()) | Err(TryLockError::WouldBlock) if begin.elapsed() < MOST => sleep(RETRY),
                Ok(()) | Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Notes that a sender added the address, so that the last one takes it off.
    pub(super) fn note_added(&mut self) -> io::Result<()> {
        self.file.write_all(b"added\n")
    }

    /// Gives the lock back. Returns `None` if another sender has it, too.
    pub(super) fn release(self) -> Option<Last> {
        self.file.try_lock().ok()?;
        let added = self.file.metadata().is_ok_and(|of| of.len() > 0);
        Some(Last { hold: self, added })
    }
}

impl Last {
    /// Removes the file, because the address is off the list, or is not to be taken off.
    pub(super) fn forget(self) -> io::Result<()> {
        std::fs::remove_file(&self.hold.path)
    }
}

/// Whether a path is that of an open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let of = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (of.dev(), of.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TempFolder(PathBuf);

    impl TempFolder {
        fn new(test: &str) -> Self {
            Self(std::env::temp_dir().join(format!("naa-hold-{test}-{}", std::process::id())))
        }
    }

    impl Drop for TempFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_last_one_knows_that_it_is_and_whether_anyone_added_the_address() {
        let folder = TempFolder::new("last");
        let take = || Hold::take(&folder.0, "x").unwrap();
        let (mut first, second) = (take(), take());
        first.note_added().unwrap();
        assert!(first.release().is_none(), "the second one sends still");
        let last = second.release().unwrap();
        assert!(last.added);
        last.forget().unwrap();
        assert!(!folder.0.join("x").exists());
        assert!(!take().release().unwrap().added, "nobody added it");
        let mut alone = take();
        alone.note_added().unwrap();
        let last = alone.release().unwrap();
        assert!(last.added);
        last.forget().unwrap();
        // A sender that is killed leaves its note to the next one.
        let mut killed = take();
        killed.note_added().unwrap();
        drop(killed);
        assert!(take().release().unwrap().added);
    }

    #[test]
    fn a_sender_waits_while_the_last_one_takes_the_address_off() {
        let folder = TempFolder::new("waits");
        let last = Hold::take(&folder.0, "x").unwrap().release().unwrap();
        let begin = Instant::now();
        let path = folder.0.clone();
        let waits = std::thread::spawn(move || Hold::take(&path, "x").unwrap());
        sleep(Duration::from_millis(200));
        last.forget().unwrap();
        let hold = waits.join().unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(200));
        assert!(is_at(&hold.file, &hold.path).unwrap(), "it has a file that others find");
    }

    #[test]
    fn a_link_that_somebody_put_there_is_not_followed() {
        let folder = TempFolder::new("link");
        std::fs::create_dir_all(&folder.0).unwrap();
        std::os::unix::fs::symlink(folder.0.join("elsewhere"), folder.0.join("x")).unwrap();
        assert!(Hold::take(&folder.0, "x").is_err());
        assert!(!folder.0.join("elsewhere").exists());
    }

    #[test]
    fn names_tell_control_planes_reservations_and_addresses_apart() {
        let at = |cp, lb, ip: &str| name(cp, lb, ip.parse().unwrap());
        let one = at("cp:1", "1", "10.0.0.1");
        assert_eq!(one, at("cp:1", "1", "10.0.0.1"));
        for other in [at("cp:2", "1", "10.0.0.1"), at("cp:1", "2", "10.0.0.1"), at("cp:1", "1", "10.0.0.2")] {
            assert_ne!(one, other);
        }
    }
}
