//! The accelerator: grants regions as the server does, finds inputs, writes results.

use mrsp::{
    AcceleratorSession, CallPlan, RegionFlags, accelerator::RegionAddress, layout::ParamLocation,
    plan::WriteElement, region::HOST_MESSAGE_BYTES,
};
use simnet::Random;
use verbs::{Access, Wc, WcOpcode};

use super::{
    super::{node::Node, plan::US},
    draw::Talk,
    host::FUNCTION,
    memory::{Memory, RegionRange, gaps},
    model::{Model, ModelResponse},
    port::{LAST, Port},
};

#[derive(Debug)]
pub(super) struct Accelerator {
    pub(super) port: Port,
    random: Random,
    machine: AcceleratorSession,
    inbox: RegionRange,
    outbox: RegionRange,
    memory: Memory,
    /// Regions that are not internal.
    shared: Vec<RegionRange>,
    /// The memory of each parameter.
    locations: Vec<RegionRange>,
    plan: CallPlan,
    /// The last answer is not acknowledged; a call waits until it is.
    sending: bool,
    waiting: Option<u32>,
    /// When the function ends, and how.
    due: Option<(u64, ModelResponse)>,
}

impl Accelerator {
    pub(super) fn new(talk: &Talk, node: &mut Node, mut random: Random) -> Self {
        let mut messages = Memory::default();
        let mut message = || messages.add(node, &mut random, HOST_MESSAGE_BYTES, Access::LOCAL);
        let (inbox, outbox) = (message(), message());
        let port = Port::default();
        port.receive(node, inbox).expect("a fresh queue takes a receive");
        Self {
            port,
            random,
            machine: AcceleratorSession::new(talk.limits()),
            inbox,
            outbox,
            memory: Memory::default(),
            shared: Vec::new(),
            locations: Vec::new(),
            plan: CallPlan::default().with_longest_write(talk.longest[1]),
            sending: false,
            waiting: None,
            due: None,
        }
    }

    pub(super) fn wake(&self) -> Option<u64> {
        self.due.as_ref().map(|(at, _)| *at)
    }

    pub(super) fn step(
        &mut self,
        now: u64,
        node: &mut Node,
        talk: &Talk,
        model: &mut Model,
    ) -> Result<(), String> {
        for wc in self.port.completed(node)? {
            match wc.opcode {
                WcOpcode::Recv => self.asked(node, &wc, talk, model)?,
                WcOpcode::RecvWriteWithImm => self.waiting = wc.imm,
                _ if wc.wr_id == LAST => self.sending = false,
                _ => {}
            }
        }
        if let Some(immediate) = self.waiting.filter(|_| !self.sending) {
            self.waiting = None;
            self.called(now, node, immediate, model)?;
        }
        if let Some((_, response)) = self.due.take_if(|(at, _)| *at <= now) {
            self.answer(node, &response)?;
        }
        Ok(())
    }

    fn asked(&mut self, node: &mut Node, wc: &Wc, talk: &Talk, model: &Model) -> Result<(), String> {
        let message = self.inbox.part(0, wc.byte_len as usize).bytes(node).to_vec();
        let regions = match self.machine.handle_message(&message) {
            Ok(regions) => regions.to_vec(),
            Err(rejection) => {
                let reply = rejection.reply().ok_or("a rejection without a reply")?;
                return self.port.send(node, self.outbox, &reply);
            }
        };
        let mut all = Vec::new();
        for region in &regions {
            let access = if region.is_internal() { Access::LOCAL } else { Access::REMOTE_WRITE };
            all.push(self.memory.add(node, &mut self.random, region.host.size as usize, access));
        }
        let numbered = all.iter().zip(&regions).filter(|(_, region)| !region.is_internal());
        self.shared = numbered.map(|(&location, _)| location).collect();
        let region_address =
            |range: &RegionRange| RegionAddress { addr: range.addr(node), rkey: range.rkey(node) };
        let addresses: Vec<_> = self.shared.iter().map(region_address).collect();
        let answer = self.machine.allocated(&addresses).map_err(|e| e.to_string())?;
        self.find(node, &all, talk, model);
        self.port.receive(node, self.inbox)?;
        self.port.send(node, self.outbox, &answer)
    }

    /// Where the parameters lie, and what they hold before the first call.
    fn find(&mut self, node: &mut Node, regions: &[RegionRange], talk: &Talk, model: &Model) {
        let sizes: Vec<_> = talk.params.iter().map(|&(_, size)| size).collect();
        self.locations = match self.machine.places() {
            None => self.shared.clone(),
            Some(places) => {
                let places: Vec<_> = places.collect();
                let location = |(place, &size): (&ParamLocation, &u32)| {
                    regions[usize::from(place.region)].part(place.offset as usize, size as usize)
                };
                let locations = places.iter().zip(&sizes).map(location).collect();
                let placed =
                    mrsp::layout::Placed { layout: talk.layout, regions: Vec::new(), places, staged: 0 };
                let sent = RegionFlags::INPUT | RegionFlags::SINGLE_SEND;
                for (region, gap) in gaps(&placed, &sizes, |param| talk.params[param].0.intersects(sent)) {
                    self.memory.loosen(regions[usize::from(region)].part(gap.start as usize, gap.len()));
                }
                locations
            }
        };
        for (location, both) in self.locations.iter().zip(&model.params) {
            location.set(node, &both.there);
        }
    }

    /// The inputs are there, so the function begins; its results are there at once, and are told later.
    fn called(&mut self, now: u64, node: &mut Node, immediate: u32, model: &mut Model) -> Result<(), String> {
        let call = self.machine.handle_request(immediate).map_err(|e| e.to_string())?;
        if (call.function, call.user) != (Some(FUNCTION), model.user) {
            return Err(format!("the call is {call:?}"));
        }
        self.set_access(node, Access::LOCAL)?;
        self.check(node, model)?;
        let response = model.answer();
        for (location, both) in self.locations.iter().zip(&model.params) {
            location.set(node, &both.there);
        }
        self.due = Some((now + self.random.pick(&[0, US, 300 * US]), response));
        Ok(())
    }

    fn answer(&mut self, node: &mut Node, response: &ModelResponse) -> Result<(), String> {
        let result = response.result.as_deref().map_err(|code| *code);
        self.machine.respond(result, response.status_bytes, &mut self.plan).map_err(|e| e.to_string())?;
        self.set_access(node, Access::REMOTE_WRITE)?;
        self.port.receive(node, self.inbox)?;
        self.sending = true;
        let locations = &self.locations;
        // It may go on into what lies behind.
        let location =
            |piece: &WriteElement| locations[piece.param].part(piece.offset as usize, piece.length as usize);
        self.port.write(node, &self.plan, false, location)
    }

    fn set_access(&self, node: &mut Node, access: Access) -> Result<(), String> {
        self.shared.iter().try_for_each(|location| location.set_access(node, access))
    }

    fn check(&self, node: &Node, model: &Model) -> Result<(), String> {
        let params = self.locations.iter().zip(&model.params);
        let expected = params.map(|(&location, both)| (location, &both.there[..]));
        self.memory.check(node, expected).map_err(|why| format!("accelerator: {why}"))
    }

    pub(super) fn finish(&self, node: &Node, model: &Model) -> Result<(), String> {
        if self.locations.is_empty() { Ok(()) } else { self.check(node, model) }
    }
}
