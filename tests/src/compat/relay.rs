//! The recorder: a relay at the recorded host's address. A program connects to it as if it were the server, and the server
//! sees it as the host. Every packet that passes is written down as it is between the relay and the server.

use std::{
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    HOST, SEGMENT_PORT, SERVER,
    fields::{
        self, BEFORE_MAD, Cm, OPCODE, REQ_DESTINATION, REQ_LOCAL_GID, REQ_REMOTE_GID, REQ_SOURCE,
        UD_SEND_ONLY,
    },
    icrc,
    pcap::Datagram,
    replayer::ROCE_PORT,
};

/// Where an IPv4 address lies in the 16 bytes of a GID, and of an address in rdma_cm's header.
const IPV4_IN_GID: usize = 12;

/// Relays until it is asked for what it wrote down.
#[derive(Debug)]
pub(super) struct Relay {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Datagram>, String>>,
}

impl Relay {
    pub(super) fn start() -> Result<Self, String> {
        let bind = |port| {
            let socket =
                UdpSocket::bind((HOST, port)).map_err(|e| format!("cannot bind {HOST}:{port}: {e}"))?;
            socket.set_nonblocking(true).map_err(|e| e.to_string())?;
            Ok::<_, String>(socket)
        };
        let (roce, data) = (bind(ROCE_PORT)?, bind(SEGMENT_PORT)?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || run(&roce, &data, &stopped));
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) -> Result<Vec<Datagram>, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the relay panicked".to_owned())?
    }
}

fn run(roce: &UdpSocket, data: &UdpSocket, stopped: &AtomicBool) -> Result<Vec<Datagram>, String> {
    let (begin, mut written, mut host) = (Instant::now(), Vec::new(), None);
    let mut buffer = [0; 1 << 16];
    while !stopped.load(Ordering::Relaxed) {
        let mut idle = true;
        let nanos = begin.elapsed().as_nanos() as u64;
        if let Some((len, from)) = receive(roce, &mut buffer)? {
            idle = false;
            let (from, to, payload) = pass(&mut host, from, &buffer[..len])?;
            let next = if *to.ip() == SERVER { to } else { host.ok_or("a server that speaks first")? };
            let own = SocketAddrV4::new(HOST, ROCE_PORT);
            send(roce, next, &icrc::seal(own, next, &payload))?;
            written.push(Datagram { nanos, from, to, payload: icrc::seal(from, to, &payload) });
        }
        if let Some((len, _)) = receive(data, &mut buffer)? {
            idle = false;
            let (from, to) = (SocketAddrV4::new(HOST, SEGMENT_PORT), SocketAddrV4::new(SERVER, SEGMENT_PORT));
            send(data, to, &buffer[..len])?;
            written.push(Datagram { nanos, from, to, payload: buffer[..len].to_vec() });
        }
        if idle {
            thread::sleep(Duration::from_micros(20));
        }
    }
    Ok(written)
}

/// From where and to where a packet goes between the relay and the server, and its bytes there without ICRC.
fn pass(
    host: &mut Option<SocketAddrV4>,
    from: SocketAddrV4,
    packet: &[u8],
) -> Result<(SocketAddrV4, SocketAddrV4, Vec<u8>), String> {
    let own = SocketAddrV4::new(HOST, ROCE_PORT);
    let body = icrc::open(from, own, packet).ok_or("a packet with a wrong ICRC")?;
    let mut body = body.to_vec();
    let server = SocketAddrV4::new(SERVER, ROCE_PORT);
    if *from.ip() == SERVER {
        return Ok((server, own, body));
    }
    *host = Some(from);
    if body[OPCODE] == UD_SEND_ONLY && fields::cm(&body[BEFORE_MAD..]) == Cm::Req {
        let addresses =
            [(REQ_LOCAL_GID, HOST), (REQ_REMOTE_GID, SERVER), (REQ_SOURCE, HOST), (REQ_DESTINATION, SERVER)];
        for (at, address) in addresses {
            let at = BEFORE_MAD + at + IPV4_IN_GID;
            body[at..at + 4].copy_from_slice(&address.octets());
        }
    }
    Ok((own, server, body))
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddrV4)>, String> {
    match socket.recv_from(buffer) {
        Ok((len, SocketAddr::V4(from))) => Ok(Some((len, from))),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(format!("cannot receive: {e}")),
    }
}

fn send(socket: &UdpSocket, to: SocketAddrV4, bytes: &[u8]) -> Result<(), String> {
    socket.send_to(bytes, to).map(|_| ()).map_err(|e| format!("cannot send to {to}: {e}"))
}
