//! Tests of layouts that the host library never requests, but that other hosts can request. Some of the requested
//! layouts follow the rules for layouts, and others break these rules.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use mrsp::{
    Abilities, ErrorCode, FunctionCode, Message, RegionFlags, RegionRequest, RemoteRegion, codec,
    layout::LayoutEntry, region::HOST_MESSAGE_BYTES,
};
use naa_server::{
    Config, Server,
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
    functions,
};
use roce_udp::EmbeddedConfig;
use verbs::{
    Access, Channel, CmEvent, ConnParam, Context, Cq, Memory, Mr, Payload, Pd, Qp, QpCap, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, WaitMode, WaitOn, WcOpcode, WcStatus,
};

const INPUT: RegionFlags = RegionFlags::INPUT;
const BOTH: RegionFlags = INPUT.union(RegionFlags::OUTPUT);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The request immediate of the function that adds 1 to every byte of every parameter.
const INCREMENT: u32 = 0x81;
/// The value with which a test fills the memory for results. Bytes that are not part of a result must still have this
/// value after a call.
const UNTOUCHED: u8 = 0xee;

/// A function that reports the first byte of its only parameter, waits for permission to continue, and adds 1 to all
/// bytes of the parameter.
#[derive(Debug)]
struct Watch {
    info: FunctionInfo,
    found: SyncSender<u8>,
    go_on: Mutex<Receiver<()>>,
}

impl Function for Watch {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let bytes = call.parts().take_input(0).unwrap();
        self.found.send(bytes[0]).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        bytes.iter_mut().for_each(|byte| *byte = std::hint::black_box(*byte).wrapping_add(1));
        Ok(())
    }
}

#[test]
fn a_host_whose_access_is_not_taken_back_changes_nothing_under_a_function() {
    const WATCH: FunctionCode = FunctionCode::constant(100);
    /// The `wr_id` of the WRITE that is posted after the call.
    const BEHIND: u64 = 1;
    let (found, first_byte) = sync_channel(1);
    let (go, go_on) = sync_channel(1);
    let info = FunctionInfo {
        code: WATCH,
        name: "watch".into(),
        description: "for this test".into(),
        pooled: true,
        parameters: Vec::new(),
    };
    let watch = Watch { info, found, go_on: Mutex::new(go_on) };
    let mut config = Config::new("127.0.80.6:0".parse().unwrap());
    config.provider = Some("embedded".parse().unwrap());
    config.device.keeps_access = true;
    let server = Server::start(config, functions::registry([watch]).unwrap()).unwrap();
    let host = HostModel::connect("127.0.80.106", server.address(), 100);
    let regions = host.ask(&[100], &[host.slot(BOTH, (0, 0, 100), 0)]).unwrap();
    let (first, second) = (filled(&host._pd, 100), filled(&host._pd, 100));
    first.memory().write(0, &[5; 100]);
    second.memory().write(0, &[50; 100]);
    host.begin(&[(regions[0], &first)], 0x80 | 100);
    assert_eq!(first_byte.recv_timeout(TIMEOUT), Ok(5));
    // This WRITE breaks the protocol, because the call is running. The WRITE succeeds, because the server's device does
    // not revoke the host's access to the region.
    host.write_as(BEHIND, &regions[0], &second);
    host.wait(|host| {
        let mut acknowledged = false;
        while let Some(wc) = host.cq.poll_one().unwrap() {
            assert!(wc.status.is_success(), "{wc:?}");
            acknowledged |= wc.wr_id == BEHIND;
        }
        acknowledged.then_some(())
    });
    go.send(()).unwrap();
    assert!(matches!(host.receive_next(), Received::Response(0, 100)));
    assert_eq!(host.results.memory().to_vec(0, 100), [6; 100], "the function saw what was written under it");
}

fn serve(ip: &str, max_slots: u8) -> Server {
    let mut config = Config::new(SocketAddr::new(ip.parse().unwrap(), 0));
    config.provider = Some("embedded".parse().unwrap());
    config.limits.max_slots = max_slots;
    Server::start(config, functions::builtins().unwrap()).unwrap()
}

/// A message, a response or a disconnect that a host receives.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Message(Vec<u8>),
    /// The immediate of the response, and the length in bytes of the response's last WRITE.
    Response(u32, u32),
    Disconnect,
}

/// A host that sends any message that a test needs.
struct HostModel {
    /// The abilities that the server announced.
    abilities: Abilities,
    results: Mr,
    messages: Mr,
    qp: Qp,
    cq: Cq,
    channel: Channel,
    _pd: Pd,
    context: Context,
}

impl HostModel {
    /// Connects to the server. The host has `len` bytes of memory for results.
    fn connect(ip: &str, server: SocketAddr, len: usize) -> Self {
        let context = roce_udp::open(ip.parse().unwrap(), &EmbeddedConfig::default()).unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
        let qp = pd.create_qp(&cq, &cq, QpCap::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let mr = |len, access| pd.reg_mr(&region::alloc(len).unwrap(), access).unwrap();
        let (results, messages) = (mr(len, Access::REMOTE_WRITE), mr(2 * HOST_MESSAGE_BYTES, Access::LOCAL));
        results.memory().write(0, &vec![UNTOUCHED; len]);
        let mut host =
            Self { abilities: Abilities::default(), results, messages, qp, cq, channel, _pd: pd, context };
        host.receive();
        host.channel.connect(&host.qp, server, &ConnParam::default()).unwrap();
        host.abilities = host.wait(|host| match host.channel.next_event().unwrap()? {
            CmEvent::Established { param, .. } => Some(Abilities::decode(&param.private_data)),
            other => panic!("{other:?}"),
        });
        host
    }

    fn wait<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let on = WaitOn { cq: Some(self.cq.id()), channel: Some(self.channel.id()) };
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "nothing happens");
            self.context.wait(on, WaitMode::Block, Some(deadline)).unwrap();
        }
    }

    fn receive_next(&self) -> Received {
        self.wait(|host| {
            while let Some(wc) = host.cq.poll_one().unwrap() {
                match (wc.status, wc.opcode) {
                    (WcStatus::Success, WcOpcode::Recv) => {
                        let bytes = host.messages.memory().to_vec(0, wc.byte_len as usize);
                        return Some(Received::Message(bytes));
                    }
                    (WcStatus::Success, WcOpcode::RecvWriteWithImm) => {
                        return Some(Received::Response(wc.imm.unwrap(), wc.byte_len));
                    }
                    _ => {}
                }
            }
            matches!(host.channel.next_event().unwrap(), Some(CmEvent::Disconnected { .. }))
                .then_some(Received::Disconnect)
        })
    }

    fn receive(&self) {
        let sge = self.messages.sge(0, HOST_MESSAGE_BYTES as u32);
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[sge] }).unwrap();
    }

    fn post(&self, wr_id: u64, op: SendOp, payload: Payload<'_>) {
        let wr = SendWr { wr_id, op, payload, flags: SendFlags::SIGNALED_SOLICITED };
        self.qp.post_send(&[wr]).unwrap();
    }

    /// Requests regions of these sizes (negative for internal regions) with these layout entries. Returns the regions
    /// of the advertisement.
    fn ask(&self, sizes: &[i32], slots: &[LayoutEntry]) -> Result<Vec<RemoteRegion>, ErrorCode> {
        let region = |&size: &i32| RegionRequest {
            flags: if size < 0 { RegionFlags::INTERNAL } else { RegionFlags::NONE },
            host: RemoteRegion { addr: 0, rkey: 0, size: size.unsigned_abs() },
            ..RegionRequest::default()
        };
        let regions: Vec<_> = sizes.iter().map(region).collect();
        let message = codec::encode_arranged(&regions, slots).unwrap();
        self.messages.memory().write(HOST_MESSAGE_BYTES, &message);
        let sge = self.messages.sge(HOST_MESSAGE_BYTES as u64, message.len() as u32);
        self.post(0, SendOp::Send, Payload::Sges(&[sge]));
        let Received::Message(bytes) = self.receive_next() else { panic!("no message") };
        match codec::decode(&bytes).unwrap() {
            Message::Advertisement(regions) => Ok(regions.iter().collect()),
            Message::Error(code) => {
                assert_eq!(self.receive_next(), Received::Disconnect);
                Err(code)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Makes a layout entry of a parameter. If the parameter is an output, the accelerator writes it to the host's
    /// memory `results`, at the offset `lands`.
    fn slot(&self, flags: RegionFlags, (region, offset, size): (u8, u32, u32), lands: u64) -> LayoutEntry {
        let host = RemoteRegion { addr: self.results.addr() + lands, rkey: self.results.rkey(), size };
        LayoutEntry { flags, region, offset, host }
    }

    /// Posts a WRITE of the whole region `to` with the bytes of `from`. The work request has the number `wr_id`.
    fn write_as(&self, wr_id: u64, to: &RemoteRegion, from: &Mr) {
        let remote = RemoteAddr { addr: to.addr, rkey: to.rkey };
        self.post(wr_id, SendOp::Write(remote), Payload::Sges(&[from.sge(0, to.size)]));
    }

    /// Writes whole regions, makes a call and waits for its response.
    fn call(&self, regions: &[(RemoteRegion, &Mr)]) -> Received {
        self.begin(regions, INCREMENT);
        self.receive_next()
    }

    /// Writes whole regions, and starts a call of a function.
    fn begin(&self, regions: &[(RemoteRegion, &Mr)], function: u32) {
        self.receive();
        regions.iter().for_each(|(to, from)| self.write_as(0, to, from));
        let first = RemoteAddr { addr: regions[0].0.addr, rkey: regions[0].0.rkey };
        self.post(0, SendOp::WriteWithImm(first, function), Payload::Inline(&[]));
    }
}

fn filled(pd: &Pd, len: usize) -> Mr {
    let memory: Memory = region::alloc(len).unwrap();
    memory.write(0, &(0..len).map(|i| (i % 200) as u8).collect::<Vec<_>>());
    pd.reg_mr(&memory, Access::LOCAL).unwrap()
}

#[test]
fn any_layout_that_keeps_to_the_rules_is_served() {
    let server = serve("127.0.80.1", 255);
    let host = HostModel::connect("127.0.80.101", server.address(), 5000);
    assert_eq!(host.abilities, Abilities { slots: 255 });
    // The layout entries are not in the order of their regions and offsets, and there are gaps between the parameters.
    // The parameters are in two regions, with an internal region between these regions. In the host's memory, there are
    // gaps between the outputs, and the second output has the lowest offset.
    let slots = [
        host.slot(BOTH, (2, 128, 100), 3000),
        host.slot(BOTH, (0, 1024, 10), 20),
        host.slot(INPUT, (0, 192, 832), 0),
        host.slot(BOTH, (2, 0, 0), 4999),
        host.slot(BOTH, (0, 64, 70), 4000),
        host.slot(RegionFlags::NONE, (2, 320, 1), 0),
    ];
    let regions = host.ask(&[1100, -500, 4096], &slots).unwrap();
    assert_eq!(regions.iter().map(|region| region.size).collect::<Vec<_>>(), [1100, 4096]);
    let sources = [1100, 4096].map(|len| filled(&host._pd, len));
    let all: Vec<_> = regions.iter().copied().zip(&sources).collect();
    for _ in 0..2 {
        assert!(matches!(host.call(&all), Received::Response(0, _)));
        let mut expected = vec![UNTOUCHED; 5000];
        for (lands, start, len) in [(3000, 128, 100), (20, 1024, 10), (4000, 64, 70)] {
            let result: Vec<u8> = (start..start + len).map(|i| (i % 200) as u8 + 1).collect();
            expected[lands..lands + len].copy_from_slice(&result);
        }
        assert!(host.results.memory().to_vec(0, 5000) == expected);
    }
}

#[test]
fn results_that_lie_alike_come_in_one_write() {
    let server = serve("127.0.80.2", 255);
    let host = HostModel::connect("127.0.80.102", server.address(), 300);
    let slots = [
        host.slot(BOTH, (0, 0, 64), 100),
        host.slot(BOTH, (0, 64, 7), 164),
        host.slot(BOTH, (0, 128, 2), 228),
    ];
    let regions = host.ask(&[130], &slots).unwrap();
    let source = filled(&host._pd, 130);
    assert_eq!(host.call(&[(regions[0], &source)]), Received::Response(0, 130));
    let found = host.results.memory().to_vec(0, 300);
    let result = |range: std::ops::Range<usize>| range.map(|i| i as u8 + 1).collect::<Vec<_>>();
    assert_eq!((&found[100..171], &found[228..230]), (&result(0..71)[..], &result(128..130)[..]));
    assert!(found[..100].iter().chain(&found[230..]).all(|&byte| byte == UNTOUCHED));
}

#[test]
fn what_breaks_the_rules_is_refused() {
    let server = serve("127.0.80.3", 255);
    let at = |region, offset, size| {
        let host = RemoteRegion { addr: 0x1000, rkey: 1, size };
        LayoutEntry { flags: BOTH, region, offset, host }
    };
    let internal = LayoutEntry { flags: RegionFlags::INTERNAL, ..at(0, 0, 1) };
    let refused = [
        (vec![at(0, 32, 8)], ErrorCode::Address),
        (vec![at(0, 960, 41)], ErrorCode::Address),
        (vec![at(1, 0, 8)], ErrorCode::Address),
        (vec![at(2, 0, 0)], ErrorCode::Address),
        (vec![at(0, 0, 65), at(0, 64, 1)], ErrorCode::Address),
        (vec![internal], ErrorCode::Address),
        (vec![], ErrorCode::TooManyRegions),
    ];
    for (slots, code) in refused {
        let host = HostModel::connect("127.0.80.103", server.address(), 1);
        assert_eq!(host.ask(&[1000, -100], &slots), Err(code), "{slots:?}");
    }
    let deadline = Instant::now() + TIMEOUT;
    while server.stats().sessions.get() > 0 || server.memory_used() > 0 {
        assert!(Instant::now() < deadline, "a refused session is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.stats().sessions_failed.get(), 7);
}

#[test]
fn layouts_beyond_what_was_said_are_refused() {
    for (ip, max_slots, asked, code) in
        [("127.0.80.4", 0, 1, ErrorCode::Address), ("127.0.80.5", 3, 4, ErrorCode::TooManyRegions)]
    {
        let server = serve(ip, max_slots);
        let local = ip.replace("127.0.80.", "127.0.80.10");
        let ask = |count: u32| {
            let host = HostModel::connect(&local, server.address(), 64);
            assert_eq!(host.abilities, Abilities { slots: max_slots });
            let slots: Vec<_> = (0..count).map(|n| host.slot(BOTH, (0, 64 * n, 1), n.into())).collect();
            host.ask(&[1000], &slots)
        };
        assert_eq!(ask(asked), Err(code));
        // The server accepts as many layout entries as it announced. A server that announced 0 layout entries accepts
        // no layout.
        let again = ask(asked - 1);
        assert_eq!(again.is_ok(), max_slots > 0, "{again:?}");
    }
}
