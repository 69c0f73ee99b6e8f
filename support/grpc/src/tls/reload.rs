//! A server's files, read again when they change.

use std::{sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};

use super::{ServerTls, TlsError, server::Contents};

/// How often the files are looked at. What is new in them is used once it has stayed the same from one look to the next.
const LOOK: Duration = Duration::from_millis(500);

/// What new handshakes are made with. Connections keep what they began with.
pub(crate) struct InForce(watch::Receiver<Arc<ServerConfig>>);

impl InForce {
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.borrow().clone()
    }
}

/// Looks at the files for as long as it is polled.
pub(crate) struct Reload {
    files: ServerTls,
    changes: ChangeDetector,
    put: watch::Sender<Arc<ServerConfig>>,
}

/// Reads the files of a server.
///
/// # Errors
/// Fails if a file cannot be used, or if the private key does not belong to the certificate.
pub(crate) fn reload(files: ServerTls) -> Result<(InForce, Reload), TlsError> {
    let contents = files.read()?;
    let (put, config) = watch::channel(files.config(&contents)?);
    Ok((InForce(config), Reload { files, changes: ChangeDetector::new(contents), put }))
}

impl Reload {
    pub(crate) async fn run(mut self) {
        loop {
            sleep(LOOK).await;
            let files = self.files.clone();
            // A folder of the network may take its time, which is not to hold up calls.
            let Ok(seen) = spawn_blocking(move || files.read()).await else { continue };
            let Some(new) = self.changes.look(seen) else { continue };
            match new.and_then(|contents| self.files.config(&contents)) {
                Ok(config) => {
                    tracing::info!(
                        "new connections over gRPC get the certificate of {}",
                        self.files.cert.display()
                    );
                    // If nobody receives the configuration, the task that made the handshakes has ended together with the
                    // server.
                    let _ = self.put.send(config);
                }
                Err(error) => {
                    tracing::warn!("{error}; the certificate that was read before stays in use over gRPC")
                }
            }
        }
    }
}

/// Finds out when files have become others. Files that are just being written, and of which only one was replaced yet, differ
/// from look to look.
struct ChangeDetector {
    reported: FilesRead,
    last: FilesRead,
}

type FilesRead = Result<Contents, TlsError>;

impl ChangeDetector {
    fn new(contents: Contents) -> Self {
        Self { reported: Ok(contents.clone()), last: Ok(contents) }
    }

    /// What is new, once.
    fn look(&mut self, seen: FilesRead) -> Option<FilesRead> {
        let stays = seen == self.last;
        self.last = seen;
        (stays && self.last != self.reported).then(|| {
            self.reported = self.last.clone();
            self.reported.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(cert: &str, key: &str) -> Contents {
        Contents { cert: cert.into(), key: key.into(), client_ca: None }
    }

    #[test]
    fn files_are_judged_once_they_stay_the_same_and_once_only() {
        let mut changes = ChangeDetector::new(contents("a", "a"));
        let absent = || Err(TlsError::Long { path: "a.pem".into() });
        for (seen, reported) in [
            (Ok(contents("a", "a")), false),
            // Only one of two was replaced yet.
            (Ok(contents("b", "a")), false),
            (Ok(contents("b", "b")), false),
            (Ok(contents("b", "b")), true),
            (Ok(contents("b", "b")), false),
            (absent(), false),
            (absent(), true),
            (absent(), false),
            // Back to what it was before, for a moment and for good.
            (Ok(contents("b", "b")), false),
            (absent(), false),
            (Ok(contents("b", "b")), false),
            (Ok(contents("b", "b")), true),
        ] {
            assert_eq!(changes.look(seen).is_some(), reported);
        }
    }
}
