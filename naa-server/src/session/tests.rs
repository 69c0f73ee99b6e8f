use mrsp::{RemoteRegion, codec::encode_request};
use verbs::{Context, QpNum};

use super::*;
use crate::{device::DeviceModel, memory_budget::MemoryBudget, server::sizes};

const FUNCTION: u8 = 7;

fn session(config: &Config) -> ServerSession {
    let context = Context::new(Arc::new(DeviceModel::default()));
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&cq, &cq, sizes::queue_pair(config, context.attr())).unwrap();
    let quota = MemoryBudget::new(1 << 20).quota(1 << 20);
    let peer = SocketAddr::from(([127, 0, 0, 1], 4791));
    ServerSession::new((CmId(1), 5), peer, (pd, qp), quota, config, Instant::now()).unwrap()
}

/// Lets the session handle a completion of its work request of the kind `kind`.
fn complete(session: &mut ServerSession, kind: u64, opcode: WcOpcode, imm: Option<u32>, len: usize) -> Next {
    let wr_id = number(session.serial, kind);
    let wc = Wc { wr_id, qp: QpNum(1), opcode, imm, byte_len: len as u32, ..Wc::EMPTY };
    session.completed(&wc, Instant::now()).unwrap()
}

fn receive(session: &mut ServerSession, message: &[u8]) {
    session.message.memory().write(0, message);
    let next = complete(session, RECEIVE, WcOpcode::Recv, None, message.len());
    assert!(matches!(next, Next::Nothing), "{next:?}");
}

fn call(session: &mut ServerSession) -> Next {
    complete(session, RECEIVE, WcOpcode::RecvWriteWithImm, Some(FUNCTION.into()), 64)
}

fn acknowledge(session: &mut ServerSession) -> Next {
    complete(session, ACK, WcOpcode::Write, None, 0)
}

/// Returns a session whose host has agreed on one parameter of 64 bytes, and the message by which it did.
fn ready() -> (ServerSession, Vec<u8>) {
    let mut session = session(&Config::new(([127, 0, 0, 1], 0).into()));
    let host = RemoteRegion { addr: 0x1000, rkey: 9, size: 64 };
    let flags = RegionFlags::INPUT | RegionFlags::OUTPUT;
    let request = encode_request(&[RegionRequest { flags, host, ..RegionRequest::default() }]).unwrap();
    receive(&mut session, &request);
    assert!(matches!(acknowledge(&mut session), Next::Nothing));
    (session, request)
}

#[test]
fn a_call_waits_until_the_response_before_it_is_acknowledged() {
    let (mut session, _) = ready();
    let Next::Call(request) = call(&mut session) else { panic!("{session:?}") };
    assert_eq!(session.calling.function(), request.function);
    session.respond(Ok(&[None]), Instant::now()).unwrap();
    assert_eq!(session.calling.function().map(FunctionCode::get), Some(FUNCTION));
    assert!(matches!(call(&mut session), Next::Nothing));
    assert!(matches!(session.calling, Calling::Waiting(waiting) if waiting == request));
    assert!(matches!(acknowledge(&mut session), Next::Call(begun) if begun == request));
    session.respond(Ok(&[None]), Instant::now()).unwrap();
    assert!(matches!(acknowledge(&mut session), Next::Nothing));
    assert!(matches!(session.calling, Calling::Idle { answered: None }));
}

#[test]
fn a_call_whose_response_is_acknowledged_is_not_cut_when_its_host_is_refused() {
    let (mut session, request) = ready();
    assert!(matches!(call(&mut session), Next::Call(_)));
    session.respond(Ok(&[None]), Instant::now()).unwrap();
    receive(&mut session, &request);
    assert!(session.refused.is_some());
    assert!(matches!(acknowledge(&mut session), Next::Nothing), "one of two sends is acknowledged");
    assert!(matches!(acknowledge(&mut session), Next::Close));
    assert_eq!(session.calling.function(), None);
}

#[test]
fn a_call_that_is_counted_as_cut_has_no_function_after_its_response() {
    let (mut session, _) = ready();
    assert!(matches!(call(&mut session), Next::Call(_)));
    session.set_counted_as_cut();
    session.respond(Err(ReturnCode::KERNEL_TIMEOUT), Instant::now()).unwrap();
    assert!(matches!(session.calling, Calling::Idle { answered: None }));
}
