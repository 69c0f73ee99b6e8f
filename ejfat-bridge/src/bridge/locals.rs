//! Accepts the subscriptions of local workers, and removes local workers that have ended.

use std::{os::fd::OwnedFd, time::Instant};

use ejfat::{
    bridge::WorkerId,
    ring::{DeliveryMode, SubscribeRefusal, SubscribeResponse, Subscription},
};

use super::Bridge;
use crate::{
    local::{self, Applicant, SharedRing},
    ring::{BridgeRing, Credits, RingTransport},
};

/// The maximum number of local workers that can subscribe in one turn of the server loop. Workers beyond this number
/// wait for a later turn of the server loop.
const MOST_APPLICANTS: usize = 64;

impl Bridge {
    pub(super) fn take_applicants(&mut self, now: Instant) {
        let Self { listener, wake_set, .. } = self;
        let mut applicants = Vec::new();
        // The number of workers that subscribe in one turn of the server loop is limited to `MOST_APPLICANTS`. Without
        // this limit, programs that connect all the time could keep the server loop from other work.
        while applicants.len() < MOST_APPLICANTS
            && let Some(applicant) = listener.as_mut().and_then(|listener| listener.next(now, wake_set))
        {
            applicants.push(applicant);
        }
        for Applicant { socket, subscription } in applicants {
            if let Err(refusal) = self.take(socket, &subscription) {
                self.refused += 1;
                if let Some(left_out) = self.log_limit.take((), now) {
                    let name = &subscription.name;
                    tracing::warn!(%name, left_out, "refused a worker of this machine: {refusal}");
                }
            }
        }
    }

    fn take(&mut self, socket: OwnedFd, subscription: &Subscription) -> Result<(), SubscribeRefusal> {
        let time = self.intake.now();
        let geometry = subscription.geometry;
        if !self.make_local_room(geometry.shared_bytes() as u64, time) {
            local::refuse(&socket, SubscribeRefusal::Memory);
            return Err(SubscribeRefusal::Memory);
        }
        let Some(worker) = self.dispatcher.subscribe(time, subscription, DeliveryMode::Shared) else {
            local::refuse(&socket, SubscribeRefusal::Full);
            return Err(SubscribeRefusal::Full);
        };
        let answer = SubscribeResponse {
            worker: worker.number(),
            placing: DeliveryMode::Shared,
            instance: self.instance,
            redelivery: subscription.redelivery,
        };
        let made = SharedRing::new(socket, geometry).and_then(|(shared, memory, credits, files)| {
            shared.answer(answer, &files)?;
            let credits = Credits::new(&credits, geometry);
            Ok(BridgeRing { memory, credits, transport: RingTransport::Shared(shared) })
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
                Err(SubscribeRefusal::Failed)
            }
        }
    }

    pub(super) fn find_gone(&mut self) {
        let gone = |(id, ring): &(WorkerId, BridgeRing)| match &ring.transport {
            RingTransport::Shared(shared) => shared.is_over().then_some(*id),
            RingTransport::Rdma(_) => None,
        };
        let gone: Vec<_> = self.rings.iter().flatten().filter_map(gone).collect();
        for worker in gone {
            tracing::info!(worker = worker.number(), "a worker of this machine is gone");
            self.remove(worker, self.intake.now());
        }
    }
}
