//! What the people who reserved a load balancer do with it during a run.

use super::*;

impl Environment {
    pub(super) fn deed(&mut self, n: usize) {
        let deed = self.plan.streams[n].deed;
        self.say(|| format!("load balancer {n}: {deed:?}"));
        let Some(lb_id) = self.reservation(n) else { return };
        let undone = self.now + self.plan.streams[n].deed_lasts;
        match deed {
            Deed::None => return,
            Deed::Frees => {
                if self.request(&Request::Free(LbName { lb_id }), None).is_ok() {
                    self.streams[n].freed = Some(self.now);
                }
                self.workers_end(n);
            }
            Deed::Resets { sync, epochs, senders, workers } => {
                self.forget_rates(n);
                let reset = Request::Reset(Reset { lb_id, sync, epochs, senders, workers });
                if let Err(why) = self.request(&reset, None) {
                    self.fail(format!("reset: {why}"));
                }
                if workers {
                    self.workers_end(n);
                }
            }
            Deed::RemovesSender => {
                let request = Request::RemoveSenders(self.first_sender(n, lb_id));
                if let Err(why) = self.request(&request, None) {
                    self.fail(format!("remove senders: {why}"));
                }
                self.streams[n].removed = Some(self.now);
            }
        }
        // Where planes tell no ticks, senders have to sync three times before an epoch can begin, and they may pause meanwhile.
        self.troubled = self.troubled.max(undone + 12 * S);
        self.at(undone, Happening::Undone { stream: n });
    }

    pub(super) fn undo(&mut self, n: usize) {
        if self.reservation(n).is_none() && !self.gets(n) {
            return self.at(self.now + 50 * MS, Happening::Undone { stream: n });
        }
        self.troubled = self.troubled.max(self.now + 12 * S);
        self.streams[n].freed = None;
        self.forget_rates(n);
        let Some(lb_id) = self.reservation(n) else { return self.reserve(n) };
        let senders = match self.plan.streams[n].deed {
            Deed::Resets { senders: true, .. } => {
                let addresses = (0..self.plan.streams[n].senders).map(|of| sender(n, of).to_string());
                Senders { addresses: addresses.collect(), lb_id }
            }
            Deed::RemovesSender => self.first_sender(n, lb_id),
            _ => return,
        };
        self.streams[n].removed = None;
        // The senders may still be registered, if the control plane died before it had stored that they were removed.
        if let Err(why) = self.request(&Request::AddSenders(senders), None) {
            self.say(|| format!("senders are refused: {why}"));
        }
    }

    /// The control plane does not know the rate of senders for some seconds: it counts syncs again from now on, and an epoch has to
    /// let senders and workers in first.
    fn forget_rates(&mut self, n: usize) {
        self.split_checkers[n].known = self.now.max(self.paused_until(n)) + 3 * S + KNOWN;
    }

    /// When the senders go on after a pause (ns), if their rate is known by syncs alone. 0 if planes tell the rate.
    fn paused_until(&self, n: usize) -> u64 {
        let by_syncs = self.planes.iter().all(|plane| plane.kind == PlaneKind::RuleByRule);
        if by_syncs { self.streams[n].pauses_until } else { 0 }
    }

    /// Notes that senders pause. If their rate is not known yet, it is known only some seconds after the pause.
    pub(super) fn pause(&mut self, n: usize) {
        if self.now < self.split_checkers[n].known && self.paused_until(n) > self.now {
            self.forget_rates(n);
        }
    }

    fn first_sender(&self, n: usize, lb_id: String) -> Senders {
        Senders { lb_id, addresses: vec![sender(n, 0).to_string()] }
    }

    /// Notes that all sessions of a load balancer end now. Workers learn it when their next state is refused.
    fn workers_end(&mut self, n: usize) {
        let now = self.now;
        for (worker, plan) in self.workers.iter_mut().zip(&self.plan.workers) {
            if plan.lb == n && worker.life != Life::Away {
                worker.gone = Some(now);
            }
        }
    }
}
