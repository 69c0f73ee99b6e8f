//! The driver of embedded devices: calls of the driver interface, executed on the engine.

use std::{
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use verbs::{
    Access, ChannelId, CmEvent, CmId, ConnParam, CqId, DeviceAttr, Driver, Error, Memory, MrKeys, PdId,
    QpInit, QpNum, RecvWr, SendWr, WaitMode, WaitOn, Wake, Wc,
};

use crate::device::{EmbeddedDevice, Then};

/// The driver of one embedded device. When the `Embedded` is dropped, the device is closed. The progress thread has a
/// reference to the `EmbeddedDevice` but not to the `Embedded`, so the progress thread does not keep the device open.
#[derive(Debug)]
pub(crate) struct Embedded(pub(crate) Arc<EmbeddedDevice>);

impl Drop for Embedded {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Driver for Embedded {
    fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    fn alloc_pd(&self) -> Result<PdId, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.alloc_pd())
    }

    fn dealloc_pd(&self, pd: PdId) -> Result<(), Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.dealloc_pd(pd))?
    }

    fn reg_mr(&self, pd: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error> {
        self.0.call(Then::Nothing, |engine| {
            let (keys, region) = engine.endpoint.reg_mr(pd, memory.addr(), memory.len() as u64, access)?;
            engine.regions.insert(region, memory.clone());
            Ok(keys)
        })?
    }

    fn set_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error> {
        let revokes = self.0.attr.revokes;
        // Received payload is written under the engine's lock, so no payload is being written while this thread holds
        // the lock.
        self.0.call(Then::Nothing, |engine| match revokes {
            true => engine.endpoint.set_mr_access(lkey, access),
            // The device keeps the access rights with which the region was registered, because
            // `EmbeddedConfig::keeps_access` is set. Only the arguments of the call are checked.
            false => engine.endpoint.check_mr_access(lkey, access),
        })?
    }

    fn dereg_mr(&self, lkey: u32) -> Result<(), Error> {
        let memory = self.0.call(Then::Nothing, |engine| engine.release(lkey))??;
        // The engine's lock is not held here, because unmapping the memory may take long.
        drop(memory);
        Ok(())
    }

    fn create_cq(&self, depth: u32) -> Result<CqId, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.create_cq(depth))?
    }

    fn destroy_cq(&self, cq: CqId) -> Result<(), Error> {
        self.0.call(Then::Nothing, |engine| {
            engine.endpoint.destroy_cq(cq)?;
            engine.forget(|on| on.cq == Some(cq));
            Ok(())
        })?
    }

    fn poll_cq(&self, cq: CqId, out: &mut [Wc]) -> Result<usize, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.poll_cq(cq, out))?
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpNum, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.create_qp(init))?
    }

    fn destroy_qp(&self, qp: QpNum) -> Result<(), Error> {
        self.0.call(Then::Transmit, |engine| {
            engine.settle();
            engine.endpoint.destroy_qp(qp)
        })?
    }

    fn post_send(&self, qp: QpNum, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        let posted = self.0.call(Then::Transmit, |engine| {
            for (index, wr) in wrs.iter().enumerate() {
                engine.endpoint.post_send(qp, wr).map_err(|e| (index, e))?;
            }
            Ok(())
        });
        posted.map_err(|e| (0, e))?
    }

    fn post_recv(&self, qp: QpNum, wr: &RecvWr<'_>) -> Result<(), Error> {
        // If the queue pair has failed, the receive completes at once, and the threads that wait for this completion
        // are notified.
        self.0.call(Then::Notify, |engine| engine.endpoint.post_recv(qp, wr))?
    }

    fn create_channel(&self) -> Result<ChannelId, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.create_channel())
    }

    fn destroy_channel(&self, channel: ChannelId) -> Result<(), Error> {
        self.0.call(Then::Nothing, |engine| {
            engine.endpoint.destroy_channel(channel)?;
            engine.forget(|on| on.channel == Some(channel));
            Ok(())
        })?
    }

    fn next_event(&self, channel: ChannelId) -> Result<Option<CmEvent>, Error> {
        self.0.call(Then::Nothing, |engine| engine.endpoint.next_event(channel))?
    }

    fn poll(&self, cq: CqId, channel: ChannelId, out: &mut [Wc]) -> Result<(usize, Option<CmEvent>), Error> {
        self.0.call(Then::Nothing, |engine| {
            Ok((engine.endpoint.poll_cq(cq, out)?, engine.endpoint.next_event(channel)?))
        })?
    }

    fn listen(&self, channel: ChannelId, port: u16, backlog: u32) -> Result<(CmId, u16), Error> {
        if let Some(why) = &self.0.cannot_listen {
            return Err(Error::CannotListen(why.clone()));
        }
        self.0.call(Then::Nothing, |engine| engine.endpoint.listen(channel, port, backlog))?
    }

    fn connect(
        &self,
        channel: ChannelId,
        qp: QpNum,
        remote: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId, Error> {
        let local = self.0.attr.address;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid("the peer's address is of another family than the device's"));
        }
        self.0.call(Then::Transmit, |engine| {
            engine.endpoint.connect(engine.now(), channel, qp, local, remote, param)
        })?
    }

    fn accept(&self, id: CmId, qp: QpNum, param: &ConnParam) -> Result<(), Error> {
        self.0.call(Then::Transmit, |engine| engine.endpoint.accept(engine.now(), id, qp, param))?
    }

    fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        self.0.call(Then::Transmit, |engine| engine.endpoint.reject(engine.now(), id, private_data))?
    }

    fn disconnect(&self, id: CmId) -> Result<(), Error> {
        self.0.call(Then::Transmit, |engine| {
            engine.settle();
            engine.endpoint.disconnect(engine.now(), id)
        })?
    }

    fn destroy_id(&self, id: CmId) -> Result<(), Error> {
        self.0.call(Then::Transmit, |engine| {
            engine.settle();
            engine.endpoint.destroy_id(engine.now(), id)
        })?
    }

    fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.0.wait(on, mode, None, deadline)
    }

    fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        self.0.wait(on, WaitMode::Block, Some(beside), deadline)
    }

    fn descriptor(&self, on: WaitOn) -> Result<OwnedFd, Error> {
        self.0.call(Then::Nothing, |engine| engine.notifiers.descriptor(on))?
    }

    fn arm(&self, on: WaitOn) -> Result<bool, Error> {
        self.0.arm(on)
    }

    fn interrupt(&self, on: WaitOn) {
        self.0.interrupt(on);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let list = self.0.call(Then::Nothing, |engine| {
            let mut list = engine.endpoint.counters().list();
            list.extend(engine.endpoint.cm_counters().list());
            list.extend([("turns", engine.counters.turns), ("send_errors", engine.counters.send_errors)]);
            list
        });
        // A forked child process has no counters.
        list.unwrap_or_default()
    }
}
