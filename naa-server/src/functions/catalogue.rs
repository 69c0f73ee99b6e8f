//! The function that returns the catalogue of all functions.

use mrsp::{
    builtin,
    catalogue::{Direction, HEADER_BYTES, ParamKind},
};

use super::{info, parameter};
use crate::{
    call::{Call, CallFailure},
    function::{Function, FunctionInfo, Registry, RegistryError},
};

#[derive(Debug)]
struct CatalogueFunction {
    info: FunctionInfo,
    bytes: Vec<u8>,
}

/// Registers the function that returns the catalogue. The catalogue lists all functions in `registry`, including the
/// function that returns the catalogue.
pub(super) fn register(registry: &mut Registry) -> Result<(), RegistryError> {
    let table = parameter(Direction::Output, (ParamKind::Bytes, "table", "what the accelerator offers"));
    let info = info(builtin::CATALOGUE, "lists the functions", false, vec![table]);
    let mut all = registry.catalogue();
    all.functions.push(info.clone());
    registry.register(CatalogueFunction { info, bytes: all.encode()? })
}

impl Function for CatalogueFunction {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let too_small = CallFailure::OutputTooSmall { output: 0, needed: Some(self.bytes.len() as u64) };
        let Some(output) = call.parts().take_output(0) else {
            return Err(CallFailure::Arguments("there is no output for the table; map one".into()));
        };
        if let Some(place) = output.get_mut(..self.bytes.len()) {
            place.copy_from_slice(&self.bytes);
            call.set_produced(0, self.bytes.len());
            return Ok(());
        }
        // If the output is too small, it gets only the header, which has the number of bytes that are needed.
        if let Some((place, header)) = output.get_mut(..HEADER_BYTES).zip(self.bytes.get(..HEADER_BYTES)) {
            place.copy_from_slice(header);
            call.set_status(HEADER_BYTES as u32);
        }
        Err(too_small)
    }
}
