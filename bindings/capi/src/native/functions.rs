//! Which functions an accelerator has.

use std::{
    ffi::{CString, c_char},
    net::SocketAddr,
};

use naa_host::{Catalogue, Device, Error, SessionConfig};

use super::{
    naa_result,
    result::{Problem, guarded},
    session::{SessionHandle, get, give, naa_session},
};
use crate::{boundary, handles::InUse};

/// A function of an accelerator, as the accelerator describes it. The texts are UTF-8 and stay until the session is closed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_function {
    /// Its number, 1 to 127, which naa_call() takes.
    pub code: i32,
    /// Its name, such as "dgemm".
    pub name: *const c_char,
    /// "<a:f64 <b:f64 >c:f64": the parameters in their order, where < marks inputs, > outputs, = both and ~ internal
    /// regions. The argument block and the status block are left out. "any": the function takes whatever it gets.
    pub parameters: *const c_char,
    /// What it does, in one line.
    pub description: *const c_char,
}

/// The functions of an accelerator, with their texts for C.
#[derive(Debug)]
pub(super) struct Offered {
    catalogue: Catalogue,
    entries: Box<[naa_function]>,
    /// The texts that the pointers of `entries` lead to. Moving this object does not move them.
    _texts: Box<[CString]>,
}

// SAFETY: the pointers of `entries` lead to texts that this object owns and that nobody changes.
unsafe impl Send for Offered {}

impl Offered {
    fn new(catalogue: Catalogue) -> Self {
        // A decoded catalogue has no control characters in its texts, so no zero either.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let functions = &catalogue.functions;
        let texts: Box<[_]> = functions
            .iter()
            .flat_map(|it| [text(&it.name), text(&it.signature()), text(&it.description)])
            .collect();
        let (of_each, _) = texts.as_chunks::<3>();
        let entry =
            |(it, [name, parameters, description]): (&naa_host::FunctionInfo, &[CString; 3])| naa_function {
                code: it.code.get().into(),
                name: name.as_ptr(),
                parameters: parameters.as_ptr(),
                description: description.as_ptr(),
            };
        let entries = functions.iter().zip(of_each).map(entry).collect();
        Self { catalogue, entries, _texts: texts }
    }
}

/// Asks the accelerator which functions it has. Sets `functions` to an array and `count` to its length. The array is in the
/// order of codes and valid until the session is closed.
///
/// The accelerator is asked once, over a connection of its own that lasts as long as that takes; later calls of this function
/// and of naa_session_find_function() take the stored answer. So both may be called while a call is under way, and
/// what goes wrong with that connection leaves the session as it is. While the accelerator is asked, other threads may use the
/// session and close it. The connection has the session's options: setup_timeout_ms limits
/// connecting, call_timeout_ms the response. `naa serve` can be asked; other accelerators may have no catalogue, or no
/// place for another connection.
///
/// NAA_ERROR_FUNCTION, NAA_ERROR_PEER or NAA_ERROR_GONE if the accelerator has no catalogue; NAA_ERROR_UNREACHABLE,
/// NAA_ERROR_REFUSED, NAA_ERROR_TIMEOUT, NAA_ERROR_DEVICE, NAA_ERROR_MEMORY and NAA_ERROR_ENVIRONMENT as
/// naa_session_connect(); NAA_ERROR_OVER if the session is over; NAA_ERROR_STATE if another thread is using the session when
/// the question begins or ends; NAA_ERROR_ARGUMENT, also if the session was closed meanwhile.
///
/// # Safety
/// `functions` points to a place for a pointer, `count` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_functions(
    session: *mut naa_session,
    functions: *mut *const naa_function,
    count: *mut usize,
) -> naa_result {
    guarded(|| {
        let checked = get(session)?;
        // SAFETY: the caller's contract.
        unsafe {
            give(functions, std::ptr::null(), "functions")?;
            give(count, 0, "count")?;
        }
        let session = offered(checked, session)?;
        let entries = session.offered.as_ref().map_or(&[][..], |offered| &offered.entries);
        // SAFETY: the caller's contract.
        unsafe {
            give(functions, entries.as_ptr(), "functions")?;
            give(count, entries.len(), "count")
        }
    })
}

/// Sets `function` to the code of the function that the accelerator calls `name`: of a kernel, or of any other function
/// that it has. naa_function_code() knows the functions of NAAICE and of `naa serve` without asking.
///
/// NAA_ERROR_ARGUMENT if the accelerator has none of that name: the text lists those that it has. `function` is 0 then.
/// Otherwise it returns what naa_session_functions() returns, which also tells when the accelerator is asked.
///
/// # Safety
/// `name` is NULL or points to text that ends with a zero, `function` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_find_function(
    session: *mut naa_session,
    name: *const c_char,
    function: *mut i32,
) -> naa_result {
    guarded(|| {
        let checked = get(session)?;
        // SAFETY: the caller's contract.
        unsafe { give(function, 0, "function") }?;
        // SAFETY: the caller's contract.
        let name = unsafe { boundary::text(name) }.map_err(|_| Problem::argument("name is not UTF-8"))?;
        let name =
            name.ok_or_else(|| Problem::argument("name is NULL; give the function's, \"increment\""))?;
        let session = offered(checked, session)?;
        let functions = session.offered.as_ref().map_or(&[][..], |offered| &offered.catalogue.functions);
        let Some(found) = functions.iter().find(|it| it.name == name) else {
            let names: Vec<_> = functions.iter().map(|it| it.name.as_str()).collect();
            let (peer, names) = (session.host.peer(), names.join(", "));
            return Err(Problem::argument(format!("{peer} has no function {name:?}; it has {names}")));
        };
        // SAFETY: the caller's contract.
        unsafe { give(function, found.code.get().into(), "function") }
    })
}

/// The session of `handle`, with the functions of its accelerator in `offered`. The first use asks the accelerator; later
/// ones take the stored answer. While the accelerator is asked, the session is not in use, so another thread may test its
/// call or close it.
fn offered(
    session: InUse<'static, SessionHandle>,
    handle: *mut naa_session,
) -> Result<InUse<'static, SessionHandle>, Problem> {
    session.host.not_over()?;
    if session.offered.is_some() {
        return Ok(session);
    }
    let (device, peer, config) = (session.device.clone(), session.host.peer(), session.config.clone());
    drop(session);
    let asked = Offered::new(ask(&device, peer, &config)?);
    let mut session = get(handle)?;
    // Another thread may have asked at the same time, and a program may have the texts of its answer.
    session.offered.get_or_insert(asked);
    Ok(session)
}

fn ask(device: &Device, peer: SocketAddr, config: &SessionConfig) -> Result<Catalogue, Problem> {
    naa_host::functions_with(device, peer, config).map_err(|error| match error {
        error @ (Error::Function { .. }
        | Error::Catalogue { .. }
        | Error::Peer { .. }
        | Error::PeerGone { .. }) => Problem::NoCatalogue(error),
        error => error.into(),
    })
}
