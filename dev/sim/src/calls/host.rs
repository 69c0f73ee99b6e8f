//! The host: agrees on regions as the host library does, calls, and compares.

use mrsp::{
    Abilities, AnnouncedParam, CallPlan, ErrorCode, FunctionCode, HostSession, Layout, RegionFlags,
    host::{HostConfig, PeerError, SetupError},
    immediate::CallResponse,
    layout::{self, Placed},
    plan::WriteElement,
    region::HOST_MESSAGE_BYTES,
};
use simnet::Random;
use verbs::{Access, Wc, WcOpcode};

use super::{
    super::node::Node,
    draw::{Landing, Talk},
    memory::{Memory, RegionRange, gaps},
    model::Model,
    port::{LAST, Port},
};

pub(super) const FUNCTION: FunctionCode = FunctionCode::constant(100);

#[derive(Debug)]
pub(super) struct Host {
    pub(super) port: Port,
    random: Random,
    inbox: RegionRange,
    outbox: RegionRange,
    memory: Memory,
    /// The memory of each parameter.
    locations: Vec<RegionRange>,
    staging: Option<RegionRange>,
    /// The layout of the parameters; `None` for the symmetric layout.
    placed: Option<Placed>,
    /// The state machine of the session; `None` until connected.
    machine: Option<HostSession>,
    plan: CallPlan,
    /// The accelerator must refuse.
    must_fail: bool,
    called: bool,
    /// The number of calls that were posted.
    pub(super) posted: usize,
    written: bool,
    answered: bool,
    pub(super) over: bool,
    /// What the program wrote to each parameter after it had given its call up.
    kept: Option<Vec<Vec<u8>>>,
}

impl Host {
    pub(super) fn new(node: &mut Node, mut random: Random) -> Self {
        let mut messages = Memory::default();
        let mut message = || messages.add(node, &mut random, HOST_MESSAGE_BYTES, Access::LOCAL);
        let (inbox, outbox) = (message(), message());
        Self {
            port: Port::default(),
            random,
            inbox,
            outbox,
            memory: Memory::default(),
            locations: Vec::new(),
            staging: None,
            placed: None,
            machine: None,
            plan: CallPlan::default(),
            must_fail: false,
            called: false,
            posted: 0,
            written: false,
            answered: false,
            over: false,
            kept: None,
        }
    }

    /// Asks for regions, with the layout if the accelerator takes it.
    pub(super) fn established(
        &mut self,
        node: &mut Node,
        private_data: &[u8],
        talk: &Talk,
        model: &Model,
    ) -> Result<(), String> {
        if Abilities::decode(private_data) != talk.abilities() {
            return Err(format!("private data changed: {private_data:?}"));
        }
        let wanted = talk.layout != Layout::Symmetric && (talk.is_taken() || talk.heedless);
        self.must_fail = wanted && !talk.is_taken();
        let placed = wanted.then(|| layout::place(talk.layout, &talk.params));
        self.placed = placed.transpose().map_err(|e| e.to_string())?;
        self.settle(node, talk);
        let announced = self.announced(node, model);
        let config = HostConfig { max_regions: talk.max_regions, ..HostConfig::default() };
        let machine = match &self.placed {
            Some(placed) => HostSession::arranged(&config, &announced, &talk.internals, placed),
            None => HostSession::new(&config, &announced, &talk.internals),
        };
        let asked = talk.params.len() + talk.internals.len();
        let mut machine = match machine {
            Err(SetupError::TooManyRegions { .. })
                if self.placed.is_none() && asked > usize::from(talk.max_regions) =>
            {
                self.over = true;
                return Ok(());
            }
            other => other.map_err(|e| e.to_string())?,
        };
        self.plan = CallPlan::default().with_longest_write(talk.longest[0]).with_most_pieces(talk.elements);
        let request = machine.start().map_err(|e| e.to_string())?;
        self.machine = Some(machine);
        self.port.receive(node, self.inbox)?;
        self.port.send(node, self.outbox, &request)
    }

    /// Finds memory for parameters and staging.
    fn settle(&mut self, node: &mut Node, talk: &Talk) {
        let Self { memory, random, placed, .. } = self;
        let sizes: Vec<_> = talk.params.iter().map(|&(_, size)| size).collect();
        let is_output = |param: usize| talk.params[param].0.contains(RegionFlags::OUTPUT);
        self.locations = match (talk.landing, &*placed) {
            (Landing::Alike, Some(placed)) if placed.regions.len() == 1 => {
                let all = memory.add(node, random, placed.regions[0] as usize, Access::REMOTE_WRITE);
                for (_, gap) in gaps(placed, &sizes, is_output) {
                    memory.loosen(all.part(gap.start as usize, gap.len()));
                }
                let places = placed.places.iter().zip(&sizes);
                places.map(|(place, &size)| all.part(place.offset as usize, size as usize)).collect()
            }
            (Landing::Reversed, placed) => reversed(memory, node, random, &sizes, placed.as_ref()),
            _ => {
                let access = Access::REMOTE_WRITE;
                let mut location = |&size: &u32| memory.add(node, random, size as usize, access);
                sizes.iter().map(&mut location).collect()
            }
        };
        let Some(placed) = placed else { return };
        let staging = memory.add(node, random, placed.staging_bytes() as usize, Access::REMOTE_WRITE);
        let is_staged = |param: usize| placed.is_staged(placed.places[param], sizes[param]);
        for (_, gap) in gaps(placed, &sizes, |param| is_output(param) && is_staged(param)) {
            memory.loosen(staging.part(gap.start as usize, gap.len()));
        }
        self.staging = Some(staging);
    }

    /// Where a parameter is copied to, if it is.
    fn staged(&self, param: usize) -> Option<RegionRange> {
        let (placed, staging) = (self.placed.as_ref()?, self.staging?);
        let (place, len) = (placed.places[param], self.locations[param].len);
        placed.is_staged(place, len as u32).then(|| staging.part(place.offset as usize, len))
    }

    fn announced(&self, node: &Node, model: &Model) -> Vec<AnnouncedParam> {
        let param = |(param, both): (usize, &super::model::Both)| {
            let to = self.staged(param).unwrap_or(self.locations[param]);
            let (addr, rkey, size) = (to.addr(node), to.rkey(node), to.len as u64);
            AnnouncedParam { flags: both.flags, addr, rkey, size }
        };
        model.params.iter().enumerate().map(param).collect()
    }

    pub(super) fn step(&mut self, node: &mut Node, talk: &Talk, model: &mut Model) -> Result<(), String> {
        for wc in self.port.completed(node)? {
            match wc.opcode {
                WcOpcode::Recv => self.take_message(node, &wc, talk, model)?,
                WcOpcode::RecvWriteWithImm => self.answered(node, &wc, model)?,
                _ if wc.wr_id == LAST => self.written = true,
                _ => {}
            }
        }
        if self.written && self.answered {
            (self.written, self.answered) = (false, false);
            self.take_back(node, model)?;
            self.call(node, model)?;
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        node: &mut Node,
        wc: &Wc,
        talk: &Talk,
        model: &mut Model,
    ) -> Result<(), String> {
        let message = self.inbox.part(0, wc.byte_len as usize).bytes(node).to_vec();
        let machine = self.machine.as_mut().ok_or("a message before one was asked for")?;
        match machine.handle_message(&message) {
            Ok(()) if !self.must_fail => {
                self.port.receive(node, self.inbox)?;
                self.call(node, model)
            }
            Err(PeerError::Refused(code)) if self.must_fail => {
                let expected = if talk.slots == 0 { ErrorCode::Address } else { ErrorCode::TooManyRegions };
                self.over = true;
                if code == expected { Ok(()) } else { Err(format!("refused with {code}, not {expected}")) }
            }
            other => Err(format!("agreeing ended with {other:?}")),
        }
    }

    fn call(&mut self, node: &mut Node, model: &mut Model) -> Result<(), String> {
        let Some(parts) = model.call() else {
            self.over = true;
            return Ok(());
        };
        for (param, both) in model.params.iter().enumerate() {
            self.locations[param].set(node, &both.here);
            if let Some(staged) = self.staged(param) {
                staged.set(node, &both.here);
            }
        }
        self.set_access(node, Access::REMOTE_WRITE)?;
        self.posted += 1;
        let machine = self.machine.as_mut().ok_or("no session")?;
        machine.begin_call(FUNCTION, model.user, &parts, &mut self.plan).map_err(|e| e.to_string())?;
        self.called = true;
        let (locations, staging, inline) = (&self.locations, self.staging, self.random.chance(500_000));
        let location = |piece: &WriteElement| {
            let of = locations.get(piece.param).copied().or(staging).expect("a plan is of this session");
            of.part(piece.offset as usize, piece.length as usize)
        };
        self.port.write(node, &self.plan, inline, location)
    }

    fn answered(&mut self, node: &mut Node, wc: &Wc, model: &Model) -> Result<(), String> {
        let machine = self.machine.as_mut().ok_or("an answer without a session")?;
        let immediate = wc.imm.ok_or("an answer without immediate")?;
        let outcome = machine.handle_response(immediate, wc.byte_len).map_err(|e| e.to_string())?;
        if outcome.answer != model.failure.map_or(CallResponse::Success, CallResponse::Failure) {
            return Err(format!("told {outcome:?}, not {:?}", model.failure));
        }
        self.answered = true;
        self.port.receive(node, self.inbox)
    }

    /// The program has given its call up, and has its memory again: it writes something else there, which must stay. The
    /// queue pair is destroyed.
    pub(super) fn give_up(&mut self, node: &mut Node) -> Result<(), String> {
        self.set_access(node, Access::LOCAL)?;
        let mut kept = Vec::new();
        for param in 0..self.locations.len() {
            let mut bytes = vec![0; self.locations[param].len];
            self.random.fill(&mut bytes);
            self.locations[param].set(node, &bytes);
            if let Some(staged) = self.staged(param) {
                staged.set(node, &bytes);
            }
            kept.push(bytes);
        }
        self.over = true;
        self.kept = Some(kept);
        Ok(())
    }

    /// The program has its memory again, and looks at it.
    fn take_back(&mut self, node: &mut Node, model: &Model) -> Result<(), String> {
        self.set_access(node, Access::LOCAL)?;
        for (param, both) in model.params.iter().enumerate() {
            if let Some(staged) = self.staged(param).filter(|_| both.is_output()) {
                let results = staged.bytes(node).to_vec();
                self.locations[param].set(node, &results);
            }
        }
        self.check(node, model)
    }

    fn set_access(&self, node: &mut Node, access: Access) -> Result<(), String> {
        let mut locations = self.locations.iter().chain(&self.staging);
        locations.try_for_each(|location| location.set_access(node, access))
    }

    fn check(&self, node: &Node, model: &Model) -> Result<(), String> {
        self.compare(node, &model.params.iter().map(|both| &both.here[..]).collect::<Vec<_>>())
    }

    fn compare(&self, node: &Node, expected: &[&[u8]]) -> Result<(), String> {
        let locations = self.locations.iter().zip(expected).map(|(&location, bytes)| (location, *bytes));
        let all = expected.iter().enumerate();
        let staged = all.filter_map(|(param, bytes)| Some((self.staged(param)?, *bytes)));
        self.memory.check(node, locations.chain(staged)).map_err(|why| format!("host: {why}"))
    }

    pub(super) fn finish(&self, node: &Node, model: &Model) -> Result<(), String> {
        match &self.kept {
            Some(kept) => self.compare(node, &kept.iter().map(|bytes| &bytes[..]).collect::<Vec<_>>()),
            None if self.called => self.check(node, model),
            None => Ok(()),
        }
    }
}

/// All in one region, the other way round than on the accelerator.
fn reversed(
    memory: &mut Memory,
    node: &mut Node,
    random: &mut Random,
    sizes: &[u32],
    placed: Option<&Placed>,
) -> Vec<RegionRange> {
    let gap = random.range(0..=70) as usize;
    let mut end = sizes.iter().map(|&size| size as usize + gap).sum();
    let all = memory.add(node, random, end, Access::REMOTE_WRITE);
    let mut locations = vec![all; sizes.len()];
    let mut order: Vec<_> = (0..sizes.len()).collect();
    order.sort_by_key(|&param| {
        placed.map(|placed| (placed.places[param].region, placed.places[param].offset))
    });
    for param in order {
        end -= sizes[param] as usize + gap;
        locations[param] = all.part(end, sizes[param] as usize);
    }
    locations
}
