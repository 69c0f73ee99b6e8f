//! What programs and functions write, and what must be where.

use mrsp::{RegionFlags, ReturnCode, U24, plan::Part};
use simnet::Random;

use super::draw::Talk;

/// A parameter on both sides.
#[derive(Debug)]
pub(super) struct Both {
    pub(super) flags: RegionFlags,
    pub(super) here: Vec<u8>,
    pub(super) there: Vec<u8>,
}

impl Both {
    pub(super) fn is_output(&self) -> bool {
        self.flags.contains(RegionFlags::OUTPUT)
    }

    fn is_sent(&self, first: bool) -> bool {
        if self.flags.contains(RegionFlags::SINGLE_SEND) {
            first
        } else {
            self.flags.contains(RegionFlags::INPUT)
        }
    }
}

/// The response of a function at the end of a call.
#[derive(Debug)]
pub(super) struct ModelResponse {
    pub(super) result: Result<Vec<Option<Part>>, ReturnCode>,
    /// The number of bytes of the first output that are sent although the call failed.
    pub(super) status_bytes: u32,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) params: Vec<Both>,
    pub(super) user: U24,
    /// How the last call had to end.
    pub(super) failure: Option<ReturnCode>,
    calls_left: usize,
    called: bool,
    random: Random,
}

impl Model {
    pub(super) fn new(talk: &Talk, mut random: Random) -> Self {
        let param = |&(flags, size): &(RegionFlags, u32)| {
            let [here, there] = [0; 2].map(|_| bytes(&mut random, size as usize));
            Both { flags, here, there }
        };
        let params = talk.params.iter().map(param).collect();
        Self { params, user: U24::ZERO, failure: None, calls_left: talk.calls, called: false, random }
    }

    /// The program writes, and calls. What of each parameter is sent; `None` when there are no more calls.
    pub(super) fn call(&mut self) -> Option<Vec<Option<Part>>> {
        self.calls_left = self.calls_left.checked_sub(1)?;
        self.user = U24::new(self.random.next_u32() >> 8)?;
        let mut parts = Vec::new();
        for param in &mut self.params {
            if self.random.chance(750_000) {
                self.random.fill(&mut param.here);
            }
            let size = param.here.len() as u64;
            let offset = self.random.range(0..=size);
            let part = Part { offset, bytes: self.random.range(0..=size - offset) };
            let part = self.random.chance(250_000).then_some(part);
            if param.is_sent(!self.called) {
                let Part { offset, bytes } = part.unwrap_or(Part::prefix(size));
                let range = offset as usize..(offset + bytes) as usize;
                param.there[range.clone()].copy_from_slice(&param.here[range]);
            }
            parts.push(part);
        }
        self.called = true;
        Some(parts)
    }

    /// The function writes wherever it can, and answers.
    pub(super) fn answer(&mut self) -> ModelResponse {
        for param in &mut self.params {
            if self.random.chance(750_000) {
                self.random.fill(&mut param.there);
            }
        }
        if self.random.chance(150_000) {
            self.fail()
        } else {
            ModelResponse { result: Ok(self.succeed()), status_bytes: 0 }
        }
    }

    fn fail(&mut self) -> ModelResponse {
        let code = ReturnCode::MALFORMED_INPUT;
        self.failure = Some(code);
        let mut status_bytes = 0;
        if let Some(first) = self.params.iter_mut().find(|param| param.is_output()) {
            let bytes = self.random.range(0..=first.here.len().min(64) as u64) as usize;
            first.here[..bytes].copy_from_slice(&first.there[..bytes]);
            status_bytes = bytes as u32;
        }
        ModelResponse { result: Err(code), status_bytes }
    }

    fn succeed(&mut self) -> Vec<Option<Part>> {
        self.failure = None;
        let mut parts = Vec::new();
        for param in &mut self.params {
            let size = param.here.len() as u64;
            let bytes = self.random.range(0..=size);
            let part = self.random.chance(250_000).then_some(Part::prefix(bytes));
            if param.is_output() {
                let bytes = part.map_or(size, |part| part.bytes) as usize;
                param.here[..bytes].copy_from_slice(&param.there[..bytes]);
            }
            parts.push(part);
        }
        parts
    }
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
