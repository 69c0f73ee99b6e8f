//! Files of certificates and keys, as PEM.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rustls::{
    Error, InconsistentKeys, RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};

/// Bytes of a file. All CAs that an operating system trusts take a fifth of it.
const MOST: u64 = 1 << 20;

/// Why a file of certificates or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}: {why}; give a file that this program may read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        why: String,
    },
    /// The file is longer than 1 MiB.
    #[error("{} is longer than {MOST} bytes; give a file of certificates or of a key, as PEM", .path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// The file has no valid certificates in PEM.
    #[error("cannot take certificates from {}: {why}; give them as PEM", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The fault, as text for people.
        why: String,
    },
    /// The file has no certificate.
    #[error("there is no certificate in {}; give one as PEM", .path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file has no private key in PEM that can be used.
    #[error("cannot take a private key from {}: {why}; give one as PEM, not encrypted", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault, as text for people.
        why: String,
    },
    /// The private key does not belong to the certificate.
    #[error(
        "the key of {} does not fit the certificate of {}; give the key that this certificate was made with, and the \
         certificate of this key first in its file",
        .key.display(),
        .cert.display()
    )]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the private key.
        key: PathBuf,
    },
    /// The certificate and the private key cannot be used together.
    #[error(
        "cannot use the certificate of {} with the key of {}: {why}; give an RSA, ECDSA or Ed25519 key as PEM and the \
         certificate that was made with it",
        .cert.display(),
        .key.display()
    )]
    Unusable {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the private key.
        key: PathBuf,
        /// The fault, as text for people.
        why: String,
    },
    /// No CA certificate that the operating system trusts can be read.
    #[error(
        "no CA that this system trusts can be read{why}; install the package ca-certificates, or name a file of CAs"
    )]
    NoRoots {
        /// The first error of reading these certificates in parentheses, or an empty text.
        why: String,
    },
}

/// What a file holds, as it was read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let bytes = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = bytes().map_err(|error| TlsError::Read { path: path.into(), why: error.to_string() })?;
    if bytes.len() as u64 > MOST { Err(TlsError::Long { path: path.into() }) } else { Ok(bytes) }
}

/// The certificates in `bytes`, at least one. `path` names the file for errors.
pub(super) fn chain(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let chain =
        chain.map_err(|error| TlsError::Certificates { path: path.into(), why: error.to_string() })?;
    if chain.is_empty() { Err(TlsError::NoCertificate { path: path.into() }) } else { Ok(chain) }
}

/// The first private key.
pub(super) fn key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        let why = match error {
            pem::Error::NoItemsFound => "there is none".into(),
            other => other.to_string(),
        };
        TlsError::Key { path: path.into(), why }
    })
}

/// CAs to trust.
pub(super) fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path, bytes)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::Certificates { path: path.into(), why: error.to_string() })?;
    }
    Ok(roots)
}

/// Why a certificate and a key were refused.
pub(super) fn refused(cert: &Path, key: &Path, error: &Error) -> TlsError {
    let (cert, key) = (cert.into(), key.into());
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch { cert, key },
        other => TlsError::Unusable { cert, key, why: other.to_string() },
    }
}
