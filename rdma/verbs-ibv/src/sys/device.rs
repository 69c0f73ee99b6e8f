//! An opened RDMA device with its limits. A connection identifier that is bound to an address of the device keeps the
//! device open.

use std::{mem::MaybeUninit, net::IpAddr, net::SocketAddr, ptr::NonNull, sync::Arc};

use verbs::Error;

use super::{
    Caps, EventChannel, Maker, RawCmId, RawPd, RawQp,
    bindings::{IBV_MTU_256, IBV_MTU_4096, Library, ibv_context, ibv_device_attr, ibv_port_attr},
    check_code,
    cq::RawCq,
};

/// The limits that the device and its port report. A limit is 0 if the device reports a negative number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLimits {
    pub(crate) path_mtu: u32,
    pub(crate) max_msg: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    /// Two limits for the number of outstanding READs of one queue pair. `max_reads.0` applies to the responder of the
    /// queue pair, and `max_reads.1` applies to the requester.
    pub(crate) max_reads: (u8, u8),
    pub(crate) max_inline: u32,
}

/// An opened device. librdmacm opens each device once per process, so that all objects of this crate and all connection
/// identifiers of a device share one context.
#[derive(Debug)]
pub(crate) struct IbvDevice {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<ibv_context>,
    pub(crate) port: u8,
    pub(crate) maker: Maker,
    /// The bound connection identifier, which keeps the context open.
    _bound: RawCmId,
    _channel: Arc<EventChannel>,
}

// SAFETY: `context` points to a context that librdmacm allocated, and that stays open until `_bound` is dropped. The
// functions of libibverbs and librdmacm may be called from any thread (ibv_* manual pages: thread safe).
unsafe impl Send for IbvDevice {}
// SAFETY: `context` stays open until `_bound` is dropped, and libibverbs and librdmacm allow concurrent calls from
// several threads.
unsafe impl Sync for IbvDevice {}

impl IbvDevice {
    /// Opens the device that has the address `local`.
    ///
    /// # Errors
    /// Returns [`Error::NoDevice`] if no device has the address.
    pub(crate) fn open(library: &'static Library, local: IpAddr) -> Result<Arc<Self>, Error> {
        let channel = Arc::new(EventChannel::new(library)?);
        let bound = RawCmId::new(&channel)?;
        bound.bind(SocketAddr::new(local, 0)).map_err(|error| cannot_bind(local, error))?;
        let context = bound.context().ok_or_else(|| nobody_has(local))?;
        let port = bound.port_num();
        let maker = Maker::this();
        Ok(Arc::new(Self { library, context, port, maker, _bound: bound, _channel: channel }))
    }

    pub(crate) fn limits(self: &Arc<Self>) -> Result<DeviceLimits, Error> {
        let failed = |what: &'static str| move |error| Error::io(what, error);
        let mut device = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: `self.context` points to an open context, and the call writes the attributes to the local variable
        // `device`.
        check_code(unsafe { self.library.ibv_query_device(self.context.as_ptr(), device.as_mut_ptr()) })
            .map_err(failed("cannot ask the device for its limits"))?;
        // SAFETY: `ibv_device_attr` has only numbers as fields, and all fields were set to zero before the call.
        let device = unsafe { device.assume_init() };
        let mut port = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: `self.context` points to an open context. The exported function `ibv_query_port` writes only the
        // first part of the structure. The local variable `port` has the size of the whole structure, so nothing
        // outside `port` is written.
        check_code(unsafe {
            self.library.ibv_query_port(self.context.as_ptr(), self.port, port.as_mut_ptr().cast())
        })
        .map_err(failed("cannot ask the device for its port"))?;
        // SAFETY: `ibv_port_attr` has only numbers as fields, and all fields were set to zero before the call.
        let port = unsafe { port.assume_init() };
        let count = |n: std::ffi::c_int| u32::try_from(n).unwrap_or(0);
        let reads = |n: std::ffi::c_int| u8::try_from(n.clamp(0, 255)).unwrap_or(0);
        Ok(DeviceLimits {
            path_mtu: mtu_bytes(port.active_mtu).unwrap_or(256),
            max_msg: port.max_msg_sz,
            max_qp: count(device.max_qp),
            max_qp_wr: count(device.max_qp_wr),
            max_sge: count(device.max_sge),
            max_cq: count(device.max_cq),
            max_cqe: count(device.max_cqe),
            max_mr: count(device.max_mr),
            max_reads: (reads(device.max_qp_rd_atom), reads(device.max_qp_init_rd_atom)),
            max_inline: self.max_inline()?,
        })
    }

    /// Returns the number of bytes of inline data that one work request may have. libibverbs has no query for this
    /// limit. The function therefore tries to create a queue pair with 512 bytes of inline data, and tries again with
    /// fewer bytes if the device refuses.
    fn max_inline(self: &Arc<Self>) -> Result<u32, Error> {
        let pd = Arc::new(RawPd::new(self)?);
        let cq = Arc::new(RawCq::new(self, 1)?);
        let with = |max_inline| {
            RawQp::new(&pd, &cq, &cq, Caps { max_send_wr: 1, max_recv_wr: 1, max_sge: 1, max_inline })
        };
        let made = [256, 128, 64, 0].into_iter().fold(with(512), |made, fewer| made.or_else(|_| with(fewer)));
        made.map(|qp| qp.caps().max_inline).map_err(|e| Error::io("the device makes no queue pair", e))
    }
}

/// Returns the path MTU in bytes for the libibverbs code `code`, or `None` if the code is unknown.
pub(super) fn mtu_bytes(code: std::ffi::c_uint) -> Option<u32> {
    // The codes are consecutive, and each stands for twice as many bytes as the code before it.
    (IBV_MTU_256..=IBV_MTU_4096).contains(&code).then(|| 256 << (code - IBV_MTU_256))
}

fn nobody_has(local: IpAddr) -> Error {
    Error::NoDevice(format!(
        "no RDMA device has the address {local}; `rdma link` lists devices, and on any interface \
         `rdma link add rxe0 type rxe netdev INTERFACE` makes one in software"
    ))
}

fn cannot_bind(local: IpAddr, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENODEV) => nobody_has(local),
        Some(libc::EADDRNOTAVAIL) => {
            Error::NoDevice(format!("{local} is not an address of this machine; `ip addr` lists them"))
        }
        _ => Error::io(format!("librdmacm cannot use {local}"), error),
    }
}
