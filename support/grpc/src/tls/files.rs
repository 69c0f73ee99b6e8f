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
    #[error("cannot read {}: {why}; give a file that this program may read", .path.display())]
    Read { path: PathBuf, why: String },
    #[error("{} is longer than {MOST} bytes; give a file of certificates or of a key, as PEM", .path.display())]
    Long { path: PathBuf },
    #[error("cannot take certificates from {}: {why}; give them as PEM", .path.display())]
    Certificates { path: PathBuf, why: String },
    #[error("there is no certificate in {}; give one as PEM", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("cannot take a private key from {}: {why}; give one as PEM, not encrypted", .path.display())]
    Key { path: PathBuf, why: String },
    #[error(
        "the key of {} does not fit the certificate of {}; give the key that this certificate was made with, and the \
         certificate of this key first in its file",
        .key.display(),
        .cert.display()
    )]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error(
        "cannot use the certificate of {} with the key of {}: {why}; give an RSA, ECDSA or Ed25519 key as PEM and the \
         certificate that was made with it",
        .cert.display(),
        .key.display()
    )]
    Unusable { cert: PathBuf, key: PathBuf, why: String },
    #[error(
        "no CA that this system trusts can be read{why}; install the package ca-certificates, or name a file of CAs"
    )]
    NoRoots { why: String },
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
