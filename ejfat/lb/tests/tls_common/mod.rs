//! CAs, certificates, and the files they are in.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType, date_time_ymd,
};

/// A folder that goes with the test.
pub(crate) struct Files(PathBuf);

impl Files {
    /// `name` is of one test only.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }

    /// Writes a certificate and its key as `NAME.pem` and `NAME.key`.
    pub(crate) fn put_pair(&self, name: &str, (cert, key): &(String, String)) -> (PathBuf, PathBuf) {
        (self.put(&format!("{name}.pem"), cert), self.put(&format!("{name}.key"), key))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// The CA's own certificate and key, as if it were a server's.
    pub(crate) fn own(&self) -> (String, String) {
        (self.pem(), self.0.key().serialize_pem())
    }

    pub(crate) fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// Certificate and key of a server at 127.0.0.1.
    pub(crate) fn server(&self) -> (String, String) {
        self.sign(&at_loopback())
    }

    /// Certificate and key of a client.
    pub(crate) fn client(&self) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "control plane");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }
}

pub(crate) fn at_loopback() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

pub(crate) fn expired() -> CertificateParams {
    let mut params = at_loopback();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    params
}

pub(crate) fn named(name: &str) -> CertificateParams {
    let mut params = at_loopback();
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
    params
}
