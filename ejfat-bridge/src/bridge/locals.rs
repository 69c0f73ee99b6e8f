//! Subscribes and removes local workers.

use std::{os::fd::OwnedFd, time::Instant};

use ejfat::{
    bridge::WorkerId,
    ring::{Answer, Placing, Refusal, Subscription},
};

use super::Bridge;
use crate::{
    local::{self, Applicant, Shared},
    ring::{Credits, Ring, Way},
};

/// The maximum number of local workers that may subscribe in one turn of the server loop. Workers beyond this number
/// wait for a later turn of the server loop.
const MOST_APPLICANTS: usize = 64;

impl Bridge {
    pub(super) fn take_applicants(&mut self, now: Instant) {
        let Self { listener, bells, .. } = self;
        let mut applicants = Vec::new();
        // At most `MOST_APPLICANTS` workers subscribe in one turn of the server loop, so that the server loop does
        // other work even if programs connect all the time.
        while applicants.len() < MOST_APPLICANTS
            && let Some(applicant) = listener.as_mut().and_then(|listener| listener.next(now, bells))
        {
            applicants.push(applicant);
        }
        for Applicant { socket, subscription } in applicants {
            if let Err(refusal) = self.take(socket, &subscription) {
                self.refused += 1;
                if let Some(left_out) = self.lines.take((), now) {
                    let name = &subscription.name;
                    tracing::warn!(%name, left_out, "refused a worker of this machine: {refusal}");
                }
            }
        }
    }

    fn take(&mut self, socket: OwnedFd, subscription: &Subscription) -> Result<(), Refusal> {
        let time = self.intake.now();
        let geometry = subscription.geometry;
        if !self.make_local_room(geometry.shared_bytes() as u64, time) {
            local::refuse(&socket, Refusal::Memory);
            return Err(Refusal::Memory);
        }
        let Some(worker) = self.dispatcher.subscribe(time, subscription, Placing::Shared) else {
            local::refuse(&socket, Refusal::Full);
            return Err(Refusal::Full);
        };
        let (number, again) = (worker.number(), subscription.again);
        let answer = Answer { worker: number, placing: Placing::Shared, instance: self.instance, again };
        let made = Shared::new(socket, geometry).and_then(|(shared, memory, credits, files)| {
            shared.answer(answer, &files)?;
            let credits = Credits::new(&credits, geometry);
            Ok(Ring { memory, credits, way: Way::Shared(shared) })
        });
        match made {
            Ok(ring) => {
                self.local_memory -= geometry.shared_bytes() as u64;
                self.insert(worker, ring);
                tracing::info!(worker = worker.number(), name = %subscription.name, "a worker of this machine");
                self.dispatcher.ready(time, worker);
                self.act(time);
                Ok(())
            }
            Err(error) => {
                tracing::warn!("cannot give a worker its ring: {error}");
                self.remove(worker, time);
                Err(Refusal::Failed)
            }
        }
    }

    pub(super) fn find_gone(&mut self) {
        let gone = |(id, ring): &(WorkerId, Ring)| match &ring.way {
            Way::Shared(shared) => shared.is_over().then_some(*id),
            Way::Remote(_) => None,
        };
        let gone: Vec<_> = self.rings.iter().flatten().filter_map(gone).collect();
        for worker in gone {
            tracing::info!(worker = worker.number(), "a worker of this machine is gone");
            self.remove(worker, self.intake.now());
        }
    }
}
