//! What becomes of data planes and their calls.

use super::*;

impl Environment {
    pub(super) fn latency(&mut self) -> u64 {
        let is_late = self.plan.plane_fault == PlaneFault::Late
            && (self.plan.fault_at..self.plan.fault_at + self.plan.fault_lasts).contains(&self.now)
            && self.random.chance(100_000);
        if is_late {
            self.troubled = self.now + 3 * S;
            return self.random.range(20 * MS..=1500 * MS);
        }
        self.random.range(300 * US..=4 * MS)
    }

    pub(super) fn call(&mut self, call: Call) {
        let n = usize::from(call.plane.0);
        let latency = self.latency();
        let now = self.now;
        let plane = &mut self.planes[n];
        if !plane.is_connected {
            return;
        }
        plane.called_at = plane.called_at.max(now + latency);
        let (at, connection) = (plane.called_at, plane.connection);
        self.say(|| format!("plane {n} <- {}", shown(&format!("{call:?}"))));
        self.planes[n].waiting += 1;
        if self.planes[n].waiting > MOST_CALLS {
            self.fail(format!("bounded: more than {MOST_CALLS} calls of plane {n} wait"));
        }
        self.at(at, Happening::Called { plane: n, connection, call: Box::new(call), begin: 0 });
    }

    pub(super) fn called(&mut self, n: usize, connection: u64, call: Call, begin: usize) {
        let latency = self.latency();
        let plane = &mut self.planes[n];
        plane.waiting -= usize::from(begin == 0);
        // A call of a connection that has ended may come all the same.
        if !plane.is_up {
            return;
        }
        let outcome = match plane.carry_out(&call, begin) {
            Ok(outcome) => outcome,
            Err(begin) => {
                let at = self.now + 20 * US;
                plane.called_at = plane.called_at.max(at);
                let call = Box::new(call);
                return self.at(at, Happening::Called { plane: n, connection, call, begin });
            }
        };
        plane.answered_at = plane.answered_at.max(self.now + latency);
        let at = plane.answered_at;
        let answer = Box::new(Answer { plane: call.plane, number: call.number, outcome });
        self.at(at, Happening::Answered { plane: n, connection, answer });
    }

    pub(super) fn connect(&mut self, n: usize) {
        let plane = &mut self.planes[n];
        if !plane.is_up {
            return;
        }
        plane.connection += 1;
        plane.is_connected = true;
        (plane.called_at, plane.answered_at) = (self.now, self.now);
        self.say(|| format!("plane {n} is connected"));
        self.control.connected(Time(self.now), PlaneId(n as u16));
        self.pump();
    }

    /// The control plane ended the connection.
    pub(super) fn disconnect(&mut self, n: usize) {
        self.planes[n].is_connected = false;
        self.troubled = self.now + 3 * S;
        self.at(self.now + 200 * MS, Happening::Connected { plane: n });
    }

    pub(super) fn fault(&mut self) {
        let until = self.plan.fault_at + self.plan.fault_lasts + 5 * S;
        match self.plan.plane_fault {
            PlaneFault::None | PlaneFault::Late => {}
            PlaneFault::Dies => {
                self.planes[0].is_up = false;
                self.troubled = self.troubled.max(until);
                if self.random.chance(500_000) {
                    self.planes[0].is_connected = false;
                    self.control.disconnected(Time(self.now), PlaneId(0));
                    self.pump();
                }
            }
            PlaneFault::Disconnects => {
                self.planes[0].is_connected = false;
                self.troubled = self.troubled.max(until);
                self.control.disconnected(Time(self.now), PlaneId(0));
                self.pump();
            }
        }
    }

    pub(super) fn repair(&mut self) {
        match self.plan.plane_fault {
            PlaneFault::None | PlaneFault::Late => {}
            PlaneFault::Dies => {
                self.planes[0].restart();
                self.planes[0].is_up = true;
                if self.planes[0].is_connected {
                    self.planes[0].is_connected = false;
                    self.control.disconnected(Time(self.now), PlaneId(0));
                    self.pump();
                }
                self.at(self.now + 50 * MS, Happening::Connected { plane: 0 });
            }
            PlaneFault::Disconnects => self.connect(0),
        }
    }
}
