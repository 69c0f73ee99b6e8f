//! A second opinion: opcode, PSN and length of every packet as tshark reads them.

use super::packet::Packet;
use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{collections::BTreeMap, path::Path, process::Command};

/// Opcode, PSN, and length of the UDP datagram.
type Fields = (u8, u32, usize);

/// How many packets were compared, and the frames that tshark reads otherwise.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) packets: usize,
    pub(crate) differ: Vec<(usize, String)>,
}

/// What we read, by frame number.
#[derive(Debug, Default)]
pub(super) struct Ours(BTreeMap<usize, Fields>);

impl Ours {
    pub(super) fn note(&mut self, frame: usize, packet: &Packet<'_>, udp_len: usize) {
        if !packet.is_empty_send() {
            self.0.insert(frame, (packet.opcode, packet.psn, udp_len));
        }
    }

    /// `None` without tshark.
    pub(super) fn compare(&self, path: &Path) -> Result<Option<Compared>> {
        if !repo::has_program("tshark") {
            return Ok(None);
        }
        let fields = ["frame.number", "infiniband.bth.opcode", "infiniband.bth.psn", "udp.length"];
        let output = Command::new("tshark")
            .args(["-n", "-T", "fields", "-E", "separator=,", "-E", "occurrence=f", "-r"])
            .arg(path)
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .output()
            .context("cannot run tshark")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tshark: {}", said.trim());
        let theirs = String::from_utf8_lossy(&output.stdout);
        let theirs: BTreeMap<_, _> = theirs.lines().filter_map(line).collect();
        let differ = |(frame, ours): (&usize, &Fields)| {
            let theirs = theirs.get(frame);
            let told = theirs.map_or("no RoCE packet".to_owned(), |theirs| format!("{theirs:?}"));
            (theirs != Some(ours)).then(|| (*frame, format!("{ours:?}, by tshark {told}")))
        };
        let differ = self.0.iter().filter_map(differ).collect();
        Ok(Some(Compared { packets: self.0.len(), differ }))
    }
}

fn line(line: &str) -> Option<(usize, Fields)> {
    let mut cells = line.split(',');
    let frame = cells.next()?.parse().ok()?;
    let opcode = number(cells.next()?)?;
    let psn = number(cells.next()?)?;
    Some((frame, (u8::try_from(opcode).ok()?, psn, cells.next()?.parse().ok()?)))
}

/// Decimal or hexadecimal, as versions of tshark differ.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
