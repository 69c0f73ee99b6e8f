//! Makes a handler for each kernel of the kernel libraries. This module sends calls to a session's process and checks
//! the replies.

use std::{sync::Arc, time::Instant};

use mrsp::{
    ReturnCode, U24,
    catalogue::{Direction, ParamInfo},
    plan::Part,
};
use naa_kernels::{CallError, ChildAccess, Kernel, KernelResult, Kernels, RegionFile, SessionProcess};

use crate::{
    call::{CallFailure, SessionRegions, View, direction},
    function::Handler,
};

/// The return codes that kernels may use, which NAAICE leaves to applications.
const RETURN_CODES: std::ops::RangeInclusive<u32> = 0x10..=0x7f;

/// Returns a handler for each kernel in `kernels`.
pub fn handlers(kernels: &Arc<Kernels>) -> impl Iterator<Item = Handler> {
    kernels.kernels().into_iter().map(Handler::from)
}

/// Runs `kernel` in the session's `process`, and waits for the end of the call. The returned list has one
/// element for each parameter of the session. The element of an output or in-out parameter is the part of the
/// parameter that the kernel produced. The element of an input is `None`.
pub(crate) fn run(
    kernel: &Kernel,
    process: &SessionProcess,
    regions: &mut SessionRegions,
    user: U24,
    deadline: Instant,
) -> Result<Vec<Option<Part>>, CallFailure> {
    let name = &kernel.function().name;
    let failure = |(code, why)| CallFailure::Kernel { name: name.clone(), code, why };
    check(&kernel.function().parameters, regions)
        .map_err(|why| failure((ReturnCode::BAD_ARGUMENTS, format!("was not called: {why}"))))?;
    let sizes: Vec<_> = regions.views().map(|view| (direction(view.flags), view.len as u64)).collect();
    let called = process.call(kernel, user.get(), deadline, |access| lend(regions, access));
    let checked = match called {
        Ok(outcome) => checked(outcome, &sizes),
        Err(CallError::Ended) => return Err(CallFailure::Abandoned),
        Err(CallError::TimedOut) => {
            let why =
                "was killed: its time was over; raise the time allowed for a call or give it less to do";
            Err((ReturnCode::KERNEL_TIMEOUT, why.to_owned()))
        }
        Err(error) => Err((ReturnCode::INTERNAL, format!("failed: {error}"))),
    };
    checked.map_err(failure)
}

fn lend<'r>(regions: &'r mut SessionRegions, access: &Arc<ChildAccess>) -> Option<Vec<RegionFile<'r>>> {
    for region in regions.iter_mut() {
        region.allocation.lend(access)?;
    }
    let regions = &*regions;
    let file = |View { flags, region, offset, len }| {
        let file = regions.get(region)?.allocation.file()?;
        Some(RegionFile { file, offset: offset as u64, size: len as u64, direction: direction(flags) })
    };
    regions.views().map(file).collect()
}

/// Checks that the session has the parameters and the internal regions that the kernel declares. The parameters must be
/// in the declared order, and so must the internal regions. If the kernel declares an input or an output, the session
/// may have an in-out parameter instead.
fn check(declared: &[ParamInfo], regions: &SessionRegions) -> Result<(), String> {
    let is_internal = |direction| direction == Direction::Internal;
    let (mut params, mut internals) = {
        let has = || regions.views().map(|view| direction(view.flags));
        (has().filter(|has| !is_internal(*has)), has().filter(|has| is_internal(*has)))
    };
    for (at, parameter) in declared.iter().enumerate() {
        let internal = is_internal(parameter.direction);
        let has = if internal { internals.next() } else { params.next() };
        let fits = match (parameter.direction, has) {
            (Direction::Input | Direction::Output, Some(Direction::InOut)) => true,
            (wanted, has) => has == Some(wanted),
        };
        if !fits {
            let (name, wanted) = (&parameter.name, parameter.direction);
            let has = has.map_or_else(|| "there is none".to_owned(), |has| format!("it is {has:?}"));
            return Err(format!("parameter {at} ({name}) is to be {wanted:?}, and {has}"));
        }
    }
    Ok(())
}

/// Checks the return code of a kernel, and the number of bytes that the kernel produced for each output. The returned
/// list has one element for each parameter of the session. The element of an output or in-out parameter is the part of
/// the parameter that the kernel produced. The element of an input is `None`. If the kernel failed, the error is the
/// return code for the host and a text that describes the failure.
fn checked(
    outcome: KernelResult,
    sizes: &[(Direction, u64)],
) -> Result<Vec<Option<Part>>, (ReturnCode, String)> {
    let KernelResult { code, produced, text } = outcome;
    if code != 0 {
        let text = if text.is_empty() { text } else { format!(": {text}") };
        let known = u32::try_from(code).ok().filter(|code| RETURN_CODES.contains(code));
        let known = known.and_then(U24::new).and_then(ReturnCode::new);
        return Err(match known {
            Some(known) => (known, format!("returned {code:#04x}{text}")),
            None => (ReturnCode::INTERNAL, format!("returned {code}, which is no code for hosts{text}")),
        });
    }
    let params = sizes.iter().zip(produced).filter(|((direction, _), _)| *direction != Direction::Internal);
    let part = |((direction, size), produced): (&(Direction, u64), u64)| match direction {
        Direction::Output | Direction::InOut if produced > *size => {
            let why = format!("says it produced {produced} bytes of an output of {size}");
            Err((ReturnCode::INTERNAL, why))
        }
        Direction::Output | Direction::InOut => Ok(Some(Part::prefix(produced))),
        _ => Ok(None),
    };
    params.map(part).collect()
}
