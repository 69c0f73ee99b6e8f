//! The bridge as a loop service of a server.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use ejfat::ring::{SubscribeRefusal, SubscribeResponse};
use naa_server::{
    call::{Call, CallFailure},
    loop_service::{LoopService, StreamId, StreamingSession, SubscribingHost},
};

use super::Bridge;
use crate::{
    check::check_subscription,
    remote::{RdmaRing, WriteKind},
    ring::{BridgeRing, Credits, RingTransport},
};

impl LoopService for Bridge {
    fn subscribe(&mut self, host: &SubscribingHost<'_>, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let time = self.intake.now();
        self.forget_accepted();
        let taken = check_subscription(host, call)?.and_then(|subscription| {
            let worker = self.dispatcher.subscribe(time, &subscription, self.placing);
            worker.map(|worker| (worker, subscription)).ok_or(SubscribeRefusal::Full)
        });
        let accepted = taken.as_ref().map_err(|refusal| *refusal);
        let answer = accepted.map(|(worker, subscription)| SubscribeResponse {
            worker: worker.number(),
            placing: self.placing,
            instance: self.instance,
            redelivery: subscription.redelivery,
        });
        let block = SubscribeResponse::encode(&answer);
        if let Some(place) = call.parts().take_output(0) {
            place[..block.len()].copy_from_slice(&block);
        }
        match taken {
            Ok((worker, subscription)) => {
                let name = &subscription.name;
                tracing::info!(peer = %host.peer, worker = worker.number(), %name, "a worker");
                call.set_produced(0, block.len());
                call.set_produced(1, 0);
                call.set_produced(2, 0);
                self.accepted = Some((worker, subscription.geometry));
                Ok(())
            }
            Err(refusal) => {
                self.refused += 1;
                call.set_status(block.len() as u32);
                Err(CallFailure::Arguments(refusal.to_string().into()))
            }
        }
    }

    fn begin(&mut self, stream: StreamingSession, now: Instant) {
        let Some((worker, geometry)) = self.accepted.take() else { return };
        let (id, time) = (stream.id, self.intake.time(now));
        match RdmaRing::new(stream, geometry, self.placing, &self.intake.buffers) {
            Ok(Some(remote)) => {
                let (memory, credits) = (remote.ring().memory.clone(), &remote.credits().memory);
                let credits = Credits::new(credits, geometry);
                self.insert(worker, BridgeRing { memory, credits, transport: RingTransport::Rdma(remote) });
                self.dispatcher.ready(time, worker);
                self.act(time);
                self.pump();
            }
            Ok(None) => self.closing.push((id, "it has other parameters than a subscription".into())),
            Err(error) => self.closing.push((id, format!("this machine: {error}"))),
        }
        if self.rings.get(worker.at()).is_none_or(Option::is_none) {
            self.remove(worker, time);
        }
    }

    fn completed(&mut self, stream: StreamId, now: Instant) {
        let time = self.intake.time(now);
        let Some(worker) = self.worker(stream) else { return };
        let Some(ring) = self.ring(worker) else { return };
        let RingTransport::Rdma(remote) = &mut ring.transport else { return };
        match remote.completed() {
            Some(WriteKind::Event) => {
                self.dispatcher.acknowledged(time, worker);
                self.act(time);
            }
            Some(WriteKind::Bytes { buffer }) => {
                self.dispatcher.alive(time, worker);
                buffer.into_iter().for_each(|buffer| self.intake.buffers.release(buffer));
            }
            None => {}
        }
    }

    fn ended(&mut self, stream: StreamId, now: Instant) {
        if let Some(worker) = self.worker(stream) {
            tracing::info!(worker = worker.number(), "a worker is gone");
            self.remove(worker, self.intake.time(now));
            self.pump();
        }
    }

    fn turn(&mut self, now: Instant) -> bool {
        let mut something = !self.finishing && self.receive();
        self.expire(self.intake.time(now));
        something |= self.credit(false);
        self.pump();
        self.forget_accepted();
        if something {
            self.active = now;
        }
        if now >= self.next_tick {
            self.tick(now);
        }
        let dispatcher = &self.dispatcher;
        self.queries.answer(|tick| dispatcher.trace(tick));
        something
    }

    fn finish(&mut self) -> bool {
        if !std::mem::replace(&mut self.finishing, true) {
            self.wake_set.remove_ports(&self.intake.ports);
            self.dispatcher.forget_all();
            self.act(self.intake.now());
        }
        let quiet = self.is_quiet();
        if quiet {
            self.credit(true);
            self.report(self.intake.now());
        }
        quiet
    }

    fn poll_closing(&mut self) -> Option<(StreamId, String)> {
        self.closing.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let timeout = self
            .intake
            .reassembler
            .next_timeout()
            .map(|due| now + Duration::from_nanos(due.0.saturating_sub(self.intake.time(now).0)));
        Some(timeout.into_iter().fold(self.next_look(now).min(self.next_tick), Instant::min))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake_set.all()
    }

    fn woken(&mut self) {
        if self.wake_set.of_workers() {
            self.next_tick = Instant::now();
        }
    }
}
