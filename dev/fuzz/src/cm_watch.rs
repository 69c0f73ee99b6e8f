//! A connection manager with everything it says noted and checked: events come in an order that makes sense, tables
//! and queues stay bounded, timers end.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use roce::{
    Time,
    cm::{Binding, Cm, CmConfig, CmOutput, ConnectArgs, embedded_guid},
    psn::Psn,
    wire::{ROCE_PORT, mad::MAD_LEN},
};
use verbs::{CmEvent, CmId, ConnParam, Error};

use crate::program::{Numbers, Program};

pub(crate) const MAX_CONNECTIONS: usize = 8;
/// One input causes no more datagrams than there are connections, and a few.
const MAX_SENT: usize = 4 * MAX_CONNECTIONS;
/// More than all repetitions of all connections.
const MAX_TIMEOUTS: usize = 5000;

/// How far a connection got, as events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    Established,
    Over,
    Destroyed,
}

pub(crate) struct Watched {
    pub(crate) cm: Cm,
    pub(crate) addr: SocketAddr,
    numbers: Numbers,
    states: BTreeMap<CmId, ConnectionState>,
    bound: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    pub(crate) bindings: Vec<Binding>,
    /// Connections and attempts the application has heard of and not let go.
    pub(crate) ids: Vec<CmId>,
    pub(crate) listeners: Vec<CmId>,
    pub(crate) sent: Vec<(SocketAddr, [u8; MAD_LEN])>,
    next_qpn: u32,
}

impl Watched {
    pub(crate) fn new(number: u8, embedded: bool) -> Self {
        let guid = if embedded { embedded_guid(number.into()) } else { 0x1234_0000 + u64::from(number) };
        let config = CmConfig {
            max_connections: MAX_CONNECTIONS,
            max_half_open: 4,
            max_lingering: 4,
            ..CmConfig::new(guid, 1024)
        };
        Self {
            cm: Cm::new(config),
            addr: ([10, 0, 0, number], ROCE_PORT).into(),
            numbers: Numbers::new(number.into()),
            states: BTreeMap::new(),
            bound: BTreeSet::new(),
            failed: BTreeSet::new(),
            bindings: Vec::new(),
            ids: Vec::new(),
            listeners: Vec::new(),
            sent: Vec::new(),
            next_qpn: 0x100 * u32::from(number),
        }
    }

    pub(crate) fn handle(&mut self, now: Time, from: SocketAddr, mad: &[u8; MAD_LEN]) {
        // A refused message is a part of the test.
        let _ = self.cm.handle_mad(now, from, self.addr.ip(), mad, &mut self.numbers);
        self.settle();
    }

    /// What an application may ask for at any time.
    pub(crate) fn ask(&mut self, now: Time, program: &mut Program<'_>, peer: SocketAddr) {
        match program.byte() % 8 {
            0 => self.connect(now, program, peer),
            1 | 2 => self.accept(now, program),
            3 => self.with_id(program, |cm, id| cm.reject(now, id, &[7; 9])),
            4 => self.with_id(program, |cm, id| cm.disconnect(now, id)),
            5 => self.destroy(now, program),
            6 => self.listen(program),
            _ => {
                let bound = self.bound.iter().copied().collect::<Vec<_>>();
                if !bound.is_empty() {
                    self.cm.data_arrived(program.pick(&bound));
                }
            }
        }
        self.settle();
    }

    fn id(&self, program: &mut Program<'_>) -> CmId {
        if self.ids.is_empty() || program.rarely(16) {
            return CmId(program.byte().into());
        }
        program.pick(&self.ids)
    }

    fn with_id(&mut self, program: &mut Program<'_>, call: impl FnOnce(&mut Cm, CmId) -> Result<(), Error>) {
        let id = self.id(program);
        let _ = call(&mut self.cm, id);
    }

    fn qpn(&mut self) -> u32 {
        self.next_qpn += 1;
        self.next_qpn
    }

    pub(crate) fn listen(&mut self, program: &mut Program<'_>) {
        let port = u16::from(program.byte() % 3);
        if self.listeners.len() < 3
            && let Ok((id, _)) = self.cm.listen(port, program.byte().into(), &mut self.numbers)
        {
            self.listeners.push(id);
        }
    }

    fn connect(&mut self, now: Time, program: &mut Program<'_>, peer: SocketAddr) {
        let param = param(program);
        let mut remote = peer;
        remote.set_port(u16::from(program.byte() % 3));
        let args = ConnectArgs {
            local: self.addr.ip(),
            remote,
            peer,
            qpn: self.qpn(),
            starting_psn: Psn::new(program.u32()),
            path_mtu: program.pick(&[1024, 256, 4096, 7]),
            param: &param,
        };
        if let Ok(id) = self.cm.connect(now, args, &mut self.numbers) {
            self.ids.push(id);
            assert_eq!(self.states.insert(id, ConnectionState::Open), None, "IDs are new");
        }
    }

    fn accept(&mut self, now: Time, program: &mut Program<'_>) {
        let (id, qpn, psn) = (self.id(program), self.qpn(), Psn::new(program.u32()));
        let _ = self.cm.accept(now, id, qpn, psn, &param(program));
    }

    fn destroy(&mut self, now: Time, program: &mut Program<'_>) {
        if !self.listeners.is_empty() && program.rarely(8) {
            let at = program.below(self.listeners.len());
            let listener = self.listeners.swap_remove(at);
            self.cm.destroy(now, listener).expect("it listens");
            return;
        }
        let id = self.id(program);
        self.destroy_one(now, id);
    }

    fn destroy_one(&mut self, now: Time, id: CmId) {
        if self.listeners.contains(&id) {
            return;
        }
        if self.cm.destroy(now, id).is_ok() {
            self.ids.retain(|other| *other != id);
            self.states.insert(id, ConnectionState::Destroyed);
        }
    }

    /// Takes everything out and checks it.
    fn settle(&mut self) {
        let before = self.sent.len();
        while let Some(datagram) = self.cm.poll_transmit() {
            self.sent.push(datagram);
            assert!(self.sent.len() - before <= MAX_SENT, "one input causes many datagrams");
        }
        while let Some(output) = self.cm.poll_output() {
            match output {
                CmOutput::Event(event) => self.event(&event),
                CmOutput::Bind(binding) => {
                    assert!(self.bound.insert(binding.qpn), "a queue pair is bound once");
                    self.bindings.push(binding);
                }
                CmOutput::FailQp { qpn } => {
                    assert!(self.bound.contains(&qpn), "never bound");
                    self.failed.insert(qpn);
                }
                CmOutput::Withdrawn { id } => {
                    let state = self.states.get(&id);
                    assert_eq!(state, Some(&ConnectionState::Open), "a request that was answered");
                }
            }
        }
        for binding in &self.bindings {
            let state = self.states.get(&binding.id);
            let over = matches!(state, Some(ConnectionState::Over | ConnectionState::Destroyed));
            assert!(!over || self.failed.contains(&binding.qpn), "a queue pair outlives its connection");
        }
        let live = self.states.keys().filter(|id| self.cm.endpoints(**id).is_some()).count();
        assert!(live <= MAX_CONNECTIONS, "{live} connections");
    }

    fn event(&mut self, event: &CmEvent) {
        let id = event.id();
        let (from, to): (&[ConnectionState], _) = match event {
            CmEvent::ConnectRequest { listener, .. } => {
                assert!(self.listeners.contains(listener), "nobody listens");
                self.ids.push(id);
                (&[], ConnectionState::Open)
            }
            CmEvent::Established { .. } => {
                assert!(self.bindings.iter().any(|binding| binding.id == id), "not bound");
                (&[ConnectionState::Open], ConnectionState::Established)
            }
            CmEvent::Disconnected { .. } => {
                (&[ConnectionState::Open, ConnectionState::Established], ConnectionState::Over)
            }
            _ => (&[ConnectionState::Open], ConnectionState::Over),
        };
        let state = self.states.insert(id, to);
        assert!(state.map_or(from.is_empty(), |state| from.contains(&state)), "{event:?} after {state:?}");
    }

    /// Lets time pass.
    pub(crate) fn expire(&mut self, now: Time) {
        self.cm.handle_timeout(now);
        assert!(self.cm.poll_timeout().is_none_or(|at| at > now), "a timer that is due again at once");
        self.settle();
    }

    /// Lets go of everything; nothing must be left when all time-outs have passed.
    pub(crate) fn wind_up(&mut self, mut now: Time) {
        for id in std::mem::take(&mut self.ids) {
            self.destroy_one(now, id);
            self.settle();
        }
        // Requests the application has not let go of by name are refused or were forgotten already.
        for _ in 0..MAX_TIMEOUTS {
            let Some(at) = self.cm.poll_timeout() else { break };
            now = now.max(at);
            self.expire(now);
        }
        assert_eq!(self.cm.poll_timeout(), None, "timers never end");
        let left: Vec<_> = self.states.keys().filter(|id| self.cm.endpoints(**id).is_some()).collect();
        assert!(left.is_empty(), "connections {left:?} are left");
    }
}

fn param(program: &mut Program<'_>) -> ConnParam {
    let mut code = |usual: u8| if program.rarely(16) { program.byte() } else { usual };
    let private = code(5);
    ConnParam {
        responder_resources: code(16),
        initiator_depth: code(4),
        retry_count: code(7),
        rnr_retry_count: code(7),
        ack_timeout: Some(code(17)),
        connect_timeout: Some(Duration::from_millis(u64::from(code(20)) * 100)),
        private_data: vec![3; private.into()],
    }
}
