//! The function by which workers subscribe.

use mrsp::{
    builtin,
    catalogue::{Direction, Kind, Parameter},
};
use naa_server::{
    call::{Call, Failure},
    function::{Function, FunctionInfo},
};

/// The function by which workers subscribe.
#[derive(Debug)]
pub(super) struct Subscribe(pub(super) FunctionInfo);

impl Function for Subscribe {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn subscribes(&self) -> bool {
        true
    }

    fn run(&self, _: &mut Call<'_>) -> Result<(), Failure> {
        Err(Failure::Internal("the server has no bridge".into()))
    }
}

pub(super) fn info() -> FunctionInfo {
    let parameter = |direction, kind, name: &str, description: &str| Parameter {
        direction,
        kind,
        name: name.into(),
        description: description.into(),
    };
    let parameters = vec![
        parameter(Direction::Input, Kind::Arguments, "subscription", "64 bytes: the ring's geometry"),
        parameter(Direction::Input, Kind::U32, "credits", "16 words, then one for each slot"),
        parameter(Direction::Output, Kind::Status, "answer", "64 bytes"),
        parameter(Direction::Output, Kind::Bytes, "descriptors", "64 bytes for each slot"),
        parameter(Direction::Output, Kind::Bytes, "ring", "the slots"),
    ];
    let (code, description) = (builtin::SUBSCRIBE, "events into a ring, as long as the session lasts");
    let name = builtin::name(code).unwrap_or("subscribe").into();
    FunctionInfo { code, name, description: description.into(), pooled: false, parameters }
}
