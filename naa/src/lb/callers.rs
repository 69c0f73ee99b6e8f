//! Access control for the tables of a data plane.
//!
//! A program that can replace the tables decides where all segments go. So every access is protected: by the token or a
//! certificate (gRPC only), by a list of networks, or by an address that only programs of this machine reach.

use std::net::IpAddr;

use naa_server::allow::Network;

use crate::Usage;

/// The environment variable that holds the token, for data planes and for the programs that program them.
pub(crate) const TOKEN_VARIABLE: &str = "NAA_LB_TOKEN";

/// Refuses to open the tables over MRSP to everyone. `option` opens them.
///
/// # Errors
/// A usage error if no network is allowed and `address` is not loopback's, or callers are meant to show a token or a
/// certificate, which MRSP does not know.
pub(crate) fn check_mrsp(
    option: &str,
    address: IpAddr,
    allow: &[Network],
    must_show: bool,
) -> anyhow::Result<()> {
    if !allow.is_empty() || (is_own(address) && !must_show) {
        return Ok(());
    }
    let only = if must_show {
        "--token (NAA_LB_TOKEN) and --tls-client-ca are asked for over gRPC only, and "
    } else {
        ""
    };
    Err(Usage::error(format!(
        "{only}whoever reaches {address} can replace all tables over MRSP ({option}); name the networks that may with \
         --allow, such as --allow 10.9.0.0/24"
    )))
}

/// Refuses to open the tables over gRPC to everyone.
///
/// # Errors
/// A usage error if callers need not show a token or a certificate, no network is allowed, and `address` is not loopback's.
pub(super) fn check_grpc(address: IpAddr, allow: &[Network], must_show: bool) -> anyhow::Result<()> {
    if must_show || !allow.is_empty() || is_own(address) {
        return Ok(());
    }
    Err(Usage::error(format!(
        "whoever reaches {address} can replace all tables over gRPC (--grpc); set a token with --token or NAA_LB_TOKEN, \
         name the CA of their certificates with --tls-client-ca, or the networks that may with --allow, such as --allow \
         10.9.0.0/24"
    )))
}

/// Whether only programs of this machine can reach the address.
fn is_own(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A token of a command line or of its environment variable.
pub(super) fn token(text: &str) -> Result<String, String> {
    ejfat_lb::grpc::check_token(text)
        .map_err(|error| format!("{error}; correct --token or {TOKEN_VARIABLE}"))?;
    Ok(text.to_owned())
}

/// Whether the command line has a token. It then overrides the environment variable.
pub(super) fn has_option() -> bool {
    std::env::args_os().any(|argument| {
        let argument = argument.to_string_lossy();
        argument == "--token" || argument.starts_with("--token=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_open_to_nobody_unless_somebody_is_named() {
        let [own, far] = ["127.88.0.1", "10.9.0.1"].map(|ip| ip.parse().unwrap());
        let some: &[Network] = &["10.9.0.0/24".parse().unwrap()];
        for (address, allow, token, mrsp, grpc) in [
            (own, &[][..], false, true, true),
            (own, &[], true, false, true),
            (own, some, true, true, true),
            (far, &[], false, false, false),
            (far, &[], true, false, true),
            (far, some, false, true, true),
            (far, some, true, true, true),
        ] {
            let case = format!("{address} {allow:?} {token}");
            assert_eq!(check_mrsp("--serve", address, allow, token).is_ok(), mrsp, "MRSP: {case}");
            assert_eq!(check_grpc(address, allow, token).is_ok(), grpc, "gRPC: {case}");
        }
        let refused = check_mrsp("--serve", own, &[], true).unwrap_err().to_string();
        assert!(refused.contains("over gRPC only") && refused.contains("--allow"), "{refused}");
    }
}
