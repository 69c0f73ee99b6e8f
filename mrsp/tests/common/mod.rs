//! Helpers for the tests: random numbers from a printed seed, and both sides of a session with the memory of each side.
#![allow(dead_code)]

use mrsp::{
    AcceleratorSession, AnnouncedParam, CallPlan, FunctionCode, HostSession, RegionFlags, RegionRequest,
    RemoteRegion, ReturnCode, U24,
    accelerator::{RegionAddress, SessionLimits},
    host::{HostConfig, ReceivedResponse},
    immediate::CallRequest,
    plan::Part,
};

/// A generator of random numbers by the algorithm xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator and prints its seed, so that the output of a failed test contains the seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        println!("seed {seed:#x}");
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns a random number with a random number of bits.
    pub(crate) fn any(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    /// Changes at most four of the bytes at random, and sometimes removes bytes from the end or appends random bytes.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if !bytes.is_empty() {
                let at = self.below(bytes.len() as u64) as usize;
                bytes[at] = if self.chance(2) { self.next() as u8 } else { bytes[at] ^ 1 << self.below(8) };
            }
        }
        if self.chance(4) {
            bytes.truncate(self.below(bytes.len() as u64 + 1) as usize);
        }
        if self.chance(8) {
            let len = self.below(30) as usize;
            bytes.extend(self.bytes(len));
        }
    }
}

pub(crate) const NONE: RegionFlags = RegionFlags::NONE;
pub(crate) const IN: RegionFlags = RegionFlags::INPUT;
pub(crate) const OUT: RegionFlags = RegionFlags::OUTPUT;
pub(crate) const IN_OUT: RegionFlags = IN.union(OUT);
pub(crate) const ONCE: RegionFlags = RegionFlags::SINGLE_SEND;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub(crate) fn code(code: u8) -> FunctionCode {
    FunctionCode::new(code).unwrap()
}

pub(crate) fn user(bits: u32) -> U24 {
    U24::new(bits).unwrap()
}

/// Returns the description of a host's parameter. Its address and RKey depend on `index`.
pub(crate) fn param(index: usize, flags: RegionFlags, size: u64) -> AnnouncedParam {
    let addr = 0x1_0000_0000 * (index as u64 + 1);
    AnnouncedParam { flags, addr, rkey: 100 + index as u32, size }
}

/// Returns the address and the RKey of the accelerator's region for parameter number `index`. Both depend on `index`.
pub(crate) fn region_address(index: usize) -> RegionAddress {
    RegionAddress { addr: 0x7000_0000_0000 + 0x1_0000_0000 * index as u64, rkey: 500 + index as u32 }
}

/// Grants all regions that the AAR requests, and returns the advertisement.
pub(crate) fn grant(naa: &mut AcceleratorSession, aar: &[u8]) -> Vec<u8> {
    let params = naa.handle_message(aar).unwrap().iter().filter(|region| !region.is_internal()).count();
    naa.allocated(&(0..params).map(region_address).collect::<Vec<_>>()).unwrap()
}

/// Both sides of a session after its setup, with the memory of each side.
pub(crate) struct Pair {
    pub(crate) host: HostSession,
    pub(crate) naa: AcceleratorSession,
    pub(crate) host_memory: Vec<Vec<u8>>,
    pub(crate) naa_memory: Vec<Vec<u8>>,
    pub(crate) plan: CallPlan,
}

impl Pair {
    pub(crate) fn new(params: &[(RegionFlags, u64)], internals: &[u64]) -> Self {
        let list: Vec<_> =
            params.iter().enumerate().map(|(i, &(flags, size))| param(i, flags, size)).collect();
        let mut host = HostSession::new(&HostConfig::default(), &list, internals).unwrap();
        let mut naa = AcceleratorSession::new(SessionLimits::default());
        let advertisement = grant(&mut naa, &host.start().unwrap());
        host.handle_message(&advertisement).unwrap();
        assert!(host.is_ready() && naa.is_ready());
        let memory = || params.iter().map(|&(_, size)| vec![0; size as usize]).collect();
        Self {
            host,
            naa,
            host_memory: memory(),
            naa_memory: memory(),
            plan: CallPlan::with_capacity(params.len()),
        }
    }

    /// Begins a call, carries out its WRITEs, and returns the call that the accelerator decodes.
    pub(crate) fn call(&mut self, function: u8, user: U24, parts: &[Option<Part>]) -> CallRequest {
        self.host.begin_call(code(function), user, parts, &mut self.plan).unwrap();
        let (immediate, _) = {
            let peers = self.host.peer_regions().unwrap();
            carry_out(&self.plan, &self.host_memory, &mut self.naa_memory, peers)
        };
        self.naa.handle_request(immediate).unwrap()
    }

    /// Responds to the call, and carries out the WRITEs of the response.
    pub(crate) fn respond(&mut self, result: Result<&[Option<Part>], ReturnCode>) -> ReceivedResponse {
        self.respond_with(result, 0)
    }

    /// Responds to the call, and carries out the WRITEs of the response. The response to a failed call contains the
    /// first `status_bytes` bytes of the first output.
    pub(crate) fn respond_with(
        &mut self,
        result: Result<&[Option<Part>], ReturnCode>,
        status_bytes: u32,
    ) -> ReceivedResponse {
        self.naa.respond(result, status_bytes, &mut self.plan).unwrap();
        let peers: Vec<_> = self.naa.regions().iter().map(|region: &RegionRequest| region.host).collect();
        let (immediate, bytes) = carry_out(&self.plan, &self.naa_memory, &mut self.host_memory, &peers);
        self.host.handle_response(immediate, bytes).unwrap()
    }

    /// Returns the parameter and the length of each WRITE in the current plan.
    pub(crate) fn lengths(&self) -> Vec<(usize, u32)> {
        self.plan.writes().iter().map(|write| (write.param, write.length)).collect()
    }
}

/// Copies the bytes of all WRITEs of `plan` as an RDMA device would, and checks the RKeys and addresses of the WRITEs.
/// Returns the immediate, and the length of the WRITE that has the immediate.
fn carry_out(
    plan: &CallPlan,
    from: &[Vec<u8>],
    to: &mut [Vec<u8>],
    announced: &[RemoteRegion],
) -> (u32, u32) {
    let (last, before) = plan.writes().split_last().unwrap();
    assert!(before.iter().all(|write| write.immediate.is_none()));
    for write in plan.writes() {
        let target = announced
            .iter()
            .position(|region| region.rkey == write.rkey && region.addr + write.offset == write.remote_addr)
            .expect("writes go to announced regions, to where the bytes are from");
        let (start, len) = (write.offset as usize, write.length as usize);
        to[target][start..start + len].copy_from_slice(&from[write.param][start..start + len]);
    }
    (last.immediate.unwrap(), last.length)
}
