//! Registered memory, with bytes around that nothing may touch.

use std::ops::Range;

use mrsp::layout::{ALIGNMENT, Placed};
use simnet::Random;
use verbs::{Access, Sge};

use crate::node::Node;

/// Where bytes lie: region of the node, and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionRange {
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl RegionRange {
    pub(super) fn addr(&self, node: &Node) -> u64 {
        node.regions[self.region].va + self.offset as u64
    }

    pub(super) fn rkey(&self, node: &Node) -> u32 {
        node.regions[self.region].keys.rkey
    }

    /// A part of it; `start` is counted from its first byte.
    pub(super) fn part(&self, start: usize, len: usize) -> Self {
        Self { offset: self.offset + start, len, ..*self }
    }

    pub(super) fn sge(&self, node: &Node) -> Sge {
        let lkey = node.regions[self.region].keys.lkey;
        Sge { addr: self.addr(node), length: self.len as u32, lkey }
    }

    /// Changes who may do what with its region.
    pub(super) fn set_access(&self, node: &mut Node, access: Access) -> Result<(), String> {
        let lkey = node.regions[self.region].keys.lkey;
        node.endpoint.set_mr_access(lkey, access).map_err(|e| e.to_string())
    }

    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    pub(super) fn bytes<'a>(&self, node: &'a Node) -> &'a [u8] {
        &node.bytes(self.region)[self.range()]
    }

    pub(super) fn set(&self, node: &mut Node, bytes: &[u8]) {
        node.bytes_mut(self.region)[self.range()].copy_from_slice(bytes);
    }
}

/// Memory of one side that is compared as a whole.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Regions as they were.
    initial: Vec<(usize, Vec<u8>)>,
    /// What lies between parameters that one WRITE may have. Nobody's.
    loose: Vec<RegionRange>,
}

impl Memory {
    /// Room for `len` bytes, in a region that is longer at both ends.
    pub(super) fn add(
        &mut self,
        node: &mut Node,
        random: &mut Random,
        len: usize,
        access: Access,
    ) -> RegionRange {
        let (before, behind) = (random.range(0..=40) as usize, random.range(0..=40) as usize);
        // Regions of no bytes have no guards either.
        let mut image = vec![0; (before + len + behind).max(1)];
        random.fill(&mut image);
        let region = node.register(&image, access);
        self.initial.push((region, image));
        RegionRange { region, offset: before.min(before + len), len }
    }

    pub(super) fn loosen(&mut self, location: RegionRange) {
        self.loose.push(location);
    }

    /// All regions are as they were, but for what must be there now.
    pub(super) fn check<'a>(
        &self,
        node: &Node,
        expected: impl Iterator<Item = (RegionRange, &'a [u8])> + Clone,
    ) -> Result<(), String> {
        for (region, image) in &self.initial {
            let mut image = image.clone();
            for location in self.loose.iter().filter(|location| location.region == *region) {
                image[location.range()].copy_from_slice(location.bytes(node));
            }
            for (location, bytes) in expected.clone().filter(|(location, _)| location.region == *region) {
                image[location.range()].copy_from_slice(bytes);
            }
            let found = node.bytes(*region);
            if let Some(at) = found.iter().zip(&image).position(|(a, b)| a != b) {
                return Err(format!(
                    "byte {at} of region {region} is {:#x} instead of {:#x}",
                    found[at], image[at]
                ));
            }
        }
        Ok(())
    }
}

/// What lies between parameters next to each other, of those that `may` be in one WRITE: region and range.
pub(super) fn gaps(placed: &Placed, sizes: &[u32], may: impl Fn(usize) -> bool) -> Vec<(u8, Range<u32>)> {
    let mut order: Vec<_> = (0..sizes.len()).filter(|&param| sizes[param] > 0 && may(param)).collect();
    order.sort_by_key(|&param| (placed.places[param].region, placed.places[param].offset));
    let gap = |pair: &[usize]| {
        let [before, next] = [pair[0], pair[1]].map(|param| placed.places[param]);
        let gap = before.offset + sizes[pair[0]]..next.offset;
        (before.region == next.region && gap.len() < ALIGNMENT as usize).then_some((before.region, gap))
    };
    order.windows(2).filter_map(gap).collect()
}
