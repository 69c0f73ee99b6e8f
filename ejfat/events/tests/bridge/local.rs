//! A bridge model and its worker on one machine, with shared memory.

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{Ordering, fence},
};

use ejfat::ring::{
    BLOCK, DeliveryMode, Geometry, RingSlots, Run, SubscribeRefusal, SubscribeResponse, Subscription, shared,
};
use rustix::{
    cmsg_space,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg, socket_with,
    },
};
use verbs::Memory;

use super::{BridgeSide, RingModel};

pub struct LocalBridgeModel {
    pub path: PathBuf,
    listener: OwnedFd,
}

impl LocalBridgeModel {
    pub fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("naa-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self { listener: listener(&path), path }
    }

    pub fn accept(&self) -> BridgeSide<SharedRingModel> {
        self.accept_with(|files| files)
    }

    /// Sends other files than it should.
    pub fn accept_with(
        &self,
        change: impl FnOnce([OwnedFd; 2]) -> [OwnedFd; 2],
    ) -> BridgeSide<SharedRingModel> {
        let (socket, Subscription { geometry, redelivery, .. }) = self.subscribed();
        let (events_file, events) = region::memfd_for_readers("events", geometry.shared_bytes()).unwrap();
        let (credits_file, credits) = region::memfd("credits", geometry.credits_bytes()).unwrap();
        let answer = SubscribeResponse { worker: 1, placing: DeliveryMode::Shared, instance: 7, redelivery };
        let files = change([events_file, credits_file]);
        let files = files.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let block = SubscribeResponse::encode(&Ok(answer));
        sendmsg(&socket, &[IoSlice::new(&block)], &mut control, SendFlags::NOSIGNAL).unwrap();
        let ring = SharedRingModel { geometry, events, credits, socket, put: 0, woken: 0 };
        BridgeSide::new(ring, RingSlots::new(geometry))
    }

    pub fn refuse(&self, why: SubscribeRefusal) {
        let (socket, _) = self.subscribed();
        send(&socket, &SubscribeResponse::encode(&Err(why)), SendFlags::NOSIGNAL).unwrap();
    }

    fn subscribed(&self) -> (OwnedFd, Subscription) {
        let socket = accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        let mut block = [0; BLOCK];
        assert_eq!(recv(&socket, &mut block, RecvFlags::empty()).unwrap().0, BLOCK);
        (socket, Subscription::decode(&block).unwrap())
    }
}

fn listener(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 8).unwrap();
    socket
}

impl Drop for LocalBridgeModel {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub struct SharedRingModel {
    geometry: Geometry,
    pub events: Memory,
    credits: Memory,
    socket: OwnedFd,
    /// The number of events put since the last look.
    put: u32,
    pub woken: u32,
}

impl RingModel for SharedRingModel {
    fn put(&mut self, run: Run, bytes: &[u8], at: usize, descriptor: &[u8; BLOCK], sequence: u32) {
        self.put += 1;
        let ring = self.geometry.shared_ring_at();
        self.events.write(ring + self.geometry.offset(run.slot) as usize, bytes);
        self.events.write(shared::DESCRIPTORS_AT + at, descriptor);
        fence(Ordering::Release);
        self.events.write(shared::HEAD_AT, &sequence.to_le_bytes());
        fence(Ordering::SeqCst);
        let mut asleep = [0; 4];
        self.credits.read(shared::ASLEEP_AT, &mut asleep);
        if asleep != [0; 4] {
            self.woken += 1;
            // Its end shows later.
            let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        self.events.write(self.geometry.shared_ring_at() + offset as usize, bytes);
    }

    fn arrived(&mut self) -> u32 {
        std::mem::take(&mut self.put)
    }

    fn words(&self, words: &mut [u32]) {
        for (slot, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 4];
            self.credits.read(self.geometry.credit_at(slot as u32), &mut bytes);
            *word = u32::from_le_bytes(bytes);
        }
    }

    fn count(&self) -> u32 {
        let mut bytes = [0; 4];
        self.credits.read(shared::COUNT_AT, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}
