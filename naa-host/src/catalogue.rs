//! Asks an accelerator for its catalogue, the list of its functions.

use std::net::SocketAddr;

use mrsp::{
    ReturnCode,
    builtin::CATALOGUE,
    catalogue::{Catalogue, Header, USUAL_BYTES},
};

use crate::{Device, Dialect, Error, Layout, LayoutChoice, Param, Session, SessionConfig};

/// The maximum number of bytes of a catalogue that this crate reads. This limit leaves room for a catalogue with 127
/// functions, each of which has a description of 64 KiB: the descriptions take about 8 MiB.
const MAX_BYTES: usize = 16 << 20;

/// Asks the accelerator `peer` for the functions that it offers, and returns these functions.
///
/// # Errors
/// Fails with [`Error::Function`] if the accelerator has no catalogue. An accelerator without a catalogue chooses the
/// return code in [`Error::Function`], for example [`ReturnCode::UNKNOWN_FUNCTION`]. Fails with [`Error::Catalogue`] if
/// the accelerator wrote no valid catalogue. The function can also fail with the errors of [`Session::connect`] and
/// [`Session::call`].
pub fn functions(device: &Device, peer: SocketAddr) -> Result<Catalogue, Error> {
    functions_with(device, peer, &SessionConfig::default())
}

/// Opens a session to `peer` with the settings of `config`, asks `peer` for its functions, and returns these functions.
/// The layout and the dialect in `config` are ignored: the layout is always symmetric, and the dialect is always
/// `main`.
///
/// # Errors
/// Fails with the same errors as [`functions`].
pub fn functions_with(device: &Device, peer: SocketAddr, config: &SessionConfig) -> Result<Catalogue, Error> {
    let config = SessionConfig {
        layout: LayoutChoice::Fixed(Layout::Symmetric),
        dialect: Dialect::Main,
        ..config.clone()
    };
    match query(device, peer, &config, USUAL_BYTES)? {
        QueryResult::Whole(catalogue) => Ok(catalogue),
        QueryResult::Larger { error, bytes } if bytes > MAX_BYTES => Err(error),
        QueryResult::Larger { bytes, .. } => match query(device, peer, &config, bytes)? {
            QueryResult::Whole(catalogue) => Ok(catalogue),
            QueryResult::Larger { error, .. } => Err(error),
        },
    }
}

enum QueryResult {
    Whole(Catalogue),
    /// The catalogue does not fit into the output, and needs an output of `bytes` bytes.
    Larger {
        error: Error,
        bytes: usize,
    },
}

fn query(
    device: &Device,
    peer: SocketAddr,
    config: &SessionConfig,
    bytes: usize,
) -> Result<QueryResult, Error> {
    let params = [Param::output(bytes)];
    let mut session = Session::connect(device, peer, &params, config)?;
    let called = session.call(CATALOGUE);
    let unusable = |source| Error::Catalogue { peer, source };
    let answer = match called {
        Ok(_) => QueryResult::Whole(Catalogue::decode(&session.bytes(0, ..)?).map_err(unusable)?),
        Err(error) if error.return_code() == Some(ReturnCode::OUTPUT_TOO_SMALL) => {
            let header = Header::decode(&session.bytes(0, ..)?).map_err(unusable)?;
            QueryResult::Larger { error, bytes: header.bytes as usize }
        }
        Err(error) => return Err(error),
    };
    session.finalize()?;
    Ok(answer)
}
