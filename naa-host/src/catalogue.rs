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
        Ok(catalogue) => Ok(catalogue),
        Err((error, bytes)) if bytes > MAX_BYTES => Err(error),
        Err((_, bytes)) => query(device, peer, &config, bytes)?.map_err(|(error, _)| error),
    }
}

/// Connects to the accelerator `peer`, and calls the function that returns the catalogue. The output of this call has
/// `bytes` bytes. If the catalogue does not fit into the output, the inner result is the error of the call and the
/// number of bytes that the output needs.
fn query(
    device: &Device,
    peer: SocketAddr,
    config: &SessionConfig,
    bytes: usize,
) -> Result<Result<Catalogue, (Error, usize)>, Error> {
    let params = [Param::output(bytes)];
    let mut session = Session::connect(device, peer, &params, config)?;
    let called = session.call(CATALOGUE);
    let unusable = |source| Error::Catalogue { peer, source };
    let answer = match called {
        Ok(()) => Ok(Catalogue::decode(&session.bytes(0, ..)?).map_err(unusable)?),
        Err(error) if error.return_code() == Some(ReturnCode::OUTPUT_TOO_SMALL) => {
            let header = Header::decode(&session.bytes(0, ..)?).map_err(unusable)?;
            Err((error, header.bytes as usize))
        }
        Err(error) => return Err(error),
    };
    session.finalize()?;
    Ok(answer)
}
