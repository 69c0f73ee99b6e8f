//! Argument and status blocks, and immediates: what decodes encodes to the same bytes.

use mrsp::{
    builtin::{ArgumentBlock, Arguments, BLOCK_BYTES, StatusBlock},
    immediate::{CallResponse, Dialect, RequestImmediate},
};

pub fn run(data: &[u8]) {
    if let Ok(block) = ArgumentBlock::decode(data) {
        assert_eq!(block.encode(), data[..BLOCK_BYTES]);
    }
    if let Ok(arguments) = Arguments::decode(data) {
        assert_eq!(arguments.encode(), data[..BLOCK_BYTES]);
        assert_eq!(ArgumentBlock::decode(data).map(|block| block.function), Ok(arguments.function()));
    }
    if let Ok(status) = StatusBlock::decode(data) {
        assert_eq!(status.encode(), data[..BLOCK_BYTES]);
    }
    if let Some(word) = data.first_chunk() {
        immediates(u32::from_le_bytes(*word));
    }
}

fn immediates(word: u32) {
    if let RequestImmediate::Call(call) = RequestImmediate::decode(word)
        && let Some(function) = call.function
    {
        assert_eq!(RequestImmediate::call(function, call.user), word | 0x80);
    }
    for dialect in [Dialect::Main, Dialect::Next] {
        assert_eq!(CallResponse::decode(word, dialect).encode(), word & !0xff);
    }
}
