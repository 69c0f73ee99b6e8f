//! The function by which workers subscribe.

use ejfat::ring::call;
use mrsp::{
    FunctionCode, builtin,
    catalogue::{Direction, ParamInfo, ParamKind},
};
use naa_server::function::FunctionInfo;

/// Returns the description of the function by which workers subscribe.
pub(super) fn info() -> FunctionInfo {
    let parameters = call::Parameter::ALL.map(|parameter| {
        let (kind, description) = match parameter {
            call::Parameter::Subscription => (ParamKind::Arguments, "64 bytes: the ring's geometry"),
            call::Parameter::Credits => (ParamKind::U32, "16 words, then one for each slot"),
            call::Parameter::Response => (ParamKind::Status, "64 bytes"),
            call::Parameter::Descriptors => (ParamKind::Bytes, "64 bytes for each slot"),
            call::Parameter::Ring => (ParamKind::Bytes, "the slots"),
        };
        let direction = if parameter.is_input() { Direction::Input } else { Direction::Output };
        ParamInfo { direction, kind, name: parameter.name().into(), description: description.into() }
    });
    let (code, description) =
        (FunctionCode::constant(call::CODE), "events into a ring, as long as the session lasts");
    let name = builtin::name(code).unwrap_or("subscribe").into();
    FunctionInfo { code, name, description: description.into(), pooled: false, parameters: parameters.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_built_in_functions_has_the_code_of_the_call() {
        assert_eq!((info().code, info().name.as_str()), (builtin::SUBSCRIBE, "subscribe"));
    }
}
