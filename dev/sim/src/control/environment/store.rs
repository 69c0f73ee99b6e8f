//! What is stored, and a control plane that begins again from it.

use super::*;

impl Environment {
    pub(super) fn append(&mut self, changes: Vec<Change>, reply: Option<(usize, Reply)>) {
        let after = self.storing.back().map_or(0, |last| last.at);
        let at = (self.now + self.random.range(MS..=15 * MS)).max(after);
        self.storing.push_back(Stored { at, changes, reply });
        self.at(at, Happening::Stored);
    }

    pub(super) fn stored(&mut self) {
        let Some(Stored { changes, reply, .. }) = self.storing.pop_front() else { return };
        keep(&mut self.store, &changes);
        if self.store.len() > 2000 {
            self.fail(format!("bounded: {} records", self.store.len()));
        }
        if let Some((worker, Reply::Registered(registered))) = reply {
            let worker_of = &mut self.workers[worker];
            worker_of.life = Life::Registered { session: registered.session.0 };
            (worker_of.is_ready, worker_of.gone) = (true, None);
            worker_of.looked = self.now;
            self.at(self.now + 10 * MS, Happening::Sends { worker });
        }
    }

    /// The control plane dies, and another begins from what is stored.
    pub(super) fn restart(&mut self) {
        self.say(|| "the control plane restarts".to_owned());
        // What is on its way to the store may still get there, or not; replies are lost.
        let kept = self.random.below(self.storing.len() as u64 + 1) as usize;
        let mut storing = std::mem::take(&mut self.storing);
        for mut stored in storing.drain(..).take(kept) {
            let worker = stored.reply.take().map(|(worker, _)| worker);
            self.storing.push_back(stored);
            self.stored();
            if let Some(worker) = worker {
                self.at(self.now + S, Happening::Registers { worker });
            }
        }
        self.queue.retain(|_, happening| !matches!(happening, Happening::Stored));
        self.term += 1;
        self.control = match begin(&self.config, &self.plan, &self.store, self.term, self.now) {
            Ok(control) => control,
            Err(why) => return self.fail(format!("durable: {why}")),
        };
        let again: BTreeMap<_, _> =
            self.control.registry().durable().records().map(|record| record.encode()).collect();
        if again != self.store {
            return self.fail("durable: the records are not those that were stored".to_owned());
        }
        for n in 0..self.planes.len() {
            if std::mem::take(&mut self.planes[n].is_connected) {
                let late = self.random.range(MS..=300 * MS);
                self.at(self.now + late, Happening::Connected { plane: n });
            }
        }
        self.pump();
    }
}
