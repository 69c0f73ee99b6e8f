//! What those who reserved a load balancer do with it.

use super::*;

impl World {
    pub(super) fn deed(&mut self, n: usize) {
        let deed = self.plan.streams[n].deed;
        self.say(|| format!("load balancer {n}: {deed:?}"));
        let Some(lb_id) = self.reservation(n) else { return };
        let undone = self.now + self.plan.streams[n].deed_lasts;
        match deed {
            Deed::None => return,
            Deed::Frees => {
                self.streams[n].is_freed = self.request(&Request::Free(LbName { lb_id }), None).is_ok();
                self.workers_end(n);
            }
            Deed::Resets { sync, epochs, senders, workers } => {
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
        // Rates are unknown for a while after it is undone, and senders and workers are let in by an epoch.
        self.judges[n].known = undone + 3 * S + KNOWN;
        // Three syncs have to come first where planes tell no ticks, and senders may pause.
        self.troubled = self.troubled.max(undone + 12 * S);
        self.at(undone, Happening::Undone { stream: n });
    }

    pub(super) fn undo(&mut self, n: usize) {
        self.streams[n].is_freed = false;
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
        // They may be there if the control plane died before it had stored that they were removed.
        if let Err(why) = self.request(&Request::AddSenders(senders), None) {
            self.say(|| format!("senders are refused: {why}"));
        }
    }

    fn first_sender(&self, n: usize, lb_id: String) -> Senders {
        Senders { lb_id, addresses: vec![sender(n, 0).to_string()] }
    }

    /// All sessions of a load balancer end. Workers know it when their next state is refused.
    fn workers_end(&mut self, n: usize) {
        let now = self.now;
        for (worker, plan) in self.workers.iter_mut().zip(&self.plan.workers) {
            if plan.lb == n && worker.life != Life::Away {
                worker.gone = Some(now);
            }
        }
    }
}
