//! What both sides of a session must hold, whatever the layout.

use naa_host::{Buffer, Part, Session};

use super::drawn::{Drawn, Kind};
use crate::suite::{
    calls::leased,
    case::{doing, same},
};

/// A parameter on both sides.
#[derive(Debug)]
struct Both {
    kind: Kind,
    here: Vec<u8>,
    there: Vec<u8>,
    part: Option<Part>,
}

#[derive(Debug)]
pub(super) struct Model {
    params: Vec<Both>,
    /// Internal regions that are not empty.
    counted: usize,
    counts: u8,
    called: bool,
}

impl Model {
    /// A model of a new session whose parameters start as `contents`; internal ones are left out.
    pub(super) fn new(drawn: &[Drawn], contents: Vec<Vec<u8>>) -> Self {
        let shared = drawn.iter().filter(|param| param.kind != Kind::Internal);
        let both = |(param, here): (&Drawn, Vec<u8>)| Both {
            kind: param.kind,
            there: vec![0; here.len()],
            here,
            part: None,
        };
        let internal = drawn.iter().filter(|param| param.kind == Kind::Internal && param.len > 0);
        let counted = internal.count();
        Self { params: shared.zip(contents).map(both).collect(), counted, counts: 0, called: false }
    }

    /// Parameters: kinds and sizes.
    pub(super) fn params(&self) -> impl Iterator<Item = (Kind, usize)> {
        self.params.iter().map(|param| (param.kind, param.here.len()))
    }

    /// The program changes a parameter.
    pub(super) fn write(&mut self, param: usize, offset: usize, bytes: &[u8]) {
        self.params[param].here[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn set_part(&mut self, param: usize, part: Option<Part>) {
        self.params[param].part = part;
    }

    /// A call is made: inputs go there.
    pub(super) fn send(&mut self) {
        for param in self.params.iter_mut().filter(|param| param.kind.is_sent(!self.called)) {
            let Part { offset, bytes } = param.part.unwrap_or(Part::prefix(param.here.len() as u64));
            let range = offset as usize..(offset + bytes) as usize;
            param.there[range.clone()].copy_from_slice(&param.here[range]);
        }
        self.called = true;
    }

    /// COPY is done.
    pub(super) fn copied(&mut self, more: u8) {
        let read = self.params.iter().filter(|param| param.kind.is_read());
        let all = read.flat_map(|param| &param.there).copied().collect::<Vec<_>>();
        for (skipped, output) in self.outputs().enumerate() {
            let mut source = all.iter().cycle().skip(skipped);
            output.there.fill_with(|| source.next().unwrap_or(&0).wrapping_add(more));
        }
        self.returned(None);
    }

    /// PRODUCE is done, with so many bytes.
    pub(super) fn produced(&mut self, bytes: usize) {
        if let Some(output) = self.outputs().next() {
            output.there.fill(7);
        }
        self.returned(Some(bytes));
    }

    /// COUNT is done.
    pub(super) fn counted(&mut self) {
        self.counts += 1;
        let (counted, counts) = (self.counted, self.counts);
        if let Some(output) = self.outputs().next() {
            output.there[..counted].fill(counts);
        }
        self.returned(None);
    }

    /// Bytes that COUNT writes, if there is an output for them.
    pub(super) fn room_to_count(&self) -> bool {
        self.first_output().is_some_and(|len| len >= self.counted)
    }

    /// Its bytes.
    pub(super) fn first_output(&self) -> Option<usize> {
        self.params().find(|(kind, _)| kind.is_output()).map(|(_, len)| len)
    }

    /// Outputs come back, of the first so many bytes.
    fn returned(&mut self, first: Option<usize>) {
        let mut bytes = first;
        for output in self.outputs() {
            let bytes = bytes.take().unwrap_or(output.here.len());
            output.here[..bytes].copy_from_slice(&output.there[..bytes]);
        }
    }

    fn outputs(&mut self) -> impl Iterator<Item = &mut Both> {
        self.params.iter_mut().filter(|param| param.kind.is_output())
    }

    /// The program finds what must be there.
    pub(super) fn check(&self, session: &Session, when: &str) -> Result<(), String> {
        let mut all = self.params.iter().enumerate();
        all.try_for_each(|(index, param)| {
            same(&format!("parameter {index} {when}"), &leased(session, index)?, &param.here)
        })
    }

    pub(super) fn check_buffers(&self, buffers: &[Buffer]) -> Result<(), String> {
        let mut all = self.params.iter().zip(buffers).enumerate();
        let checked = all.try_for_each(|(index, (param, buffer))| {
            same(&format!("buffer {index}"), &buffer.to_vec(), &param.here)
        });
        doing(&format!("{} buffers", buffers.len()), checked)
    }

    /// What the program has, for another session.
    pub(super) fn into_contents(self) -> Vec<Vec<u8>> {
        self.params.into_iter().map(|param| param.here).collect()
    }
}
