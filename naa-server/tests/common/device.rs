//! A device for tests, which has memory regions but no network. Work requests can be posted, and completion queues cannot be
//! polled.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use verbs::{
    Access, ChannelId, CmEvent, CmId, ConnParam, CqId, DeviceAttr, Driver, Error, Memory, MrKeys, PdId,
    QpInit, QpNum, RecvWr, SendWr, WaitMode, WaitOn, Wake, Wc,
};

/// A device that has only protection domains, memory regions, completion queues and queue pairs. Posted work requests have no
/// effect, and completion queues cannot be polled.
pub(crate) struct DeviceModel {
    pub(crate) attr: DeviceAttr,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) regions: BTreeMap<u32, (Memory, Access)>,
    /// True if [`Driver::set_mr_access`] fails.
    pub(crate) broken: bool,
}

impl Default for DeviceModel {
    fn default() -> Self {
        let attr = DeviceAttr {
            provider: "test",
            name: "regions only".into(),
            address: Ipv4Addr::LOCALHOST.into(),
            max_path_mtu: 1024,
            max_inline_data: 0,
            max_sge: 1,
            max_qp: 0,
            max_qp_wr: 0,
            max_mr: 1024,
            max_cq: 0,
            max_cqe: 1 << 20,
            max_msg: 1 << 31,
            can_listen: false,
            revokes: true,
        };
        Self { attr, state: Mutex::default() }
    }
}

impl DeviceModel {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

const NONE: Error = Error::Invalid("the test's device has no such objects");

/// Defines methods of [`Driver`] that always fail with the error [`NONE`].
macro_rules! failing {
    ($($name:ident($($given:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $(_: $given),*) -> Result<$result, Error> {
            Err(NONE)
        })*
    };
}

impl Driver for DeviceModel {
    fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn alloc_pd(&self) -> Result<PdId, Error> {
        Ok(PdId(1))
    }

    fn dealloc_pd(&self, _: PdId) -> Result<(), Error> {
        Ok(())
    }

    fn reg_mr(&self, _: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error> {
        let mut state = self.state();
        let key = state.regions.keys().next_back().map_or(1, |key| key + 1);
        state.regions.insert(key, (memory.clone(), access));
        Ok(MrKeys { lkey: key, rkey: key })
    }

    fn set_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error> {
        let mut state = self.state();
        if state.broken {
            return Err(NONE);
        }
        state.regions.get_mut(&lkey).ok_or(NONE)?.1 = access;
        Ok(())
    }

    fn dereg_mr(&self, lkey: u32) -> Result<(), Error> {
        self.state().regions.remove(&lkey).map(drop).ok_or(NONE)
    }

    fn create_cq(&self, _: u32) -> Result<CqId, Error> {
        Ok(CqId(1))
    }

    fn create_qp(&self, _: &QpInit) -> Result<QpNum, Error> {
        Ok(QpNum(1))
    }

    fn destroy_qp(&self, _: QpNum) -> Result<(), Error> {
        Ok(())
    }

    fn post_recv(&self, _: QpNum, _: &RecvWr<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn post_send(&self, _: QpNum, _: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        Ok(())
    }

    failing! {
        destroy_cq(CqId) -> ();
        poll_cq(CqId, &mut [Wc]) -> usize;
        create_channel() -> ChannelId;
        destroy_channel(ChannelId) -> ();
        next_event(ChannelId) -> Option<CmEvent>;
        listen(ChannelId, u16, u32) -> (CmId, u16);
        connect(ChannelId, QpNum, SocketAddr, &ConnParam) -> CmId;
        accept(CmId, QpNum, &ConnParam) -> ();
        reject(CmId, &[u8]) -> ();
        disconnect(CmId) -> ();
        destroy_id(CmId) -> ();
        wait(WaitOn, WaitMode, Option<Instant>) -> Wake;
        wait_beside(WaitOn, BorrowedFd<'_>, Option<Instant>) -> Wake;
        descriptor(WaitOn) -> OwnedFd;
        arm(WaitOn) -> bool;
    }

    fn interrupt(&self, _: WaitOn) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
