//! One end of a connection, for the tests.
#![allow(dead_code, unreachable_pub, missing_debug_implementations, unsafe_code)]

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::{AtomicU8, Ordering},
    time::{Duration, Instant},
};

use roce_udp::{EmbeddedConfig, open};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, Wake, Wc, WcStatus,
};

pub struct Side {
    pub context: Context,
    pub pd: Pd,
    pub cq: Cq,
    pub channel: Channel,
    pub qp: Qp,
}

pub fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(10))
}

impl Side {
    /// Makes one end of a connection, on a device of its own.
    pub fn new() -> Self {
        Self::on(device(address(), &EmbeddedConfig::default()))
    }

    pub fn on(context: Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let channel = context.create_channel().unwrap();
        let qp = pd.create_qp(&cq, &cq, QpCap::default()).unwrap();
        Self { context, pd, cq, channel, qp }
    }

    pub fn region(&self, len: usize) -> Mr {
        self.pd.reg_mr(&region::alloc(len).unwrap(), Access::ALL).unwrap()
    }

    pub fn event(&self) -> CmEvent {
        loop {
            if let Some(event) = self.channel.next_event().unwrap() {
                return event;
            }
            assert_ne!(self.channel.wait(WaitMode::Block, deadline()).unwrap(), Wake::TimedOut);
        }
    }

    pub fn completion(&self, mode: WaitMode) -> Wc {
        loop {
            if let Some(wc) = self.cq.poll_one().unwrap() {
                return wc;
            }
            assert_ne!(self.cq.wait(mode, deadline()).unwrap(), Wake::TimedOut);
        }
    }

    pub fn post(&self, op: SendOp, payload: Payload<'_>) {
        let wr = SendWr { wr_id: 7, op, payload, flags: SendFlags::SIGNALED_SOLICITED };
        self.qp.post_send(&[wr]).unwrap();
    }
}

pub fn device(ip: IpAddr, options: &EmbeddedConfig) -> Context {
    open(ip, &EmbeddedConfig { must_listen: true, ..options.clone() }).unwrap()
}

/// Returns a loopback address. The address depends on the process id, so that different tests and test runs usually get
/// different addresses.
pub fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, 64 | high & 0x3f, low, NEXT.fetch_add(1, Ordering::Relaxed)])
}

pub fn connect(a: &Side, b: &Side) -> (CmId, CmId) {
    let (listener, port) = b.channel.listen(0, 8).unwrap();
    let remote = SocketAddr::new(b.context.attr().address, port);
    let param = ConnParam { private_data: b"hello".to_vec(), ..ConnParam::default() };
    let active = a.channel.connect(&a.qp, remote, &param).unwrap();
    let CmEvent::ConnectRequest { id: passive, param, .. } = b.event() else { panic!("no request") };
    assert_eq!(&param.private_data[..5], b"hello");
    b.channel.accept(passive, &b.qp, &ConnParam::default()).unwrap();
    assert!(matches!(a.event(), CmEvent::Established { .. }));
    assert!(matches!(b.event(), CmEvent::Established { .. }));
    b.channel.destroy_id(listener).unwrap();
    (active, passive)
}

pub fn remote(mr: &Mr) -> RemoteAddr {
    RemoteAddr { addr: mr.addr(), rkey: mr.rkey() }
}

/// Returns `len` bytes whose values depend on their positions and on `seed`.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// Sets the option `name` of a socket, at the level `level`, to the value `value`.
pub fn set_option(socket: &impl AsFd, (level, name): (libc::c_int, libc::c_int), value: libc::c_int) {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is an integer of 4 bytes, and the last argument is this length.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Sets an option of the UDP socket of the device on `local`. The function sets the option without a call of the
/// device, so the code of the device does not know the new value.
pub fn set_device_option(local: IpAddr, option: (libc::c_int, libc::c_int), value: libc::c_int) {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let of_device = |fd: &libc::c_int| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        // SAFETY: `socket` is used only if `fd` is a socket, and the devices of the test keep their sockets open.
        let socket = unsafe { BorrowedFd::borrow_raw(*fd) };
        link.to_string_lossy().starts_with("socket:")
            && socket.try_clone_to_owned().is_ok_and(|socket| {
                UdpSocket::from(socket).local_addr().is_ok_and(|addr| addr == SocketAddr::new(local, 4791))
            })
    };
    let fd = numbers.find(of_device).expect("the device's socket");
    // SAFETY: `fd` is the socket of a device, and the devices of the test keep their sockets open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    set_option(&socket, option, value);
}

/// Sends `len` bytes from `a` to `b` by a WRITE, and fetches them back by a READ.
pub fn round_trip(a: &Side, b: &Side, len: usize) {
    let (source, target, back) = (a.region(len), b.region(len), a.region(len));
    let data = pattern(len, 9);
    source.memory().write(0, &data);
    a.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, len as u32)]));
    assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
    assert!(target.memory().to_vec(0, len) == data);
    a.post(SendOp::Read(remote(&target)), Payload::Sges(&[back.sge(0, len as u32)]));
    assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
    assert!(back.memory().to_vec(0, len) == data);
}

/// Returns the value of the device's counter with the name `name`.
pub fn counter(context: &Context, name: &str) -> u64 {
    let counters = context.driver().counters();
    counters.iter().find(|(its, _)| *its == name).unwrap_or_else(|| panic!("no {name} in {counters:?}")).1
}
