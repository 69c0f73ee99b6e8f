//! What workers do.

use super::*;

impl Environment {
    pub(super) fn caller() -> Caller<'static> {
        Caller { token: Some(ROOT), peer: None }
    }

    pub(super) fn request(&mut self, request: &Request, worker: Option<usize>) -> Result<(), String> {
        let moment = self.moment();
        let random = &mut self.random;
        let mut fill = |bytes: &mut [u8]| random.fill(bytes);
        let accepted = self
            .control
            .request(moment, Self::caller(), request, &mut fill)
            .map_err(|refusal| refusal.why)?;
        if accepted.changes.is_empty() {
            self.pump();
            return Ok(());
        }
        self.append(accepted.changes, worker.map(|worker| (worker, accepted.reply)));
        self.pump();
        Ok(())
    }

    pub(super) fn reserve(&mut self, n: usize) {
        let senders = (0..self.plan.streams[n].senders).map(|of| sender(n, of).to_string()).collect();
        let strategy = self.plan.streams[n].strategy.name().to_owned();
        let reserve = Reserve { name: format!("run{n}"), senders, strategy, ..Reserve::default() };
        let request = Request::Reserve(reserve);
        if let Err(why) = self.request(&request, None) {
            self.fail(format!("reserve: {why}"));
        }
    }

    pub(super) fn reservation(&self, n: usize) -> Option<String> {
        let mut all = self.control.registry().durable().reservations();
        all.find(|of| of.lb == lb(n)).map(|of| of.id.to_string())
    }

    /// Whether the next reservation gets this load balancer: the control plane gives the first one that is free.
    pub(super) fn gets(&self, n: usize) -> bool {
        (0..n).all(|before| self.reservation(before).is_some())
    }

    pub(super) fn register(&mut self, n: usize) {
        let plan = &self.plan.workers[n];
        let (address, port) = worker_address(n);
        let Some(lb_id) = self.reservation(plan.lb) else {
            if self.streams[plan.lb].freed.is_none() && self.gets(plan.lb) {
                // The control plane died before it had stored the reservation.
                self.reserve(plan.lb);
            }
            return self.at(self.now + 50 * MS, Happening::Registers { worker: n });
        };
        let slot_demands =
            plan.demands.iter().map(|&(first, length)| SlotDemand { index: first as i32, length }).collect();
        let request = Request::Register(Register {
            lb_id,
            name: format!("worker{n}"),
            weight: 1.0,
            address: address.to_string(),
            port: port.into(),
            slot_demands,
            ..Register::default()
        });
        self.say(|| format!("worker {n} registers"));
        if let Err(why) = self.request(&request, Some(n)) {
            self.say(|| format!("worker {n} is refused: {why}"));
            // Its session of before has not ended yet.
            self.at(self.now + S, Happening::Registers { worker: n });
        }
    }

    pub(super) fn look_at_worker(&mut self, n: usize) {
        let (now, plan) = (self.now, &self.plan.workers[n]);
        let worker = &mut self.workers[n];
        let seconds = (now - worker.looked) as f64 / S as f64;
        let taken = (plan.capacity * seconds).min(worker.queue);
        (worker.taken, worker.queue, worker.looked) = (worker.taken + taken, worker.queue - taken, now);
        worker.queue = worker.queue.min(plan.capacity);
    }

    pub(super) fn send_state(&mut self, n: usize) {
        let Life::Registered { session } = self.workers[n].life else { return };
        self.look_at_worker(n);
        let (plan, worker) = (&self.plan.workers[n], &self.workers[n]);
        let counts = plan.counts as i64;
        let state = SendState {
            session_id: session.to_string(),
            fill_level: (worker.queue / plan.capacity).clamp(0.0, 1.0) as f32,
            is_ready: worker.is_ready,
            events_received: worker.arrived as i64 * counts,
            events_reassembled: worker.arrived as i64 * counts,
            events_dequeued: worker.taken as i64 * counts,
            ..SendState::default()
        };
        let late = self.random.range(100 * US..=self.plan.state_delay);
        if !self.random.chance(10_000) {
            self.at(self.now + late, Happening::State { worker: n, state: Box::new(state) });
        }
        self.at(self.now + STATES, Happening::Sends { worker: n });
    }

    pub(super) fn take_state(&mut self, n: usize, state: &SendState) {
        let answer = self.request(&Request::SendState(state.clone()), None);
        let is_its = matches!(self.workers[n].life, Life::Registered { session } if session.to_string() == state.session_id);
        if !is_its {
            if answer.is_ok() && self.workers[n].gone.is_some() {
                // It was on its way when the worker died, and counts for its life.
                self.workers[n].gone = Some(self.now + self.silent());
            }
            return;
        }
        self.workers[n].state_at = self.now;
        match answer {
            Ok(()) if state.is_ready => self.workers[n].gone = None,
            Ok(()) => drop(self.workers[n].gone.get_or_insert(self.now)),
            Err(why) => {
                self.say(|| format!("state of worker {n} is refused: {why}"));
                self.workers[n].life = Life::Away;
                self.at(self.now + 100 * MS, Happening::Registers { worker: n });
            }
        }
    }

    /// The longest time from the last state of a worker until the control plane knows that it is silent, in ns. It looks every 10 ms.
    fn silent(&self) -> u64 {
        self.config.liveness.silent.as_nanos() as u64 + 10 * MS
    }

    pub(super) fn turn(&mut self, n: usize) {
        let Life::Registered { session } = self.workers[n].life else { return };
        let plan = self.plan.workers[n].clone();
        self.say(|| format!("worker {n}: {:?}", plan.outcome));
        match plan.outcome {
            WorkerOutcome::Stays => {}
            WorkerOutcome::Slows => {
                self.look_at_worker(n);
                self.plan.workers[n].capacity /= 5.0;
            }
            WorkerOutcome::Pauses => {
                self.workers[n].is_ready = false;
                self.at(self.now + plan.lasts, Happening::Back { worker: n });
            }
            WorkerOutcome::Leaves => {
                let request = Deregister { session_id: session.to_string(), ..Deregister::default() };
                self.workers[n].life = Life::Away;
                if self.request(&Request::Deregister(request), None).is_ok() {
                    self.workers[n].gone = Some(self.now);
                }
            }
            WorkerOutcome::Dies | WorkerOutcome::Returns => {
                self.workers[n].life = Life::Away;
                self.workers[n].gone = Some(self.workers[n].state_at + self.silent());
                if plan.outcome == WorkerOutcome::Returns {
                    self.at(self.now + plan.lasts, Happening::Back { worker: n });
                }
            }
        }
    }

    pub(super) fn back(&mut self, n: usize) {
        if self.plan.workers[n].outcome == WorkerOutcome::Pauses {
            self.workers[n].is_ready = true;
            self.workers[n].gone = None;
        } else {
            let worker = &mut self.workers[n];
            (worker.arrived, worker.queue, worker.taken) = (0, 0.0, 0.0);
            self.at(self.now, Happening::Registers { worker: n });
        }
    }
}
