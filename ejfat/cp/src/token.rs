//! The file with the admin token.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use naa_grpc::{BadToken, check_token};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore as _, SeedableRng as _};

/// The most bytes of a token's file.
const MOST: usize = 4096;
/// The fewest characters of an admin token. Shorter ones can be guessed.
const LEAST: usize = 16;

/// Why there is no admin token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file of the admin token cannot be read.
    #[error("cannot read the admin token's file {}: {source}; give a file that can be read (admin_token_file)", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file of the admin token does not exist, and cannot be made.
    #[error("cannot make the admin token's file {}: {source}; give one that can be made (admin_token_file)", .path.display())]
    Make {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The text in the file is not a valid token.
    #[error("the admin token's file {}: {why}", .path.display())]
    Token {
        /// The path of the file.
        path: PathBuf,
        /// The reason why the text is not a valid token.
        why: BadToken,
    },
    /// The token in the file has too few characters, so it could be guessed.
    #[error(
        "the admin token in the file {} has fewer than {LEAST} characters, so it can be guessed; write a longer one into it, or remove \
         the file, which is then made with a random token",
        .path.display()
    )]
    Short {
        /// The path of the file.
        path: PathBuf,
    },
    /// Users other than the owner of the file may read the file.
    #[error("the admin token's file {} may be read by others; chmod 600 it", .path.display())]
    Rights {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has more bytes than a token can have.
    #[error("the admin token's file {} has more than {MOST} bytes; is it the right one?", .path.display())]
    Long {
        /// The path of the file.
        path: PathBuf,
    },
}

/// Reads the token from a file that only its owner may read. If the file does not exist, it is made with a random token.
pub(crate) fn read_or_make(path: &Path) -> Result<String, TokenFileError> {
    let failed = |source| TokenFileError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return make(path),
        Err(why) => return Err(failed(why)),
    };
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(TokenFileError::Rights { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(MOST as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > MOST {
        return Err(TokenFileError::Long { path: path.to_owned() });
    }
    let token = text.trim().to_owned();
    check_token(&token).map_err(|why| TokenFileError::Token { path: path.to_owned(), why })?;
    if token.len() < LEAST {
        return Err(TokenFileError::Short { path: path.to_owned() });
    }
    Ok(token)
}

/// Makes the file with a random token of 128 bits.
fn make(path: &Path) -> Result<String, TokenFileError> {
    let failed = |source| TokenFileError::Make { path: path.to_owned(), source };
    let mut bytes = [0; 16];
    let random = ChaCha20Rng::try_from_os_rng().map_err(|why| failed(io::Error::other(why.to_string())));
    random?.fill_bytes(&mut bytes);
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // `create_new` fails if another program made a file or a link with this name meanwhile.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(failed)?;
    file.write_all(format!("{token}\n").as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let path = std::env::temp_dir().join(format!("naa-token-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let made = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), made);
        std::fs::write(&path, "short\n").unwrap();
        let refused = read_or_make(&path).unwrap_err().to_string();
        assert!(refused.contains("fewer than 16 characters"), "{refused}");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(read_or_make(&path).unwrap(), "0123456789abcdef");
        std::fs::remove_file(&path).unwrap();
    }
}
