//! RDMA WRITEs: one end has a region, the other writes to it.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use naa_provider::{DeviceConfig, Opened, ProviderChoice};
use serde::Serialize;
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, WaitOn, Wake,
};

/// WRITEs posted and not completed.
const OUTSTANDING: u64 = 8;
/// Time limit, which is longer than connecting and any message take.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The time of warming up, as a part of the measured time.
const WARM_UP: f64 = 0.2;

/// The result of writing.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    pub provider: &'static str,
    pub why: String,
    pub path_mtu: u32,
    pub bytes: u32,
    pub messages: u64,
    pub seconds: f64,
    pub mib_per_second: f64,
}

/// Receives as servers do, one connection after the other, for ever; `ready` is told when it listens.
///
/// # Errors
/// If the device cannot be opened or listened on.
pub fn sink(
    local: SocketAddr,
    choice: ProviderChoice,
    bytes: u32,
    wait: WaitMode,
    ready: impl FnOnce(&Opened, u16),
) -> Result<(), String> {
    let opened = open(local.ip(), choice)?;
    let sink = Sink::new(&opened.context, bytes, wait)?;
    let (_, port) = sink.channel.listen(local.port(), 8).map_err(say("cannot listen"))?;
    ready(&opened, port);
    sink.run()
}

/// Writes for `time` and says how fast that was.
///
/// # Errors
/// If there is no connection, or a WRITE fails.
pub fn write(
    local: Option<IpAddr>,
    to: SocketAddr,
    choice: ProviderChoice,
    bytes: u32,
    wait: WaitMode,
    time: Duration,
) -> Result<Written, String> {
    let local = match local {
        Some(local) => local,
        None => naa_provider::source_for(to.ip()).map_err(say("no way there"))?,
    };
    let opened = open(local, choice)?;
    let source = Source::connect(&opened.context, to, bytes, wait)?;
    source.write(time.mul_f64(WARM_UP))?;
    let (messages, seconds) = source.write(time)?;
    source.disconnect()?;
    let mib = messages as f64 * f64::from(bytes) / f64::from(1 << 20);
    let (provider, path_mtu) = (opened.context.attr().provider, source.path_mtu);
    let mib_per_second = mib / seconds;
    Ok(Written { provider, why: opened.why, path_mtu, bytes, messages, seconds, mib_per_second })
}

fn open(local: IpAddr, choice: ProviderChoice) -> Result<Opened, String> {
    naa_provider::open(local, choice, &DeviceConfig::default()).map_err(say("no device"))
}

fn say(what: &str) -> impl Fn(verbs::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// A queue pair, and a region of one message.
#[derive(Debug)]
struct End {
    // The fields are in the order in which they may be dropped.
    qp: Qp,
    memory: Mr,
    cq: Cq,
}

impl End {
    fn new(context: &Context, bytes: u32) -> Result<Self, String> {
        let made = || -> Result<Self, verbs::Error> {
            let pd: Pd = context.alloc_pd()?;
            let cq = context.create_cq(64)?;
            let cap = QpCap { max_send_wr: 32, max_recv_wr: 32, max_sge: 1, late_acks: false };
            let qp = pd.create_qp(&cq, &cq, cap)?;
            let memory = region::alloc(bytes as usize).map_err(|e| verbs::Error::io("no memory", e))?;
            // Touched, as buffers with data in them are.
            memory.write(0, &vec![0x5a; bytes as usize]);
            Ok(Self { qp, memory: pd.reg_mr(&memory, Access::ALL)?, cq })
        };
        made().map_err(say("the device gives no queue pair"))
    }

    fn post_receive(&self) -> Result<(), String> {
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).map_err(say("no receive"))
    }
}

/// Where the source may write.
fn encode(memory: &Mr) -> Vec<u8> {
    [&memory.addr().to_be_bytes()[..], &memory.rkey().to_be_bytes()].concat()
}

fn decode(private_data: &[u8]) -> Option<RemoteAddr> {
    let (addr, rest) = private_data.split_first_chunk()?;
    let rkey = rest.first_chunk()?;
    Some(RemoteAddr { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rkey) })
}

#[derive(Debug)]
struct Sink {
    context: Context,
    channel: Channel,
    bytes: u32,
    wait: WaitMode,
}

impl Sink {
    fn new(context: &Context, bytes: u32, wait: WaitMode) -> Result<Self, String> {
        let channel = context.create_channel().map_err(say("no event channel"))?;
        Ok(Self { context: context.clone(), channel, bytes, wait })
    }

    fn run(&self) -> Result<(), String> {
        let mut asked = None;
        loop {
            asked = match asked {
                Some(id) => self.serve(id)?,
                None => {
                    self.channel.wait(self.wait, None).map_err(say("cannot wait"))?;
                    self.next_request()?.1
                }
            };
        }
    }

    /// Takes the events that came: whether a connection ended, and who wants one.
    fn next_request(&self) -> Result<(bool, Option<CmId>), String> {
        let mut ended = false;
        while let Some(event) = self.channel.next_event().map_err(say("no events"))? {
            match event {
                CmEvent::ConnectRequest { id, .. } => return Ok((ended, Some(id))),
                CmEvent::Established { .. } => {}
                _ => ended = true,
            }
        }
        Ok((ended, None))
    }

    /// One connection, until it ends or another one comes, which is returned.
    fn serve(&self, id: CmId) -> Result<Option<CmId>, String> {
        let end = End::new(&self.context, self.bytes)?;
        end.post_receive()?;
        let param = ConnParam { private_data: encode(&end.memory), ..ConnParam::default() };
        self.channel.accept(id, &end.qp, &param).map_err(say("cannot accept"))?;
        let on = WaitOn { cq: Some(end.cq.id()), channel: Some(self.channel.id()) };
        let next = 'connected: loop {
            while let Some(wc) = end.cq.poll_one().map_err(say("cannot poll"))? {
                if !wc.status.is_success() {
                    break 'connected None;
                }
                end.post_receive()?;
            }
            let (ended, next) = self.next_request()?;
            if ended || next.is_some() {
                break next;
            }
            self.context.wait(on, self.wait, None).map_err(say("cannot wait"))?;
        };
        drop(end);
        self.channel.destroy_id(id).map_err(say("cannot disconnect"))?;
        Ok(next)
    }
}

#[derive(Debug)]
struct Source {
    end: End,
    target: RemoteAddr,
    bytes: u32,
    path_mtu: u32,
    wait: WaitMode,
    id: CmId,
    channel: Channel,
}

impl Source {
    fn connect(context: &Context, to: SocketAddr, bytes: u32, wait: WaitMode) -> Result<Self, String> {
        let channel = context.create_channel().map_err(say("no event channel"))?;
        let end = End::new(context, bytes)?;
        let param = ConnParam { connect_timeout: Some(TIME_LIMIT), ..ConnParam::default() };
        let id = channel.connect(&end.qp, to, &param).map_err(say("cannot connect"))?;
        let deadline = Instant::now() + TIME_LIMIT;
        let param = loop {
            match channel.next_event().map_err(say("no events"))? {
                Some(CmEvent::Established { param, .. }) => break param,
                Some(other) => return Err(format!("no connection to {to}: {other:?}")),
                None => {}
            }
            let wake = channel.wait(wait, Some(deadline)).map_err(say("cannot wait"))?;
            if wake == Wake::TimedOut {
                return Err(format!("no connection to {to} within {TIME_LIMIT:?}"));
            }
        };
        let target = decode(&param.private_data).ok_or("the other end does not say where to write")?;
        Ok(Self { end, target, bytes, path_mtu: param.path_mtu, wait, id, channel })
    }

    /// Waits for the other end to know.
    fn disconnect(&self) -> Result<(), String> {
        self.channel.disconnect(self.id).map_err(say("cannot disconnect"))?;
        let deadline = Instant::now() + TIME_LIMIT;
        while self.channel.next_event().map_err(say("no events"))?.is_none() {
            let wake = self.channel.wait(self.wait, Some(deadline)).map_err(say("cannot wait"))?;
            if wake == Wake::TimedOut {
                return Err(format!("no end of the connection within {TIME_LIMIT:?}"));
            }
        }
        Ok(())
    }

    /// Writes for so long, then waits until all has arrived. Messages, and seconds.
    fn write(&self, time: Duration) -> Result<(u64, f64), String> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        let mut last = false;
        while !last || done < posted {
            while !last && posted - done < OUTSTANDING {
                last = start.elapsed() >= time;
                posted += 1;
                self.post(last)?;
            }
            while let Some(wc) = self.end.cq.poll_one().map_err(say("cannot poll"))? {
                if !wc.status.is_success() {
                    return Err(format!("a WRITE failed: {}", wc.status));
                }
                done += 1;
            }
            if done < posted && (last || posted - done == OUTSTANDING) {
                let deadline = Some(Instant::now() + TIME_LIMIT);
                let wake = self.end.cq.wait(self.wait, deadline).map_err(say("cannot wait"))?;
                if wake == Wake::TimedOut {
                    return Err(format!("{done} of {posted} WRITEs completed, then none for {TIME_LIMIT:?}"));
                }
            }
        }
        Ok((posted, start.elapsed().as_secs_f64()))
    }

    /// The last one tells the other end, as the last one of a call does.
    fn post(&self, last: bool) -> Result<(), String> {
        let op = if last { SendOp::WriteWithImm(self.target, 0) } else { SendOp::Write(self.target) };
        let sges = [self.end.memory.sge(0, self.bytes)];
        let wr = SendWr { wr_id: 0, op, payload: Payload::Sges(&sges), flags: SendFlags::SIGNALED };
        self.end.qp.post_send(&[wr]).map_err(|(_, error)| format!("a WRITE was not posted: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn writes_arrive_and_are_counted() {
        let local = SocketAddr::new(roce_udp::free_loopback().unwrap(), 0);
        let (told, port) = mpsc::channel();
        std::thread::spawn(move || {
            sink(local, ProviderChoice::Embedded, 4096, WaitMode::Adaptive, |_, port| {
                told.send(port).unwrap()
            })
        });
        let to = SocketAddr::new(local.ip(), port.recv_timeout(TIME_LIMIT).unwrap());
        for _ in 0..2 {
            let from = Some(roce_udp::free_loopback().unwrap());
            let time = Duration::from_millis(20);
            let written = write(from, to, ProviderChoice::Embedded, 4096, WaitMode::Adaptive, time).unwrap();
            assert!(written.messages > 8 && written.seconds >= 0.02, "{written:?}");
            let mib = written.messages as f64 / 256.0;
            assert!((written.mib_per_second * written.seconds - mib).abs() < 1e-6, "{written:?}");
        }
    }
}
