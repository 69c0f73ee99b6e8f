//! Asking an accelerator what it offers.

use std::net::SocketAddr;

use mrsp::{
    ReturnCode,
    builtin::CATALOGUE,
    catalogue::{Catalogue, Header, USUAL_BYTES},
};

use crate::{Device, Dialect, Error, Layout, LayoutChoice, Param, Session, SessionConfig};

/// No valid catalogue is larger: 127 functions of up to some 64 KiB each.
const MAX_BYTES: usize = 16 << 20;

/// The functions that `peer` offers.
///
/// # Errors
/// [`Error::Function`] with [`ReturnCode::UNKNOWN_FUNCTION`] or another code if the accelerator has no catalogue,
/// [`Error::Catalogue`] if what it wrote is none; else the same errors as [`Session::connect`].
pub fn functions(device: &Device, peer: SocketAddr) -> Result<Catalogue, Error> {
    functions_with(device, peer, &SessionConfig::default())
}

/// The functions that `peer` offers, asked for over a session with the settings of `config`. Layout and dialect of
/// `config` are ignored: the layout is symmetric, and the upper bits of the response are a return code.
///
/// # Errors
/// The same errors as [`functions`].
pub fn functions_with(device: &Device, peer: SocketAddr, config: &SessionConfig) -> Result<Catalogue, Error> {
    let config = SessionConfig {
        layout: LayoutChoice::Fixed(Layout::Symmetric),
        dialect: Dialect::Main,
        ..config.clone()
    };
    match query(device, peer, &config, USUAL_BYTES)? {
        Answer::Whole(catalogue) => Ok(catalogue),
        Answer::Larger { error, bytes } if bytes > MAX_BYTES => Err(error),
        Answer::Larger { bytes, .. } => match query(device, peer, &config, bytes)? {
            Answer::Whole(catalogue) => Ok(catalogue),
            Answer::Larger { error, .. } => Err(error),
        },
    }
}

enum Answer {
    Whole(Catalogue),
    /// The catalogue does not fit; it needs so many bytes.
    Larger {
        error: Error,
        bytes: usize,
    },
}

fn query(device: &Device, peer: SocketAddr, config: &SessionConfig, bytes: usize) -> Result<Answer, Error> {
    let params = [Param::output(bytes)];
    let mut session = Session::connect(device, peer, &params, config)?;
    let called = session.call(CATALOGUE);
    let unusable = |source| Error::Catalogue { peer, source };
    let answer = match called {
        Ok(_) => Answer::Whole(Catalogue::decode(&session.bytes(0, ..)?).map_err(unusable)?),
        Err(error) if error.return_code() == Some(ReturnCode::OUTPUT_TOO_SMALL) => {
            let header = Header::decode(&session.bytes(0, ..)?).map_err(unusable)?;
            Answer::Larger { error, bytes: header.bytes as usize }
        }
        Err(error) => return Err(error),
    };
    session.finalize()?;
    Ok(answer)
}
