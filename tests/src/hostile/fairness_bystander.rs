//! The bystanders of the fairness cases, each with a checked round trip.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use mrsp::builtin::{Arguments, BLOCK_BYTES, INCREMENT, SHA256};
use naa_host::{Device, Param, Session, SessionConfig, U24};
use naa_server::functions::sha256;

use super::{
    bystander::Peer,
    ejfat::{bound, segment_of, with_tick},
};

/// A round of more than this counts as not answered.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a call that a server gives to a worker, and of one that it makes itself.
const POOLED: usize = 32 << 10;
const INLINE: usize = 64;
/// Index of the parameter that has the digest.
const DIGEST: usize = 3;

/// A session that calls for the digest of its data.
pub(super) struct Caller {
    session: Session,
    digest: [u8; 32],
    _device: Device,
}

impl Caller {
    /// SHA-256 of 32 KiB, which a worker computes.
    pub(super) fn pooled(local: IpAddr, server: SocketAddr) -> Result<Self, String> {
        let data: Vec<u8> = (0..POOLED).map(|n| (n * n) as u8).collect();
        Self::connect(local, server, &data)
    }

    /// A small call that the server's own thread makes: the digest of 64 bytes.
    pub(super) fn inline(local: IpAddr, server: SocketAddr) -> Result<Self, String> {
        Self::connect(local, server, &[7; INLINE])
    }

    fn connect(local: IpAddr, server: SocketAddr, data: &[u8]) -> Result<Self, String> {
        let block = Arguments::Sha256 { bytes: data.len() as u64 }.encode();
        let params = [Param::data(&block), Param::data(data), Param::output(BLOCK_BYTES), Param::output(32)];
        let device = Device::open(local).map_err(|e| e.to_string())?;
        // A server that died is known after about a second.
        let config = SessionConfig { setup_timeout: TIME_LIMIT, ack_timeout: 15, ..SessionConfig::default() };
        let session = Session::connect(&device, server, &params, &config).map_err(|e| e.to_string())?;
        Ok(Self { session, digest: sha256::compute(data), _device: device })
    }
}

impl Peer for Caller {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let failed = |e: naa_host::Error| e.to_string();
        self.session.invoke(SHA256, U24::default()).map_err(failed)?;
        let outcome = self.session.wait_timeout(TIME_LIMIT).map_err(failed)?;
        outcome.ok_or("no answer within 5 s")?.into_result().map(drop).map_err(failed)?;
        if self.session.slice(DIGEST).map_err(failed)? != self.digest {
            return Err(format!("call {n} gave a wrong result"));
        }
        // The result is cleared, so that the next call cannot pass with the result of this one.
        self.session.slice_mut(DIGEST).map_err(failed)?.fill(0);
        Ok(())
    }
}

/// Somebody without a session: it must get one, with a region of so many bytes, and have a call answered.
pub(super) fn newcomer(local: IpAddr, server: SocketAddr, bytes: usize) -> Result<(), String> {
    let device = Device::open(local).map_err(|e| e.to_string())?;
    let config = SessionConfig { setup_timeout: TIME_LIMIT, ..SessionConfig::default() };
    let session = Session::connect(&device, server, &[Param::in_out(bytes)], &config);
    let mut session = session.map_err(|e| format!("a newcomer's session: {e}"))?;
    session.call(INCREMENT).map_err(|e| format!("a newcomer's call: {e}"))?;
    if session.slice(0).map_err(|e| e.to_string())?.iter().any(|byte| *byte != 1) {
        return Err("a newcomer's call gave a wrong result".into());
    }
    session.finalize().map_err(|e| e.to_string())
}

/// Sends a segment to a load balancer, and waits for it as the worker.
pub(super) struct Forwarded {
    sender: UdpSocket,
    worker: UdpSocket,
}

impl Forwarded {
    /// The load balancer's tables have this sender, and this worker as the only one.
    pub(super) fn connect(sender: IpAddr, worker: SocketAddr, balancer: SocketAddr) -> Result<Self, String> {
        let worker = UdpSocket::bind(worker).map_err(|e| format!("cannot bind {worker}: {e}"))?;
        worker.set_read_timeout(Some(TIME_LIMIT)).map_err(|e| e.to_string())?;
        Ok(Self { sender: bound(sender, balancer)?, worker })
    }
}

impl Peer for Forwarded {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let payload: [u8; 256] = std::array::from_fn(|at| (n as u8).wrapping_add(at as u8));
        let segment = segment_of(7, n, 0, payload.len() as u32, &payload);
        self.sender.send(&with_tick(n, &segment)).map_err(|e| format!("segment {n}: {e}"))?;
        let mut bytes = [0; 2048];
        let read = self.worker.recv(&mut bytes).map_err(|e| format!("segment {n} did not come: {e}"))?;
        if bytes[..read] == segment[..] { Ok(()) } else { Err(format!("segment {n} is not what was sent")) }
    }
}

/// Asks for `/metrics` on a connection of its own each time.
pub(super) struct Scraper(pub(super) SocketAddr);

impl Peer for Scraper {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("request {n} for metrics: {e}");
        let mut stream = TcpStream::connect_timeout(&self.0, TIME_LIMIT).map_err(failed)?;
        stream.set_read_timeout(Some(TIME_LIMIT)).map_err(failed)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        match answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n") {
            true => Ok(()),
            false => Err(format!("request {n} for metrics was answered {answer:?}")),
        }
    }
}
