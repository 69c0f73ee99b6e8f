//! What the server and a child say to each other: one message per datagram of a SOCK_SEQPACKET pair, always a request
//! and its reply. Both ends are one binary, so numbers are in native order and there is no version.
//!
//! ```text
//! Load  1 | path of a library                                Table  1 | its catalogue
//! Map   2 | region (offset u64, size u64, direction u8) …, with files    Mapped 2
//! Call  3 | sequence u64 | user u32 | code u8                Done   3 | sequence u64 | code i32 | n u32 | n produced u64 | text
//!                                                            Error  4 | text
//! ```

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use mrsp::catalogue::Direction;

/// The most bytes of a message.
pub(crate) const MOST_BYTES: usize = 64 << 10;
/// The most bytes of a text.
pub(crate) const MOST_TEXT: usize = 512;
/// The most regions per Map; the Linux kernel passes on 253 files at once at most.
pub(crate) const MOST_FILES: usize = 64;

const LOAD: u8 = 1;
const MAP: u8 = 2;
const CALL: u8 = 3;
const ERROR: u8 = 4;

/// The directions by their numbers, here and in naa_kernel.h.
pub(crate) const DIRECTIONS: [Direction; 4] =
    [Direction::Input, Direction::Output, Direction::InOut, Direction::Internal];

/// A region as the child gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The offset of the region in its file, in bytes.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) direction: Direction,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildRequest<'a> {
    Load(&'a Path),
    Map(Vec<Mapped>),
    Call { sequence: u64, user: u32, code: u8 },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildReply<'a> {
    /// Bytes of a catalogue.
    Table(&'a [u8]),
    Mapped,
    Done {
        sequence: u64,
        code: i32,
        produced: Vec<u64>,
        text: &'a [u8],
    },
    Error(&'a [u8]),
}

impl ChildRequest<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Load(path) => {
                out.push(LOAD);
                out.extend(path.as_os_str().as_bytes());
            }
            Self::Map(regions) => {
                out.push(MAP);
                for region in regions {
                    out.extend(region.offset.to_ne_bytes());
                    out.extend(region.size.to_ne_bytes());
                    out.push(region.direction as u8);
                }
            }
            Self::Call { sequence, user, code } => {
                out.push(CALL);
                out.extend(sequence.to_ne_bytes());
                out.extend(user.to_ne_bytes());
                out.push(*code);
            }
        }
    }
}

impl<'a> ChildRequest<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&tag, mut rest) = bytes.split_first()?;
        match tag {
            LOAD => Some(Self::Load(Path::new(OsStr::from_bytes(rest)))),
            MAP => {
                let mut regions = Vec::new();
                while !rest.is_empty() {
                    let offset = u64::from_ne_bytes(take(&mut rest)?);
                    let size = u64::from_ne_bytes(take(&mut rest)?);
                    let [direction] = take(&mut rest)?;
                    let direction = *DIRECTIONS.get(usize::from(direction))?;
                    regions.push(Mapped { offset, size, direction });
                }
                Some(Self::Map(regions))
            }
            CALL => {
                let sequence = u64::from_ne_bytes(take(&mut rest)?);
                let user = u32::from_ne_bytes(take(&mut rest)?);
                let [code] = take(&mut rest)?;
                rest.is_empty().then_some(Self::Call { sequence, user, code })
            }
            _ => None,
        }
    }
}

impl ChildReply<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Table(bytes) => {
                out.push(LOAD);
                out.extend(*bytes);
            }
            Self::Mapped => out.push(MAP),
            Self::Done { sequence, code, produced, text } => {
                encode_done(out, *sequence, *code, produced.iter().copied(), text);
            }
            Self::Error(text) => {
                out.push(ERROR);
                out.extend(*text);
            }
        }
    }
}

/// [`ChildReply::Done`] of a call that should allocate nothing.
pub(crate) fn encode_done(
    out: &mut Vec<u8>,
    sequence: u64,
    code: i32,
    produced: impl ExactSizeIterator<Item = u64>,
    text: &[u8],
) {
    out.clear();
    out.push(CALL);
    out.extend(sequence.to_ne_bytes());
    out.extend(code.to_ne_bytes());
    out.extend((produced.len() as u32).to_ne_bytes());
    produced.for_each(|bytes| out.extend(bytes.to_ne_bytes()));
    out.extend(text);
}

impl<'a> ChildReply<'a> {
    /// `None` for what no child of this binary says.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&tag, mut rest) = bytes.split_first()?;
        match tag {
            LOAD => Some(Self::Table(rest)),
            MAP => rest.is_empty().then_some(Self::Mapped),
            CALL => {
                let sequence = u64::from_ne_bytes(take(&mut rest)?);
                let code = i32::from_ne_bytes(take(&mut rest)?);
                let count = u32::from_ne_bytes(take(&mut rest)?) as usize;
                let (numbers, text) = rest.split_at_checked(count.checked_mul(8)?)?;
                let (numbers, _) = numbers.as_chunks();
                let produced = numbers.iter().map(|number| u64::from_ne_bytes(*number)).collect();
                (text.len() <= MOST_TEXT).then_some(Self::Done { sequence, code, produced, text })
            }
            ERROR => (rest.len() <= MOST_TEXT).then_some(Self::Error(rest)),
            _ => None,
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// A child's text for people: no control characters, whatever it wrote.
pub(crate) fn printable(text: &[u8]) -> String {
    let text = &text[..text.len().min(MOST_TEXT)];
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// As much of `text` as a message holds.
pub(crate) fn clipped(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MOST_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let regions = vec![
            Mapped { offset: 64, size: 5, direction: Direction::InOut },
            Mapped { offset: 0, size: 0, direction: Direction::Internal },
        ];
        for request in [
            ChildRequest::Load(Path::new("/a/b.so")),
            ChildRequest::Map(regions),
            ChildRequest::Call { sequence: 7, user: 0xff_ffff, code: 96 },
        ] {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(ChildRequest::decode(&bytes), Some(request));
        }
        for reply in [
            ChildReply::Table(b"table"),
            ChildReply::Mapped,
            ChildReply::Done { sequence: 7, code: -1, produced: vec![1, u64::MAX], text: b"why" },
            ChildReply::Error(b"no"),
        ] {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            assert_eq!(ChildReply::decode(&bytes), Some(reply));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut done = vec![CALL];
        done.extend([0; 12]);
        done.extend(u32::MAX.to_ne_bytes());
        done.extend([0; 64]);
        assert_eq!(ChildReply::decode(&done), None, "claims more numbers than it has");
        let long = [&[ERROR][..], &[b'x'; MOST_TEXT + 1]].concat();
        for bytes in [&[][..], &[0], &[9, 1], &[MAP, 1], &[CALL, 1, 2], &long] {
            assert_eq!(ChildReply::decode(bytes), None, "{bytes:?}");
        }
        assert_eq!(printable(b"a\x1b[2J\n\xff"), "a [2J \u{fffd}");
        assert_eq!(clipped(&"\u{e4}".repeat(MOST_TEXT)).len(), MOST_TEXT);
    }
}
