//! The connection identifiers of librdmacm, and the channels on which their events arrive.

use std::{
    ffi::c_int,
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::Arc,
    time::Duration,
};

use verbs::{ConnParam, Endpoints, Error, QpNum};

use super::{
    Maker, address, bindings as c,
    bindings::{
        Library, ibv_context, ibv_qp_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    },
    check, check_code, errno, poll,
    qp::zeroed_attr,
};

#[derive(Debug)]
pub(crate) struct EventChannel {
    channel: NonNull<rdma_event_channel>,
    maker: Maker,
    library: &'static Library,
}

// SAFETY: `channel` points to an event channel that `rdma_create_event_channel` allocated and that only `Drop` frees.
// librdmacm allows calls from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: `channel` stays valid until `Drop`, and librdmacm allows concurrent calls from several threads.
unsafe impl Sync for EventChannel {}

/// A copy of an event of librdmacm.
#[derive(Debug)]
pub(crate) struct RawEvent {
    /// The identifier of the event's connection, as returned by [`RawCmId::raw`].
    pub(crate) id: usize,
    pub(crate) what: What,
    pub(crate) private_data: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum What {
    AddressResolved,
    RouteResolved,
    /// The address or the route of the peer was not resolved. The variant contains the error number that the Linux
    /// kernel of this machine reported, or `None` if it reported none.
    Unresolved(Option<i32>),
    Request(Box<ConnRequest>),
    Response,
    Established,
    Rejected(u16),
    Unreachable,
    Disconnected,
    /// The device is being removed.
    Removed,
    /// An event of librdmacm that requires no action of the program.
    Other,
}

/// A peer's request for a connection.
#[derive(Debug)]
pub(crate) struct ConnRequest {
    pub(crate) id: RawCmId,
    /// The identifier of the listener, as returned by [`RawCmId::raw`].
    pub(crate) listener: usize,
    pub(crate) endpoints: Endpoints,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl EventChannel {
    pub(crate) fn new(library: &'static Library) -> Result<Self, Error> {
        // SAFETY: `rdma_create_event_channel` takes no arguments.
        let channel = unsafe { library.rdma_create_event_channel() };
        let channel = NonNull::new(channel).ok_or_else(|| no_channel(errno()))?;
        let made = Self { channel, maker: Maker::this(), library };
        poll::set_nonblocking(made.fd())
            .map_err(|e| Error::io("cannot prepare librdmacm's event channel", e))?;
        Ok(made)
    }

    /// Returns the file descriptor, which is readable when an event of librdmacm has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `self.channel` points to a channel that only `Drop` frees, and the file descriptor stays open until
        // the channel is freed.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// Returns the next event of librdmacm, or `None` if no event has arrived.
    pub(crate) fn next(self: &Arc<Self>) -> io::Result<Option<RawEvent>> {
        let mut event: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: this `EventChannel` owns the channel, and the call writes a pointer to the local variable `event`.
        if unsafe { self.library.rdma_get_cm_event(self.channel.as_ptr(), &mut event) } != 0 {
            let error = errno();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let Some(event) = NonNull::new(event) else { return Ok(None) };
        // SAFETY: librdmacm allocated the event, which stays valid until it is acknowledged below.
        let copied = unsafe { self.copy(event.as_ref()) };
        // SAFETY: `rdma_get_cm_event` returned this event, which is acknowledged only here. Nobody uses the event after
        // the acknowledgement.
        unsafe { self.library.rdma_ack_cm_event(event.as_ptr()) };
        Ok(Some(copied))
    }

    /// Copies an event of librdmacm with its private data.
    ///
    /// # Safety
    /// `event` must have come from this channel, and must not have been acknowledged.
    unsafe fn copy(self: &Arc<Self>, event: &rdma_cm_event) -> RawEvent {
        // SAFETY: all identifiers have the port space RDMA_PS_TCP, so `conn` is the valid member of the union.
        // librdmacm has zeroed or filled `conn` in every event.
        let conn = unsafe { event.param.conn };
        let private_data = match NonNull::new(conn.private_data.cast_mut()) {
            // SAFETY: `data` points to `private_data_len` bytes that librdmacm allocated, and that stay valid until the
            // event is acknowledged.
            Some(data) => unsafe {
                std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), conn.private_data_len.into()).to_vec()
            },
            None => Vec::new(),
        };
        let error = (event.status < 0).then(|| -event.status);
        let what = match event.event {
            c::RDMA_CM_EVENT_ADDR_RESOLVED => What::AddressResolved,
            c::RDMA_CM_EVENT_ROUTE_RESOLVED => What::RouteResolved,
            c::RDMA_CM_EVENT_ADDR_ERROR | c::RDMA_CM_EVENT_ROUTE_ERROR => What::Unresolved(error),
            // SAFETY: this event is a connection request, whose new identifier belongs to this program and has no other
            // owner.
            c::RDMA_CM_EVENT_CONNECT_REQUEST => match unsafe { self.request(event, &conn) } {
                Some(request) => What::Request(Box::new(request)),
                None => What::Other,
            },
            c::RDMA_CM_EVENT_CONNECT_RESPONSE => What::Response,
            c::RDMA_CM_EVENT_ESTABLISHED => What::Established,
            c::RDMA_CM_EVENT_REJECTED => What::Rejected(u16::try_from(event.status).unwrap_or(0)),
            c::RDMA_CM_EVENT_UNREACHABLE | c::RDMA_CM_EVENT_CONNECT_ERROR => What::Unreachable,
            c::RDMA_CM_EVENT_DISCONNECTED => What::Disconnected,
            c::RDMA_CM_EVENT_DEVICE_REMOVAL => What::Removed,
            _ => What::Other,
        };
        RawEvent { id: event.id as usize, what, private_data }
    }

    /// Converts an event that reports a connection request to a [`ConnRequest`], and takes ownership of the request's
    /// identifier. Returns `None` if the request has no IP addresses.
    ///
    /// # Safety
    /// `event` must be a connection request that was not converted before. Each conversion makes a `RawCmId` that
    /// destroys the request's identifier when it is dropped, and the identifier must be destroyed only once.
    unsafe fn request(
        self: &Arc<Self>,
        event: &rdma_cm_event,
        conn: &rdma_conn_param,
    ) -> Option<ConnRequest> {
        let id = RawCmId { id: NonNull::new(event.id)?, channel: self.clone() };
        let endpoints = Endpoints { local: id.local_addr()?, remote: id.remote_addr()? };
        Some(ConnRequest {
            id,
            listener: event.listen_id as usize,
            endpoints,
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
        })
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        if !self.maker.is_this() {
            return;
        }
        // SAFETY: this `EventChannel` owns the channel. All identifiers of the channel have been destroyed, because
        // each identifier had a reference to this `EventChannel`.
        unsafe { self.library.rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}

fn no_channel(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS) => Error::NoDevice(
            "rdma-core finds no RDMA device; `modprobe rdma_ucm` loads its connection manager, and \
             `rdma link add rxe0 type rxe netdev INTERFACE` makes a device in software"
                .into(),
        ),
        Some(libc::EACCES | libc::EPERM) => Error::NoDevice(
            "no permission for /dev/infiniband/rdma_cm; see its group and mode (`ls -l /dev/infiniband`)"
                .into(),
        ),
        _ => Error::io("librdmacm makes no event channel", error),
    }
}

#[derive(Debug)]
pub(crate) struct RawCmId {
    id: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: `id` points to an identifier that librdmacm allocated and that only `Drop` frees. librdmacm allows calls from
// any thread.
unsafe impl Send for RawCmId {}
// SAFETY: `id` stays valid until `Drop`, and librdmacm allows concurrent calls from several threads.
unsafe impl Sync for RawCmId {}

impl RawCmId {
    pub(crate) fn new(channel: &Arc<EventChannel>) -> Result<Self, Error> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel outlives the identifier, because the new `RawCmId` keeps a reference to the channel. The
        // call writes a pointer to the local variable `id`.
        let code = unsafe {
            channel.library.rdma_create_id(channel.channel.as_ptr(), &mut id, ptr::null_mut(), c::RDMA_PS_TCP)
        };
        check(code).map_err(|e| Error::io("librdmacm makes no connection identifier", e))?;
        let id = NonNull::new(id).ok_or(Error::Invalid("librdmacm made no connection identifier"))?;
        Ok(Self { id, channel: channel.clone() })
    }

    /// Returns the number that identifies the connection or the listener in a [`RawEvent`].
    pub(crate) fn raw(&self) -> usize {
        self.id.as_ptr() as usize
    }

    /// Returns the context of the device to which the identifier is bound, or `None` if the identifier is not bound.
    pub(super) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: `self.id` points to an identifier that only `Drop` frees.
        NonNull::new(unsafe { self.id.as_ref().verbs })
    }

    pub(super) fn port_num(&self) -> u8 {
        // SAFETY: `self.id` points to an identifier that only `Drop` frees.
        unsafe { self.id.as_ref().port_num }
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let mut local = address::to_c(local);
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The local variable `local`
        // outlives the call.
        check(unsafe { self.library().rdma_bind_addr(self.id.as_ptr(), (&raw mut local).cast()) })
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees.
        check(unsafe { self.library().rdma_listen(self.id.as_ptr(), backlog) })
    }

    pub(crate) fn port(&self) -> u16 {
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees.
        u16::from_be(unsafe { self.library().rdma_get_src_port(self.id.as_ptr()) })
    }

    /// Starts to resolve the peer's address. librdmacm reports the result as the event [`What::AddressResolved`] or
    /// [`What::Unresolved`].
    pub(crate) fn resolve_address(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        limit: Duration,
    ) -> io::Result<()> {
        let (mut local, mut remote) = (address::to_c(local), address::to_c(remote));
        let (local, remote) = ((&raw mut local).cast(), (&raw mut remote).cast());
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The local variables that
        // contain the two addresses outlive the call.
        check(unsafe { self.library().rdma_resolve_addr(self.id.as_ptr(), local, remote, millis(limit)) })
    }

    /// Starts to resolve the route to the peer. librdmacm reports the result as the event [`What::RouteResolved`] or
    /// [`What::Unresolved`].
    pub(crate) fn resolve_route(&self, limit: Duration) -> io::Result<()> {
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees.
        check(unsafe { self.library().rdma_resolve_route(self.id.as_ptr(), millis(limit)) })
    }

    /// Sets the ACK timeout from which the connection managers of both sides derive the ACK timeouts of their queue
    /// pairs. Linux kernels before 5.1 keep the default timeout.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) {
        let mut timeout = timeout;
        let (level, name) = (c::RDMA_OPTION_ID as c_int, c::RDMA_OPTION_ID_ACK_TIMEOUT as c_int);
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The function
        // `rdma_set_option` reads one byte of the local variable `timeout`.
        let code = unsafe {
            self.library().rdma_set_option(self.id.as_ptr(), level, name, (&raw mut timeout).cast(), 1)
        };
        if code != 0 {
            tracing::debug!(error = %errno(), "this kernel takes no ACK timeout for the peer");
        }
    }

    /// Sends a connection request (REQ). librdmacm reports the result as the event [`What::Response`],
    /// [`What::Rejected`] or [`What::Unreachable`].
    pub(crate) fn connect(&self, qp: QpNum, param: &ConnParam) -> io::Result<()> {
        let mut conn = conn_param(qp, param)?;
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The parameters in `conn`
        // and the private data outlive the call.
        check(unsafe { self.library().rdma_connect(self.id.as_ptr(), &mut conn) })
    }

    /// Confirms the peer's reply (REP) with an RTU.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees.
        check(unsafe { self.library().rdma_establish(self.id.as_ptr()) })
    }

    pub(crate) fn accept(&self, qp: QpNum, param: &ConnParam) -> io::Result<()> {
        let mut conn = conn_param(qp, param)?;
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The parameters in `conn`
        // and the private data outlive the call.
        check(unsafe { self.library().rdma_accept(self.id.as_ptr(), &mut conn) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. `private_data` has `len`
        // readable bytes, and outlives the call.
        check(unsafe { self.library().rdma_reject(self.id.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Notifies the peer that the connection ends (DREQ), or confirms the peer's notification (DREP).
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees.
        check(unsafe { self.library().rdma_disconnect(self.id.as_ptr()) })
    }

    /// Returns the attributes that the connection manager requires for a queue pair in `state`, and the mask of these
    /// attributes.
    pub(super) fn qp_attr(&self, state: c::ibv_qp_state) -> io::Result<(ibv_qp_attr, c::ibv_qp_attr_mask)> {
        let mut attr = zeroed_attr();
        attr.qp_state = state;
        let mut mask = 0;
        // SAFETY: this `RawCmId` owns the identifier at `self.id`, which only `Drop` frees. The call writes to the
        // local variables `attr` and `mask`.
        check_code(unsafe { self.library().rdma_init_qp_attr(self.id.as_ptr(), &mut attr, &mut mask) })?;
        Ok((attr, mask as c::ibv_qp_attr_mask))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: `self.id` points to an identifier that only `Drop` frees. The union `__bindgen_anon_1` has room for
        // every type of socket address.
        unsafe { address::from_c((&raw const (*self.id.as_ptr()).route.addr.__bindgen_anon_1).cast()) }
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        // SAFETY: `self.id` points to an identifier that only `Drop` frees. The union `__bindgen_anon_2` has room for
        // every type of socket address.
        unsafe { address::from_c((&raw const (*self.id.as_ptr()).route.addr.__bindgen_anon_2).cast()) }
    }

    fn library(&self) -> &'static Library {
        self.channel.library
    }
}

impl Drop for RawCmId {
    fn drop(&mut self) {
        if !self.channel.maker.is_this() {
            return;
        }
        // SAFETY: this `RawCmId` owns the identifier, and nobody uses it after `Drop`. The call waits until all events
        // of the identifier are acknowledged. This wait is short, because `EventChannel::next` acknowledges each event
        // immediately.
        unsafe { self.library().rdma_destroy_id(self.id.as_ptr()) };
    }
}

fn millis(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

fn conn_param(qp: QpNum, param: &ConnParam) -> io::Result<rdma_conn_param> {
    let len = u8::try_from(param.private_data.len());
    Ok(rdma_conn_param {
        private_data: param.private_data.as_ptr().cast(),
        private_data_len: len.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: 1,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: 0,
        qp_num: qp.0,
    })
}
