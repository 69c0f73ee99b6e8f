//! Two connection managers over a network that loses, repeats and delays as the bytes say: what both sides bind to
//! each other agrees, and in the end nothing is left.

use std::{collections::BTreeMap, time::Duration};

use roce::{Time, cm::Binding, wire::mad::MAD_LEN};

use crate::{cm_watch::Watched, program::Program};

const MAX_STEPS: usize = 300;
const HOP: Duration = Duration::from_millis(1);
const END: Time = Time(u64::MAX);

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let embedded = program.byte();
    let mut net = Net {
        sides: [Watched::new(1, embedded & 1 == 0), Watched::new(2, embedded & 2 == 0)],
        now: Time(1),
        order: 0,
        flight: BTreeMap::new(),
    };
    net.sides[1].listen(&mut program);
    for _ in 0..MAX_STEPS {
        if program.is_over() {
            break;
        }
        net.step(&mut program);
    }
    let [first, second] = &net.sides;
    first.bindings.iter().for_each(|binding| agree(binding, &second.bindings));
    let now = net.now;
    net.sides.iter_mut().for_each(|side| side.wind_up(now));
}

struct Net {
    sides: [Watched; 2],
    now: Time,
    order: u64,
    /// By arrival: to whom, and what.
    flight: BTreeMap<(Time, u64), (usize, [u8; MAD_LEN])>,
}

impl Net {
    fn step(&mut self, program: &mut Program<'_>) {
        let op = program.byte();
        let side = usize::from(op & 1);
        match op >> 1 & 7 {
            0..3 => {
                let peer = self.sides[1 - side].addr;
                self.sides[side].ask(self.now, program, peer);
            }
            3 => {
                let time = Duration::from_millis(u64::from(program.byte()) * 20);
                self.run(program, time);
            }
            _ => _ = self.next(END),
        }
        self.carry(program);
    }

    /// Datagrams arrive within milliseconds however far time is advanced: none outlives a time-wait.
    fn run(&mut self, program: &mut Program<'_>, time: Duration) {
        let end = self.now + time;
        self.carry(program);
        while self.next(end) {
            self.carry(program);
        }
        self.now = end;
    }

    /// The next arrival or timer, if it comes before `end`.
    fn next(&mut self, end: Time) -> bool {
        let arrival = self.flight.keys().next().map(|(at, _)| *at);
        let timers = self.sides.iter().filter_map(|side| side.cm.poll_timeout());
        let Some(at) = timers.chain(arrival).min().filter(|at| *at <= end) else { return false };
        self.now = self.now.max(at);
        if arrival == Some(at) {
            let (_, (to, mad)) = self.flight.pop_first().expect("just seen");
            let from = self.sides[1 - to].addr;
            self.sides[to].handle(self.now, from, &mad);
        } else {
            self.sides.iter_mut().for_each(|side| side.expire(self.now));
        }
        true
    }

    fn carry(&mut self, program: &mut Program<'_>) {
        for side in 0..2 {
            for (to, mad) in std::mem::take(&mut self.sides[side].sent) {
                assert_eq!(to, self.sides[1 - side].addr, "sent to the peer");
                let fault = program.byte();
                let copies = match fault {
                    192..224 => 0,
                    224.. => 2,
                    _ => 1,
                };
                for copy in 0..copies {
                    let delay = HOP * (1 + u32::from(fault % 16) * (copy + u32::from(fault > 160)));
                    self.order += 1;
                    self.flight.insert((self.now + delay, self.order), (1 - side, mad));
                }
            }
        }
    }
}

/// What one side bound is what the other bound to it, if it did.
fn agree(own: &Binding, theirs: &[Binding]) {
    let Some(other) = theirs.iter().find(|other| other.qpn == own.attr.remote_qpn) else { return };
    assert_eq!(other.attr.remote_qpn, own.qpn);
    let (own, other) = (own.attr, other.attr);
    assert_eq!((own.send_psn, own.recv_psn), (other.recv_psn, other.send_psn));
    assert_eq!(own.path_mtu, other.path_mtu);
    assert_eq!(own.initiator_depth, other.responder_resources);
    assert_eq!(own.responder_resources, other.initiator_depth);
}
