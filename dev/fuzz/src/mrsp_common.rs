//! What the targets of both session machines share.

use mrsp::{
    CallPlan, NaaAddress, RegionFlags, RegionRequest, RemoteRegion, codec,
    host::{AnnouncedParam, HostConfig, HostSession},
    immediate::Dialect,
    plan::Part,
};

use crate::{
    mrsp_layout::{Arranged, arrange, check_host_plan, slot},
    program::Program,
};

/// The longest WRITE in bytes, if WRITEs are to be short.
const LONGEST: u32 = 300;
/// The most elements of the scatter-gather list of a WRITE, if lists are to be short.
const ELEMENTS: u32 = 4;
/// The greatest size in bytes of a parameter or region for which the WRITEs of a call plan may be short.
pub(crate) const SHORT: u64 = 1 << 16;

/// A host's session.
pub(crate) struct Host {
    pub(crate) session: HostSession,
    /// The layout; `None` for the symmetric layout.
    pub(crate) arranged: Option<Arranged>,
    /// Whether WRITEs and scatter-gather lists are short.
    small: bool,
}

impl Host {
    pub(crate) fn plan(&self) -> CallPlan {
        match (self.small, &self.arranged) {
            (true, Some(_)) => {
                CallPlan::default().with_longest_write(LONGEST.into()).with_most_pieces(ELEMENTS)
            }
            (false, Some(_)) => CallPlan::default().with_most_pieces(255),
            (_, None) => CallPlan::default(),
        }
    }

    /// Checks a call plan that this host made for a peer with these regions.
    pub(crate) fn check_plan(&self, plan: &CallPlan, peers: &[RemoteRegion]) {
        match &self.arranged {
            None => check_plan(plan, &sizes(self.session.requests()), peers),
            Some(arranged) => {
                check_immediates(plan);
                let (pieces, longest) = if self.small { (ELEMENTS, LONGEST) } else { (255, u32::MAX) };
                check_host_plan(plan, arranged, peers, pieces as usize, longest);
            }
        }
    }
}

/// A session of what the program says, unless no session can be made of it.
pub(crate) fn host(program: &mut Program<'_>) -> Option<Host> {
    let start = if program.rarely(8) { program.u64() >> 8 } else { 0 };
    let config = HostConfig {
        address_start: NaaAddress::new(start)?,
        max_regions: program.pick(&[31, 255, 3]),
        dialect: program.pick(&[Dialect::Main, Dialect::Next]),
    };
    let mut params: Vec<_> = (0..program.below(8)).map(|i| param(program, i)).collect();
    let internals: Vec<_> = (0..program.below(4)).map(|_| size(program)).collect();
    let arranged = arrange(program, &mut params);
    let session = match &arranged {
        None => HostSession::new(&config, &params, &internals),
        Some(arranged) => HostSession::arranged(&config, &params, &internals, &arranged.placed),
    };
    // Large ones would go in millions.
    let short = params.iter().all(|param| param.size <= SHORT);
    let small = arranged.is_some() && short && program.flag();
    Some(Host { session: session.ok()?, arranged, small })
}

fn param(program: &mut Program<'_>, index: usize) -> AnnouncedParam {
    let flags =
        RegionFlags::from_bits(if program.rarely(16) { program.byte() } else { program.byte() & 0xe });
    let addr = if program.rarely(16) { program.u64() } else { 0x1_0000_0000 * (index as u64 + 1) };
    AnnouncedParam { flags, addr, rkey: 100 + index as u32, size: size(program) }
}

fn size(program: &mut Program<'_>) -> u64 {
    match program.byte() {
        0..200 => program.byte().into(),
        200..250 => program.u32().into(),
        _ => program.u64(),
    }
}

/// An advertisement of arbitrary regions, mostly of what was asked for.
pub(crate) fn advertisement(program: &mut Program<'_>, asked: &[RegionRequest]) -> Vec<u8> {
    let announced: Vec<_> = asked
        .iter()
        .filter(|request| !request.is_internal())
        .enumerate()
        .map(|(index, request)| RemoteRegion {
            addr: if program.rarely(8) { program.u64() } else { 0x7000_0000_0000 },
            rkey: 500 + index as u32,
            size: if program.rarely(8) { program.u32() } else { request.host.size },
        })
        .collect();
    codec::encode_advertisement(&announced).expect("a session has at most 255 regions")
}

/// A request for arbitrary regions.
pub(crate) fn request(program: &mut Program<'_>) -> Vec<u8> {
    let mut region = || RegionRequest {
        flags: RegionFlags::from_bits(if program.rarely(8) { program.byte() } else { program.byte() & 0xe }),
        naa_addr: NaaAddress::truncate(if program.rarely(8) { program.u64() } else { 0 }),
        host: RemoteRegion {
            addr: if program.rarely(8) { program.u64() } else { 0x5000_0000_0000 },
            rkey: 7,
            size: if program.rarely(4) { program.u32() } else { program.byte().into() },
        },
    };
    let mut regions = vec![region()];
    for _ in 0..regions[0].host.size % 6 {
        regions.push(region());
    }
    if !program.flag() {
        return codec::encode_request(&regions).expect("few regions");
    }
    let mut end = 0;
    let slots: Vec<_> = (0..program.below(8)).map(|_| slot(program, &mut end)).collect();
    if !program.rarely(8) {
        regions[0].host.size = regions[0].host.size.max(end);
    }
    codec::encode_arranged(&regions, &slots).expect("few regions")
}

/// Returns arbitrary numbers of bytes for parameters. `None` stands for a whole parameter.
fn lengths(program: &mut Program<'_>) -> Vec<Option<u64>> {
    let mut length = |_| match program.byte() % 4 {
        0 => None,
        1 => Some(program.u64()),
        _ => Some(program.byte().into()),
    };
    let one = length(0);
    (0..one.unwrap_or(0) % 10).map(length).chain([one]).collect()
}

/// Returns arbitrary parts of parameters. Most of them begin at the start of the parameter; `None` stands for a whole
/// parameter.
pub(crate) fn parts(program: &mut Program<'_>) -> Vec<Option<Part>> {
    let lengths = lengths(program);
    let mut part = |bytes| Part { offset: program.byte().saturating_sub(192).into(), bytes };
    lengths.into_iter().map(|bytes| bytes.map(&mut part)).collect()
}

/// Every write starts and ends in its parameter and goes to where the peer announced it; the last one alone has an
/// immediate. `sizes` are the own regions', `peers` the other side's.
pub(crate) fn check_plan(plan: &CallPlan, sizes: &[u32], peers: &[RemoteRegion]) {
    check_immediates(plan);
    for write in plan.writes() {
        let end = write.offset + u64::from(write.length);
        assert!(end <= u64::from(sizes[write.param]), "beyond parameter {}", write.param);
        let peer = &peers[write.param];
        assert_eq!((write.remote_addr, write.rkey), (peer.addr.wrapping_add(write.offset), peer.rkey));
        assert!(end <= peer.size.into());
    }
}

/// Checks that only the last WRITE of the plan has an immediate.
pub(crate) fn check_immediates(plan: &CallPlan) {
    let (last, before) = plan.writes().split_last().expect("a plan has a write");
    assert!(last.immediate.is_some() && before.iter().all(|write| write.immediate.is_none()));
}

/// Sizes of the parameters, or common regions, that a host asked for.
pub(crate) fn sizes(requests: &[RegionRequest]) -> Vec<u32> {
    requests.iter().filter(|r| !r.is_internal()).map(|r| r.host.size).collect()
}
