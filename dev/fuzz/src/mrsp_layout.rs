//! Layouts for the targets of the session machines: drawn, and what must hold of plans under them.

use std::ops::Range;

use mrsp::{
    AcceleratorSession, AnnouncedParam, CallPlan, Layout, RegionFlags, RegionRequest, RemoteRegion, Write,
    layout::{ALIGNMENT, LayoutEntry, ParamLocation, Placed, place},
    plan::WriteElement,
};

use crate::program::Program;

/// Where a host's parameters lie in the accelerator's regions.
#[derive(Debug)]
pub(crate) struct Arranged {
    pub(crate) placed: Placed,
    params: Vec<AnnouncedParam>,
}

/// A layout of `params`, unless it is the symmetric one or there is none. The results may be wanted as they lie there.
pub(crate) fn arrange(program: &mut Program<'_>, params: &mut [AnnouncedParam]) -> Option<Arranged> {
    let layout = match program.byte() % 6 {
        0 | 1 => return None,
        2 => Layout::Asymmetric,
        3 | 4 => Layout::Gathered,
        _ => Layout::Packed { threshold: program.pick(&[0, 64, 255, 4000, 1 << 20]) },
    };
    let sizes: Option<Vec<_>> =
        params.iter().map(|param| Some((param.flags, u32::try_from(param.size).ok()?))).collect();
    let placed = place(layout, &sizes?).ok()?;
    let alike = program.flag();
    for (param, ParamLocation { offset, region }) in params.iter_mut().zip(&placed.places) {
        if alike && *region == 0 {
            (param.addr, param.rkey) = (0x5000_0000_0000 + u64::from(*offset), 99);
        }
    }
    Some(Arranged { placed, params: params.to_vec() })
}

/// A slot of a block, mostly behind the one before, which ends at `end`.
pub(crate) fn slot(program: &mut Program<'_>, end: &mut u32) -> LayoutEntry {
    let offset = if program.rarely(16) { program.u32() } else { end.next_multiple_of(ALIGNMENT) };
    let size = if program.rarely(32) { program.u32() } else { program.byte().into() };
    *end = offset.saturating_add(size).min(1 << 20);
    let addr = if program.rarely(4) { program.u64() } else { 0x5000_0000_0000 + u64::from(offset) };
    let flags = if program.rarely(16) { program.byte() } else { program.byte() & 0xe };
    let region = if program.rarely(16) { program.byte() } else { 0 };
    let host = RemoteRegion { addr, rkey: 7, size };
    LayoutEntry { flags: RegionFlags::from_bits(flags), region, offset, host }
}

/// Every piece of a host's plan lies in what it is taken from, and goes to where that was placed, in regions as they were
/// announced. Nothing is written twice, and nothing over what is no input.
pub(crate) fn check_host_plan(
    plan: &CallPlan,
    arranged: &Arranged,
    peers: &[RemoteRegion],
    most_pieces: usize,
    longest: u32,
) {
    let mut written = Vec::new();
    for write in plan.writes() {
        let gathered = plan.gathered(write);
        assert!(gathered.len() != 1 && gathered.len() <= most_pieces && write.length <= longest);
        // The RKey does not identify the region, because a peer can announce several regions with the same RKey. A WRITE
        // of no bytes goes to the first region, and so does a WRITE from the staging region.
        let place = arranged.placed.places.get(write.param).filter(|_| write.length > 0);
        let region = place.map_or(0, |place| usize::from(place.region));
        assert_eq!(write.rkey, peers[region].rkey);
        let start = write.remote_addr.wrapping_sub(peers[region].addr);
        let end = start + u64::from(write.length);
        assert!(end <= u64::from(arranged.placed.regions[region]), "beyond region {region}");
        if write.length > 0 {
            written.push((region, start..end));
            check_pieces(write, gathered, arranged, (region, start));
        }
    }
    written.sort_by_key(|(region, range)| (*region, range.start));
    for pair in written.windows(2) {
        let [(region, before), (next_region, next)] = pair else { unreachable!("pairs") };
        assert!(region != next_region || before.end <= next.start, "written twice");
    }
    for (param, ParamLocation { region, offset }) in arranged.params.iter().zip(&arranged.placed.places) {
        let own = u64::from(*offset)..u64::from(*offset) + param.size;
        let hit = written.iter().any(|(at, range)| *at == usize::from(*region) && overlap(range, &own));
        let sent = RegionFlags::INPUT | RegionFlags::SINGLE_SEND;
        assert!(!hit || param.flags.intersects(sent), "what is no input is written");
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Each comes from where the bytes of its destination are.
fn check_pieces(
    write: &Write,
    gathered: &[WriteElement],
    arranged: &Arranged,
    (region, start): (usize, u64),
) {
    let all = [WriteElement { param: write.param, offset: write.offset, length: write.length }];
    let pieces = if gathered.is_empty() { &all[..] } else { gathered };
    let mut at = start;
    for WriteElement { param, offset, length } in pieces {
        let end = offset + u64::from(*length);
        if let Some(param) = arranged.params.get(*param).zip(arranged.placed.places.get(*param)) {
            let (AnnouncedParam { size, .. }, place) = param;
            assert!(end <= *size && usize::from(place.region) == region);
            assert_eq!(at, u64::from(place.offset) + offset);
        } else {
            assert_eq!(*param, arranged.params.len());
            assert!(end <= arranged.placed.staging_bytes().into(), "beyond the staging region");
            if *offset < arranged.placed.zeros().into() {
                assert_eq!((region, at), (0, *offset));
                assert!(end <= arranged.placed.staged.into());
            } else {
                assert!(*length < ALIGNMENT, "much lies between");
            }
        }
        at += u64::from(*length);
    }
    assert_eq!(at - start, u64::from(write.length), "pieces are the whole write");
}

/// Every write of an accelerator's plan lies in its region, consists of outputs and of little between them, and each
/// output goes to where the host announced it.
pub(crate) fn check_naa_plan(plan: &CallPlan, session: &AcceleratorSession, regions: &[RegionRequest]) {
    let params = session.regions();
    let places: Vec<_> = session.places().expect("a layout was agreed on").collect();
    for write in plan.writes() {
        assert!(plan.gathered(write).is_empty(), "accelerators gather nothing");
        let ParamLocation { region, offset } = places[write.param];
        let start = u64::from(offset) + write.offset;
        let range = start..start + u64::from(write.length);
        assert!(range.end <= regions[usize::from(region)].host.size.into(), "beyond region {region}");
        let (mut covered, mut last) = (0, start);
        let mut slots: Vec<_> = params.iter().zip(&places).filter(|(_, at)| at.region == region).collect();
        slots.sort_by_key(|(_, at)| at.offset);
        for (RegionRequest { flags, host, .. }, at) in slots {
            let own = u64::from(at.offset)..u64::from(at.offset) + u64::from(host.size);
            if !overlap(&own, &range) {
                continue;
            }
            let from = own.start.max(range.start);
            assert!(flags.contains(RegionFlags::OUTPUT) && write.rkey == host.rkey);
            assert_eq!(write.remote_addr + (from - start), host.addr + (from - own.start));
            assert!(from - last < ALIGNMENT.into(), "much lies between");
            last = own.end.min(range.end);
            covered += last - from;
        }
        assert!(last == range.end && (covered > 0 || write.length == 0), "it ends behind an output");
    }
}
