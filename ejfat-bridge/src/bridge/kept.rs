//! Rings of workers that ended, as long as events in them may be delivered again.

use ejfat::{Time, bridge::WorkerId, ring::Descriptor};
use verbs::Memory;

use super::Bridge;
use crate::ring::{Ring, Way};

/// The ring of a worker that ended, or its twin: nobody but the bridge could ever write it.
#[derive(Debug)]
pub(super) struct Kept {
    worker: WorkerId,
    memory: Memory,
    /// Bytes that count as memory of workers of this machine.
    local: u64,
}

impl Bridge {
    /// From now on the ring is there until the dispatcher forgets it, whatever becomes of the worker.
    pub(super) fn keep(&mut self, worker: WorkerId) {
        let Some((_, Ring { memory, way, .. })) = self.rings.get(worker.at()).and_then(Option::as_ref) else {
            return;
        };
        let local = match way {
            Way::Remote(_) => 0,
            Way::Shared(shared) => shared.geometry().shared_bytes() as u64,
        };
        self.kept.push(Kept { worker, memory: memory.clone(), local });
    }

    pub(super) fn forget(&mut self, worker: WorkerId, given_up: u32) {
        if given_up > 0 {
            let worker = worker.number();
            tracing::warn!(worker, given_up, "events of a worker that ended are not delivered again");
        }
        if let Some(at) = self.kept.iter().position(|kept| kept.worker == worker) {
            self.local_memory += self.kept.swap_remove(at).local;
        }
    }

    /// An event of a worker that ended goes to another one.
    pub(super) fn again(&mut self, from: WorkerId, offset: u64, worker: WorkerId, descriptor: Descriptor) {
        let Some(kept) = self.kept.iter().find(|kept| kept.worker == from) else { return };
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut) else { return };
        let (to, length) = (descriptor.offset as usize, descriptor.length as usize);
        kept.memory.copy_to(offset as usize, &ring.memory, to, length);
        self.tell(worker, descriptor, true);
    }

    /// So many bytes for a worker of this machine that lives, from those that ended. False if there are not so many.
    pub(super) fn make_local_room(&mut self, bytes: u64, now: Time) -> bool {
        let kept: u64 = self.kept.iter().map(|kept| kept.local).sum();
        if self.local_memory + kept < bytes {
            return false;
        }
        let local: Vec<_> = self.kept.iter().filter(|kept| kept.local > 0).map(|kept| kept.worker).collect();
        for worker in local {
            if self.local_memory >= bytes {
                break;
            }
            self.dispatcher.forget(worker);
            self.act(now);
        }
        self.local_memory >= bytes
    }
}
