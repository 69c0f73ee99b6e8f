//! What senders send, and where it goes.

use super::*;

impl Environment {
    pub(super) fn send_event(&mut self, n: usize) {
        let plan = self.plan.streams[n].clone();
        let gap = (S as f64 / self.streams[n].rate) as u64;
        let stream = &mut self.streams[n];
        if self.now < stream.pauses_until {
            let at = stream.pauses_until;
            return self.at(at, Happening::Event { stream: n });
        }
        let tick = (stream.anew, stream.tick);
        stream.tick += plan.step;
        self.at(self.now + gap, Happening::Event { stream: n });
        let up: Vec<_> = (0..self.planes.len()).filter(|&plane| self.planes[plane].is_up).collect();
        if up.is_empty() {
            return;
        }
        let of_event = self.random.below(up.len() as u64) as usize;
        for sender in 0..plan.senders {
            for _ in 0..plan.segments {
                let at =
                    if self.plan.sprays { self.random.below(up.len() as u64) as usize } else { of_event };
                // Clocks of senders, the sending itself and the network.
                let late = self.random.range(100 * US..=15 * MS);
                let segment = Happening::Segment { stream: n, sender, plane: up[at], tick, sent: self.now };
                self.at(self.now + late, segment);
            }
        }
    }

    pub(super) fn datagram(tick: u64) -> [u8; LbHeader::LEN] {
        let select = Select::V2 { entropy: 0 };
        LbHeader { select, protocol: LbHeader::REASSEMBLY, tick }.encode()
    }

    pub(super) fn segment(&mut self, n: usize, from: usize, plane: usize, at: (u32, u64), sent: u64) {
        let tick = at.1;
        let plane = &mut self.planes[plane];
        if !plane.is_up {
            return;
        }
        let to = plane.route(data(n).into(), sender(n, from), &Self::datagram(tick));
        let Some((address, _)) = to else {
            self.split_checkers[n].dropped += 1;
            let is_partial = self.plan.streams[n].strategy == Strategy::Explicit;
            let is_served =
                !is_partial && self.now > self.troubled && self.now > 6 * S && self.plan.is_calm();
            if is_served && self.has_served(n) {
                self.fail(format!("served: tick {tick} of load balancer {n} was dropped"));
            }
            return;
        };
        let is_known = self.now > self.split_checkers[n].known + LEAPS;
        let deadline = PROMPT + (S as f64 / self.streams[n].rate) as u64;
        let is_late = |since: u64| self.plan.is_prompt() && is_known && sent > since + deadline;
        if from == 0 && self.streams[n].removed.is_some_and(is_late) {
            return self
                .fail(format!("strangers: tick {tick} of a sender that was removed went to {address}"));
        }
        if self.streams[n].freed.is_some_and(is_late) {
            return self
                .fail(format!("gone: tick {tick} of load balancer {n}, which was freed, went to {address}"));
        }
        let worker = (0..self.workers.len()).find(|&worker| worker_address(worker).0 == address);
        let Some(worker) = worker.filter(|&worker| self.plan.workers[worker].lb == n) else {
            return self.fail(format!("tick {tick} of load balancer {n} went to {address}"));
        };
        let splits = self.split_checkers[n].split.len();
        let is_first = self.split_checkers[n].segment(self.now, at, worker);
        if self.split_checkers[n].split.len() > splits {
            self.say(|| format!("tick {tick} of load balancer {n} is split"));
        }
        if is_first {
            let of = &mut self.workers[worker];
            of.arrived += 1;
            of.queue += 1.0;
        }
        if let Some(gone) = self.workers[worker].gone.filter(|gone| is_late(*gone)) {
            let since = (sent - gone) / MS;
            self.fail(format!(
                "gone: tick {tick} of load balancer {n} went to worker {worker}, {since} ms after its end"
            ));
        }
    }

    /// Whether the newest epoch of a load balancer begins long after the ticks that its senders have.
    pub(super) fn is_out_of_force(&self, n: usize) -> Option<String> {
        let published = self.control.published(Time(self.now), lb(n))?;
        let stream = &self.streams[n];
        let reached = (stream.rate * self.plan.streams[n].step as f64 * IN_FORCE) as u64;
        let is_far = published.from > stream.tick.saturating_add(reached);
        is_far.then(|| {
            format!(
                "load balancer {n} has an epoch from {} on, senders are at {}",
                published.from, stream.tick
            )
        })
    }

    /// Whether a worker has been ready for long.
    pub(super) fn has_served(&self, n: usize) -> bool {
        let of = |(worker, plan): (&Worker, &crate::control::plan::WorkerPlan)| {
            plan.lb == n
                && plan.outcome == WorkerOutcome::Stays
                && plan.registers == 0
                && worker.life != Life::Away
        };
        self.workers.iter().zip(&self.plan.workers).any(of)
    }

    pub(super) fn stranger(&mut self, n: usize) {
        self.at(self.now + S, Happening::Stranger { stream: n });
        let tick = self.streams[n].tick.saturating_add(self.random.below(1 << 40));
        let stranger = Ipv4Addr::new(10, 3, 0, 1).into();
        for plane in &mut self.planes {
            if plane.route(data(n).into(), stranger, &Self::datagram(tick)).is_some() {
                self.failure.get_or_insert(format!("strangers: tick {tick} of a stranger went to a worker"));
            }
        }
    }

    pub(super) fn send_sync(&mut self, n: usize, from: usize) {
        let plan = self.plan.streams[n].clone();
        self.at(self.now + SYNCS, Happening::SyncSent { stream: n, sender: from });
        if self.now < self.streams[n].pauses_until {
            return;
        }
        let sync = |tick, source| SyncHeader { source, tick, ticks_per_second: 0, unix_nanos: 0 };
        let tick = self.streams[n].tick;
        if plan.forges && self.random.chance(300_000) {
            let tick = match self.random.below(3) {
                0 => self.random.next_u64(),
                1 => tick.saturating_sub(self.random.below(1 << 20)),
                _ => tick.saturating_add(self.random.below(1 << 12)),
            };
            let source = self.random.below(3) as u32;
            let late = self.random.range(0..=900 * MS);
            self.at(
                self.now + late,
                Happening::Sync { lb: lb(n), from: sender(n, from), sync: sync(tick, source) },
            );
        }
        if self.random.chance(plan.lost_syncs) {
            return;
        }
        let late = self.random.range(100 * US..=200 * MS);
        self.at(self.now + late, Happening::Sync { lb: lb(n), from: sender(n, from), sync: sync(tick, 0) });
    }

    pub(super) fn change_rate(&mut self, n: usize) {
        let pause = self.random.range(300 * MS..=6 * S);
        let (now, step) = (self.now, self.plan.streams[n].step);
        let faster = self.random.range(1000..=1700) as f64 / 1000.0;
        let back = self.random.next_u64();
        let stream = &mut self.streams[n];
        match self.plan.streams[n].rates {
            Rates::Steady => {}
            Rates::Faster => stream.rate *= faster,
            Rates::TenTimes => stream.rate *= 10.0,
            Rates::Pause => stream.pauses_until = now + pause,
            Rates::ClockPause => {
                stream.pauses_until = now + pause;
                stream.tick += (stream.rate * pause as f64 / S as f64) as u64 * step;
            }
            Rates::Forward => stream.tick += back % (1 << (back >> 58)),
            Rates::Back => {
                stream.tick = back % (stream.tick + 1);
                stream.anew += 1;
            }
        }
        self.pause(n);
        let rates = self.plan.streams[n].rates;
        self.say(|| format!("senders of load balancer {n}: {rates:?}, tick {}", self.streams[n].tick));
    }
}
