//! Connection identifiers, and the channels through which their events arrive.

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

// SAFETY: a handle; librdmacm is thread-safe.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// An event, copied out of librdmacm.
#[derive(Debug)]
pub(crate) struct RawEvent {
    /// The identifier of the event's connection, as returned by [`CmId::raw`].
    pub(crate) id: usize,
    pub(crate) what: What,
    pub(crate) private_data: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum What {
    AddressResolved,
    RouteResolved,
    /// There is no route to the peer; the local error, if there is one.
    Unresolved(Option<i32>),
    Request(Box<ConnRequest>),
    Response,
    Established,
    Rejected(u16),
    Unreachable,
    Disconnected,
    /// The device is being removed.
    Removed,
    /// An event on which a program need not act.
    Other,
}

/// A peer's request for a connection.
#[derive(Debug)]
pub(crate) struct ConnRequest {
    pub(crate) id: CmId,
    /// The identifier of the listener, as returned by [`CmId::raw`].
    pub(crate) listener: usize,
    pub(crate) endpoints: Endpoints,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl EventChannel {
    pub(crate) fn new(library: &'static Library) -> Result<Self, Error> {
        // SAFETY: takes nothing.
        let channel = unsafe { library.rdma_create_event_channel() };
        let channel = NonNull::new(channel).ok_or_else(|| no_channel(errno()))?;
        let made = Self { channel, maker: Maker::this(), library };
        poll::set_nonblocking(made.fd())
            .map_err(|e| Error::io("cannot prepare librdmacm's event channel", e))?;
        Ok(made)
    }

    /// The file descriptor that is readable when an event has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel, which is as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// The next event, if one has arrived.
    pub(crate) fn next(self: &Arc<Self>) -> io::Result<Option<RawEvent>> {
        let mut event: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: the channel is ours and `event` is written.
        if unsafe { self.library.rdma_get_cm_event(self.channel.as_ptr(), &mut event) } != 0 {
            let error = errno();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let Some(event) = NonNull::new(event) else { return Ok(None) };
        // SAFETY: valid until acknowledged, which is after the copy.
        let copied = unsafe { self.copy(event.as_ref()) };
        // SAFETY: acknowledged once.
        unsafe { self.library.rdma_ack_cm_event(event.as_ptr()) };
        Ok(Some(copied))
    }

    /// # Safety
    /// `event` came from this channel and was not acknowledged yet.
    unsafe fn copy(self: &Arc<Self>, event: &rdma_cm_event) -> RawEvent {
        // SAFETY: identifiers are of RDMA_PS_TCP, so the union holds `conn`, in all events zeroed or filled.
        let conn = unsafe { event.param.conn };
        let private_data = match NonNull::new(conn.private_data.cast_mut()) {
            // SAFETY: so many bytes are there until the event is acknowledged.
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
            // SAFETY: a request's identifier is new, and this program's.
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

    /// # Safety
    /// `event` is a connection request that was not handled yet: its identifier then belongs to the result.
    unsafe fn request(
        self: &Arc<Self>,
        event: &rdma_cm_event,
        conn: &rdma_conn_param,
    ) -> Option<ConnRequest> {
        let id = CmId { id: NonNull::new(event.id)?, channel: self.clone() };
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
        // SAFETY: ours, and its identifiers held it and are gone.
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
pub(crate) struct CmId {
    id: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: a handle; librdmacm is thread-safe.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    pub(crate) fn new(channel: &Arc<EventChannel>) -> Result<Self, Error> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel lives as long as the identifier, which is written to `id`.
        let code = unsafe {
            channel.library.rdma_create_id(channel.channel.as_ptr(), &mut id, ptr::null_mut(), c::RDMA_PS_TCP)
        };
        check(code).map_err(|e| Error::io("librdmacm makes no connection identifier", e))?;
        let id = NonNull::new(id).ok_or(Error::Invalid("librdmacm made no connection identifier"))?;
        Ok(Self { id, channel: channel.clone() })
    }

    /// The number that identifies the connection in events.
    pub(crate) fn raw(&self) -> usize {
        self.id.as_ptr() as usize
    }

    /// The context of the device to which the identifier is bound.
    pub(super) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: lives as long as `self`.
        NonNull::new(unsafe { self.id.as_ref().verbs })
    }

    pub(super) fn port_num(&self) -> u8 {
        // SAFETY: lives as long as `self`.
        unsafe { self.id.as_ref().port_num }
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let mut local = address::to_c(local);
        // SAFETY: the address lives through the call.
        check(unsafe { self.library().rdma_bind_addr(self.id.as_ptr(), (&raw mut local).cast()) })
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is ours.
        check(unsafe { self.library().rdma_listen(self.id.as_ptr(), backlog) })
    }

    pub(crate) fn port(&self) -> u16 {
        // SAFETY: the identifier is ours.
        u16::from_be(unsafe { self.library().rdma_get_src_port(self.id.as_ptr()) })
    }

    /// [`What::AddressResolved`] or [`What::Unresolved`] follows.
    pub(crate) fn resolve_address(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        limit: Duration,
    ) -> io::Result<()> {
        let (mut local, mut remote) = (address::to_c(local), address::to_c(remote));
        let (local, remote) = ((&raw mut local).cast(), (&raw mut remote).cast());
        // SAFETY: the addresses live through the call.
        check(unsafe { self.library().rdma_resolve_addr(self.id.as_ptr(), local, remote, millis(limit)) })
    }

    /// [`What::RouteResolved`] or [`What::Unresolved`] follows.
    pub(crate) fn resolve_route(&self, limit: Duration) -> io::Result<()> {
        // SAFETY: the identifier is ours.
        check(unsafe { self.library().rdma_resolve_route(self.id.as_ptr(), millis(limit)) })
    }

    /// Sets the time for which the peer's connection manager and the own one wait for acknowledgements. Kernels before
    /// 5.1 keep the default.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) {
        let mut timeout = timeout;
        let (level, name) = (c::RDMA_OPTION_ID as c_int, c::RDMA_OPTION_ID_ACK_TIMEOUT as c_int);
        // SAFETY: one byte is readable.
        let code = unsafe {
            self.library().rdma_set_option(self.id.as_ptr(), level, name, (&raw mut timeout).cast(), 1)
        };
        if code != 0 {
            tracing::debug!(error = %errno(), "this kernel takes no ACK timeout for the peer");
        }
    }

    /// [`What::Response`], [`What::Rejected`] or [`What::Unreachable`] follows.
    pub(crate) fn connect(&self, qp: QpNum, param: &ConnParam) -> io::Result<()> {
        let mut conn = conn_param(qp, param)?;
        // SAFETY: parameters and private data live through the call.
        check(unsafe { self.library().rdma_connect(self.id.as_ptr(), &mut conn) })
    }

    /// Confirms the peer's response.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is ours.
        check(unsafe { self.library().rdma_establish(self.id.as_ptr()) })
    }

    pub(crate) fn accept(&self, qp: QpNum, param: &ConnParam) -> io::Result<()> {
        let mut conn = conn_param(qp, param)?;
        // SAFETY: as in `connect`.
        check(unsafe { self.library().rdma_accept(self.id.as_ptr(), &mut conn) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: `len` bytes are readable through the call.
        check(unsafe { self.library().rdma_reject(self.id.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Notifies the peer that the connection ends, or confirms the peer's notification.
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is ours.
        check(unsafe { self.library().rdma_disconnect(self.id.as_ptr()) })
    }

    /// The attributes that the connection manager wants for a queue pair in `state`.
    pub(super) fn qp_attr(&self, state: c::ibv_qp_state) -> io::Result<(ibv_qp_attr, c::ibv_qp_attr_mask)> {
        let mut attr = zeroed_attr();
        attr.qp_state = state;
        let mut mask = 0;
        // SAFETY: both places are written.
        check_code(unsafe { self.library().rdma_init_qp_attr(self.id.as_ptr(), &mut attr, &mut mask) })?;
        Ok((attr, mask as c::ibv_qp_attr_mask))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: lives as long as `self`; the union has room for any address.
        unsafe { address::from_c((&raw const (*self.id.as_ptr()).route.addr.__bindgen_anon_1).cast()) }
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        unsafe { address::from_c((&raw const (*self.id.as_ptr()).route.addr.__bindgen_anon_2).cast()) }
    }

    fn library(&self) -> &'static Library {
        self.channel.library
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if !self.channel.maker.is_this() {
            return;
        }
        // SAFETY: ours. It waits for events to be acknowledged, which `EventChannel::next` does at once.
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
