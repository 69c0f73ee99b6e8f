//! The objects of verbs, such as regions and queue pairs, as Rust values. Each value has references to the values on
//! which it depends. An object of the device is released when the last value that refers to this object is dropped.

use std::{
    fmt,
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use crate::{
    Access, ChannelId, CmEvent, CmId, ConnParam, CqId, DeviceAttr, Driver, Error, Memory, MrKeys, PdId,
    QpCap, QpInit, QpNum, RecvWr, SendWr, Sge, WaitMode, WaitOn, Wake, Wc,
};

/// An opened device.
#[derive(Clone)]
pub struct Context(Arc<dyn Driver>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(self.attr()).finish()
    }
}

impl Context {
    /// Makes a context from a provider's driver; [`Context::driver`] returns this driver.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self(driver)
    }

    /// The driver of the provider that opened the device.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0
    }

    /// The properties and limits of the device.
    pub fn attr(&self) -> &DeviceAttr {
        self.0.attr()
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] or [`Error::Exhausted`] if the operating system refuses the protection domain.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        // Every object that uses the protection domain has a clone of `Pd`, so no object uses the protection domain
        // when the last clone is dropped.
        Ok(Pd(Arc::new(self.owned(self.0.alloc_pd()?, |driver, id| driver.dealloc_pd(id)))))
    }

    /// Creates a completion queue with room for `depth` completions.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::create_cq`].
    pub fn create_cq(&self, depth: u32) -> Result<Cq, Error> {
        Ok(Cq(Arc::new(self.owned(self.0.create_cq(depth)?, |driver, id| driver.destroy_cq(id)))))
    }

    /// Moves completions of `cq` to `out`, the oldest first, and takes the oldest CM event of `channel`. Returns the
    /// number of completions, and the CM event.
    ///
    /// # Errors
    /// Fails with the same errors as [`Cq::poll`] and [`Channel::next_event`].
    pub fn poll(
        &self,
        cq: &Cq,
        channel: &Channel,
        out: &mut [Wc],
    ) -> Result<(usize, Option<CmEvent>), Error> {
        self.0.poll(cq.id(), channel.id(), out)
    }

    /// Creates a channel for listeners and connections.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system refuses to create the channel.
    pub fn create_channel(&self) -> Result<Channel, Error> {
        Ok(Channel(Arc::new(self.owned(self.0.create_channel()?, |driver, id| driver.destroy_channel(id)))))
    }

    fn owned<I: Copy>(&self, id: I, release: fn(&dyn Driver, I) -> Result<(), Error>) -> Owned<I> {
        Owned { context: self.clone(), id, release }
    }

    /// Waits until an object of `on` has something to poll, until `deadline`, or until a call of [`Driver::interrupt`]
    /// ends the wait. [`Driver::wait`] says which thread makes the turns of the embedded provider's engine meanwhile.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the completion queue or the channel of `on` is destroyed.
    pub fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.0.wait(on, mode, deadline)
    }

    /// Waits like [`Context::wait`] in the mode [`WaitMode::Block`], but also returns [`Wake::Ready`] when the file
    /// descriptor `beside` is readable. [`Driver::wait_beside`] describes in which case nothing watches `beside`.
    ///
    /// # Errors
    /// Fails with the same errors as [`Context::wait`].
    pub fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        self.0.wait_beside(on, beside, deadline)
    }

    /// Returns a file descriptor on which the event loop of a program can sleep. [`Driver::descriptor`] says when it
    /// becomes readable.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::descriptor`].
    pub fn descriptor(&self, on: WaitOn) -> Result<OwnedFd, Error> {
        self.0.descriptor(on)
    }

    /// Arms the file descriptor that [`Context::descriptor`] returned for `on`, for one notification. Returns false if
    /// an object of `on` already has something to poll.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::arm`].
    pub fn arm(&self, on: WaitOn) -> Result<bool, Error> {
        self.0.arm(on)
    }
}

/// Owns the object with the id `id` of the device `context`. When the `Owned` is dropped, the function `release`
/// releases the object.
#[derive(Debug)]
struct Owned<I: Copy> {
    context: Context,
    id: I,
    release: fn(&dyn Driver, I) -> Result<(), Error>,
}

impl<I: Copy> Drop for Owned<I> {
    fn drop(&mut self) {
        let _ = (self.release)(&*self.context.0, self.id);
    }
}

/// A protection domain. The clones of a `Pd` refer to the same protection domain.
#[derive(Clone, Debug)]
pub struct Pd(Arc<Owned<PdId>>);

impl Pd {
    /// The device of the protection domain.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Registers `memory` with the rights `access`.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the device has no room for another region, or if the limit of locked memory
    /// is reached. Fails with [`Error::Io`] if the operating system refuses the registration for any reason other than
    /// the limit of locked memory.
    pub fn reg_mr(&self, memory: &Memory, access: Access) -> Result<Mr, Error> {
        let keys = self.0.context.0.reg_mr(self.0.id, memory, access)?;
        Ok(Mr { pd: self.clone(), memory: memory.clone(), keys })
    }

    /// Creates a queue pair in this protection domain, with one completion queue for sends and one for receives.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::create_qp`].
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq, cap: QpCap) -> Result<Qp, Error> {
        let init = QpInit { pd: self.0.id, send_cq: send_cq.id(), recv_cq: recv_cq.id(), cap };
        let num = self.context().0.create_qp(&init)?;
        let owned = self.context().owned(num, |driver, num| driver.destroy_qp(num));
        Ok(Qp { owned, _pd: self.clone(), _cqs: [send_cq.clone(), recv_cq.clone()] })
    }
}

/// A registered memory region, which is deregistered when the `Mr` is dropped.
#[derive(Debug)]
pub struct Mr {
    memory: Memory,
    keys: MrKeys,
    // Rust drops fields in the order of their declaration, and `memory` must be dropped before `pd`. The verbs provider
    // may keep the registration of a dropped `Mr`, so that a later `Mr` with the same memory can use it. When the last
    // clone of `pd` is dropped, the provider removes each kept registration whose memory has no owner any more.
    // `memory` may be the last reference to the owner, so it must be dropped first.
    pd: Pd,
}

impl Mr {
    /// The memory of the region.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The LKey, by which this program's work requests name the region.
    pub fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    /// The RKey, which the packets of peers must contain to access the region.
    pub fn rkey(&self) -> u32 {
        self.keys.rkey
    }

    /// The address of the region's first byte, which peers use in WRITEs and READs.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Changes the access rights of peers to the region. [`Driver::set_mr_access`] says which changes are possible.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::set_mr_access`].
    pub fn set_access(&self, access: Access) -> Result<(), Error> {
        self.pd.context().0.set_mr_access(self.keys.lkey, access)
    }

    /// Returns the scatter-gather element of the `length` bytes that begin at `offset` in the region.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.memory.addr() + offset, length, lkey: self.keys.lkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let _ = self.pd.context().0.dereg_mr(self.keys.lkey);
    }
}

/// A completion queue. The clones of a `Cq` refer to the same completion queue.
#[derive(Clone, Debug)]
pub struct Cq(Arc<Owned<CqId>>);

impl Cq {
    /// The id of the completion queue, for [`WaitOn`].
    pub fn id(&self) -> CqId {
        self.0.id
    }

    /// Moves completions to `out`, the oldest first, and returns the number of completions that were moved.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the device reports that the completion queue has failed.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, Error> {
        self.0.context.0.poll_cq(self.0.id, out)
    }

    /// Takes the oldest completion; returns `None` if the completion queue is empty.
    ///
    /// # Errors
    /// Fails with the same errors as [`Cq::poll`].
    pub fn poll_one(&self) -> Result<Option<Wc>, Error> {
        let mut one = [Wc::EMPTY];
        Ok(if self.poll(&mut one)? == 1 { Some(one[0]) } else { None })
    }

    /// Waits until the completion queue has a completion, until `deadline`, or until a call of
    /// [`Driver::interrupt`] ends the wait.
    ///
    /// # Errors
    /// Fails with the same errors as [`Context::wait`].
    pub fn wait(&self, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.0.context.wait(WaitOn { cq: Some(self.0.id), channel: None }, mode, deadline)
    }
}

/// A reliable-connected queue pair, which is destroyed when the `Qp` is dropped.
#[derive(Debug)]
pub struct Qp {
    // Rust drops fields in the order of their declaration, so the queue pair is destroyed before the objects that it
    // uses.
    owned: Owned<QpNum>,
    _pd: Pd,
    _cqs: [Cq; 2],
}

impl Qp {
    /// The queue pair's number.
    pub fn num(&self) -> QpNum {
        self.owned.id
    }

    /// Posts all work requests of `wrs` in order.
    ///
    /// # Errors
    /// Fails with the index of the first work request that was not posted, together with the [`Error`] of this work
    /// request. The work requests before the returned index were posted.
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.owned.context.0.post_send(self.num(), wrs)
    }

    /// Posts a receive. The messages of the peer fill the receives in the order in which the receives were posted.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the receive queue is full. The embedded provider fails with
    /// [`Error::LocalProtection`] if a scatter-gather element does not lie inside the region of its LKey, or if the
    /// region does not permit the access. Fails with [`Error::Invalid`] if the device refuses the receive for another
    /// reason, for example because it has too many elements.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        self.owned.context.0.post_recv(self.num(), wr)
    }
}

/// A queue of CM events. Its methods set up and end connections, which causes CM events. The clones of a `Channel`
/// refer to the same channel.
#[derive(Clone, Debug)]
pub struct Channel(Arc<Owned<ChannelId>>);

impl Channel {
    /// The id of the channel, for [`WaitOn`].
    pub fn id(&self) -> ChannelId {
        self.0.id
    }

    fn driver(&self) -> &dyn Driver {
        &*self.0.context.0
    }

    /// Takes the oldest CM event; returns `None` if the channel has no CM event.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if reading CM events from the operating system fails.
    pub fn next_event(&self) -> Result<Option<CmEvent>, Error> {
        self.driver().next_event(self.0.id)
    }

    /// Waits until the channel has a CM event, until `deadline`, or until a call of [`Driver::interrupt`]
    /// ends the wait.
    ///
    /// # Errors
    /// Fails with the same errors as [`Context::wait`].
    pub fn wait(&self, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.0.context.wait(WaitOn { cq: None, channel: Some(self.0.id) }, mode, deadline)
    }

    /// Accepts connection requests to the TCP-space port `port`, and returns the listener's id and port. If `port` is
    /// 0, the provider chooses a free port. `backlog` is the maximum number of connection requests that may wait for
    /// the program.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::listen`].
    pub fn listen(&self, port: u16, backlog: u32) -> Result<(CmId, u16), Error> {
        self.driver().listen(self.0.id, port, backlog)
    }

    /// Starts to connect `qp` to the listener at `remote`, whose port is a TCP-space port (RDMA_PS_TCP). The attempt
    /// ends with a CM event of this channel: `Established`, `Rejected` or `Unreachable`.
    ///
    /// # Errors
    /// Fails with [`Error::Invalid`] if a value of `param` is out of range, or if `remote` is not of the address
    /// family of the device.
    pub fn connect(&self, qp: &Qp, remote: SocketAddr, param: &ConnParam) -> Result<CmId, Error> {
        self.driver().connect(self.0.id, qp.num(), remote, param)
    }

    /// Connects `qp` to the peer whose connection request has the id `id`. The program must post receives before this
    /// call.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the request does not exist any more. The method can also fail with the errors
    /// of [`Driver::accept`].
    pub fn accept(&self, id: CmId, qp: &Qp, param: &ConnParam) -> Result<(), Error> {
        self.driver().accept(id, qp.num(), param)
    }

    /// Rejects the connection request `id` with the reason
    /// [`CONSUMER_DEFINED`](crate::RejectReason::CONSUMER_DEFINED) and at most 148 bytes of private data.
    ///
    /// # Errors
    /// Fails with the same errors as [`Driver::reject`].
    pub fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        self.driver().reject(id, private_data)
    }

    /// Disconnects the connection: flushes the queue pair and notifies the peer.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no connection has the id `id`.
    pub fn disconnect(&self, id: CmId) -> Result<(), Error> {
        self.driver().disconnect(id)
    }

    /// Destroys a listener or a connection, and removes its CM events from the channel.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no listener and no connection has the id `id`.
    pub fn destroy_id(&self, id: CmId) -> Result<(), Error> {
        self.driver().destroy_id(id)
    }
}
