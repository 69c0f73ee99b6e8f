//! Where tables are: in a file, or in a load balancer that is reached by gRPC, with or without TLS, or by MRSP.

use std::{
    fmt,
    io::{Read as _, stdin},
    num::NonZeroU64,
    path::PathBuf,
    str::FromStr,
};

use anyhow::{Context as _, anyhow};
use ejfat::lb::{LbId, Rules};
use ejfat_lb::{
    TableSet, When,
    document::{Document, DocumentError},
    grpc::{self, Client, ClientError, ClientTls, TlsError, TlsFailure},
};
use naa_services::LbTables;
use proto::lb::v1::GetCountersReply;

use super::callers::{self, TOKEN_VARIABLE};
use crate::{
    Usage,
    peer::ServerName,
    show::{self, Waiting},
};

/// The location of tables, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableLocation {
    /// A file; `-` is standard input.
    File(PathBuf),
    Grpc(String),
    /// gRPC over TLS.
    Grpcs(String),
    Mrsp(ServerName),
}

impl fmt::Display for TableLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Grpc(address) => write!(f, "grpc://{address}"),
            Self::Grpcs(address) => write!(f, "grpcs://{address}"),
            Self::Mrsp(server) => write!(f, "mrsp://{server}"),
        }
    }
}

impl FromStr for TableLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://").map(|(scheme, place)| (scheme, place.trim_end_matches('/'))) {
            Some(("grpc", address)) => Ok(Self::Grpc(address.into())),
            Some(("grpcs", address)) => Ok(Self::Grpcs(address.into())),
            Some(("mrsp", server)) => server.parse().map(Self::Mrsp),
            _ => Ok(Self::File(text.into())),
        }
    }
}

/// How to get in.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TableCredentials {
    /// What a load balancer wants to see over gRPC, if it was started with one; over MRSP nothing is shown
    #[arg(long, env = super::callers::TOKEN_VARIABLE, hide_env_values = true, global = true, value_parser = super::callers::token)]
    token: Option<String>,
    /// File of the CAs, as PEM, one of which must have signed the certificate of a load balancer at grpcs://; the
    /// system's unless told
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to a load balancer at grpcs:// that was started with --tls-client-ca, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", global = true)]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", global = true)]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    provider: crate::provider::Args,
}

enum Far {
    Grpc(Box<Client>),
    Mrsp(LbTables),
}

impl TableCredentials {
    /// Connects to the far end. The second value prints a note if that takes long.
    fn far(&self, place: &TableLocation) -> anyhow::Result<(Far, Waiting)> {
        let waiting = show::waiting(format!("connecting to {place}"));
        let far = match place {
            TableLocation::File(path) => {
                return Err(Usage::error(format!(
                    "{} is a file; write grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]",
                    path.display()
                )));
            }
            TableLocation::Grpc(address) if self.has_tls() => {
                return Err(Usage::error(format!(
                    "--tls-ca, --tls-cert and --tls-key go with TLS; write grpcs://{address}"
                )));
            }
            TableLocation::Grpc(address) => self.grpc(address, None)?,
            TableLocation::Grpcs(address) => self.grpc(address, Some(&self.tls()))?,
            TableLocation::Mrsp(server) => {
                let (device, server) = server.find(None, self.provider.choice()?)?;
                Far::Mrsp(LbTables::new(device, server))
            }
        };
        Ok((far, waiting))
    }

    fn has_tls(&self) -> bool {
        [&self.tls_ca, &self.tls_cert, &self.tls_key].into_iter().any(Option::is_some)
    }

    fn tls(&self) -> ClientTls {
        ClientTls { ca: self.tls_ca.clone(), identity: self.tls_cert.clone().zip(self.tls_key.clone()) }
    }

    fn grpc(&self, address: &str, tls: Option<&ClientTls>) -> anyhow::Result<Far> {
        let connect = || Client::connect_by(&grpc::Credentials::new(self.token.as_deref(), tls)?, address);
        Ok(Far::Grpc(Box::new(connect().map_err(|error| self.explained(error))?)))
    }

    /// Explains a refusal because of the token or TLS, and names what of the command line helps.
    fn explained(&self, error: ClientError) -> anyhow::Error {
        if let ClientError::Tls { address, failure } = &error {
            let option = match failure {
                TlsFailure::Wanted => format!("grpcs://{address}"),
                TlsFailure::NotSpoken => format!("grpc://{address}"),
                TlsFailure::UnknownCa => "--tls-ca FILE".into(),
                TlsFailure::WantsCertificate | TlsFailure::CertificateRefused(_) => {
                    "--tls-cert FILE --tls-key FILE".into()
                }
                _ => return error.into(),
            };
            return anyhow!("{error}, by {option}");
        }
        if let ClientError::Files(TlsError::NoRoots { .. }) = error {
            return anyhow!("{error}, by --tls-ca FILE");
        }
        let Some(address) = error.wants_token() else { return error.into() };
        if self.token.is_none() {
            return anyhow!(
                "the load balancer at {address} wants a token; give the one that it was started with by --token or \
                 {TOKEN_VARIABLE}"
            );
        }
        let from =
            if callers::has_option() { "--token".into() } else { format!("the variable {TOKEN_VARIABLE}") };
        anyhow!(
            "the token of {from} is wrong: the load balancer at {address} was started with another one; give that one by \
             --token or {TOKEN_VARIABLE}"
        )
    }

    /// Returns the table sets of the load balancer `lb`, or of all load balancers if it is `None`. `read` reads the
    /// rules if the place is a file.
    pub(super) fn sets(
        &self,
        place: &TableLocation,
        read: fn(&PathBuf) -> anyhow::Result<Rules>,
        lb: Option<LbId>,
        newest: bool,
    ) -> anyhow::Result<Vec<TableSet>> {
        let of = |set: TableSet| match lb {
            None => set,
            Some(lb) => {
                let mut rules = set.rules.destinations_of(lb);
                rules.add(&set.rules.of(lb));
                TableSet { rules: rules.into(), ..set }
            }
        };
        if let TableLocation::File(path) = place {
            return Ok(vec![of(TableSet { from: 0, rules: read(path)?.into() })]);
        }
        let (far, _waiting) = self.far(place)?;
        let sets = match far {
            Far::Grpc(mut client) => client.get(lb, newest).map_err(|error| self.explained(error))?,
            Far::Mrsp(tables) => tables.sets()?.into_iter().map(of).collect(),
        };
        let shown = if newest { sets.len().saturating_sub(1) } else { 0 };
        Ok(sets.into_iter().skip(shown).collect())
    }

    pub(super) fn load(
        &self,
        place: &TableLocation,
        rules: &Rules,
        when: When,
        term: Option<NonZeroU64>,
    ) -> anyhow::Result<u64> {
        let (far, _waiting) = self.far(place)?;
        Ok(match far {
            Far::Grpc(mut client) => {
                if let Some(term) = term {
                    client.set_term(term);
                }
                client.load(rules, when).map_err(|error| self.explained(error))?
            }
            Far::Mrsp(_) if term.is_some() => {
                return Err(Usage::error("--term goes with grpc://ADDR:PORT or grpcs://ADDR:PORT"));
            }
            Far::Mrsp(tables) => tables.load(rules, when)?,
        })
    }

    pub(super) fn counters(&self, place: &TableLocation) -> anyhow::Result<GetCountersReply> {
        let (far, _waiting) = self.far(place)?;
        Ok(match far {
            Far::Grpc(mut client) => client.counters().map_err(|error| self.explained(error))?,
            Far::Mrsp(tables) => tables.counters()?,
        })
    }
}

/// Reads a file of rules that is to be used or checked. One with gaps is refused.
pub(crate) fn read(path: &PathBuf) -> anyhow::Result<Rules> {
    read_by(path, Document::complete_rules)
}

/// Reads a file of rules that is only compared. It may have gaps.
pub(super) fn read_any(path: &PathBuf) -> anyhow::Result<Rules> {
    read_by(path, Document::rules)
}

fn read_by(path: &PathBuf, rules: fn(&Document) -> Result<Rules, DocumentError>) -> anyhow::Result<Rules> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let read = || -> anyhow::Result<Rules> { Ok(rules(&Document::parse(&text?)?)?) };
    read().with_context(|| format!("cannot take rules from {}", path.display()))
}
