//! The only secrets of RoCE: RKeys, queue pair numbers, starting PSNs, communication IDs. Drawn by processes that
//! open the device afresh, they must neither repeat beyond chance nor show a pattern.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use roce::wire::mad::{Answered, CmMessage, CommIds, Mad};
use roce_udp::{EmbeddedConfig, open};
use verbs::{Access, CmEvent, CmId, ConnParam, QpCap, RejectReason, WaitMode};

use super::{
    case::{Case, Observation},
    environment::Environment,
    raw::{RawPeer, rej},
    resources_process::sibling,
    unpredictable_statistics::{Sample, check},
};

const NUMBERS: usize = 100_000;
/// Processes one after the other on one address.
const RESTARTS: usize = 5;
/// Connections under way at once.
const AHEAD: usize = 64;
const TIME_LIMIT: Duration = Duration::from_secs(20);

pub(super) const CASES: &[Case] = &[
    Case::new("RKeys", "100000 over 5 restarts, 20000 at once", "no pattern", &[], keys),
    Case::new(
        "queue pair numbers, PSNs, communication IDs",
        "100000 REQs over 5 restarts",
        "no pattern",
        &[],
        requests,
    ),
];

/// What a restarted process draws: prints a line per RKey, LKey and queue pair number.
pub fn draw_keys(local: IpAddr, count: usize) -> Result<(), String> {
    use std::io::Write;
    let failed = |e: verbs::Error| e.to_string();
    let context = open(local, &EmbeddedConfig::default()).map_err(failed)?;
    let pd = context.alloc_pd().map_err(failed)?;
    let memory = region::alloc(64).map_err(|e| e.to_string())?;
    let all: Result<Vec<_>, _> = (0..count).map(|_| pd.reg_mr(&memory, Access::LOCAL)).collect();
    let mut out = std::io::stdout().lock();
    for mr in all.map_err(failed)? {
        writeln!(out, "{} {}", mr.rkey(), mr.lkey()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// What a restarted process draws: connections to `to`, which refuses them.
pub fn draw_connections(local: IpAddr, to: SocketAddr, count: usize) -> Result<(), String> {
    let failed = |e: verbs::Error| e.to_string();
    let context = open(local, &EmbeddedConfig::default()).map_err(failed)?;
    let pd = context.alloc_pd().map_err(failed)?;
    let cq = context.create_cq(16).map_err(failed)?;
    let channel = context.create_channel().map_err(failed)?;
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() };
    let mut ahead = VecDeque::new();
    let (mut begun, mut ended) = (0, 0);
    while ended < count {
        while begun < count && begun - ended < AHEAD {
            let qp = pd.create_qp(&cq, &cq, cap).map_err(failed)?;
            let id: CmId = channel.connect(&qp, to, &ConnParam::default()).map_err(failed)?;
            ahead.push_back((id, qp));
            begun += 1;
        }
        match channel.next_event().map_err(failed)? {
            Some(CmEvent::Rejected { id, .. }) => {
                channel.destroy_id(id).map_err(failed)?;
                ahead.retain(|(other, _)| *other != id);
                ended += 1;
            }
            Some(other) => return Err(format!("{other:?} instead of a rejection")),
            None => drop(channel.wait(WaitMode::Block, Some(Instant::now() + TIME_LIMIT)).map_err(failed)?),
        }
    }
    Ok(())
}

fn keys(env: &mut Environment) -> Result<Observation, String> {
    let local = env.address().to_string();
    let (mut rkeys, mut lkeys) = (Sample::new("RKey", 32, true), Sample::new("LKey", 32, true));
    for _ in 0..RESTARTS {
        let count = (NUMBERS / RESTARTS).to_string();
        let mut child = Command::new(sibling("actor")?)
            .args(["draw-keys", &local, &count])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let out = child.stdout.take().ok_or("the child has no output")?;
        for line in BufReader::new(out).lines() {
            let line = line.map_err(|e| e.to_string())?;
            let mut words = line.split(' ').map(str::parse::<u32>);
            let (Some(Ok(rkey)), Some(Ok(lkey))) = (words.next(), words.next()) else {
                return Err(format!("{line:?} is no pair of keys"));
            };
            rkeys.add(rkey);
            lkeys.add(lkey);
        }
        child.wait().map_err(|e| e.to_string())?;
        rkeys.restart();
        lkeys.restart();
    }
    check(&[rkeys, lkeys], NUMBERS)
}

fn requests(env: &mut Environment) -> Result<Observation, String> {
    let local = env.address();
    let mut peer = env.attacker()?;
    let to = SocketAddr::new(peer.address().ip(), 7).to_string();
    let mut samples =
        [Sample::new("QPN", 24, false), Sample::new("PSN", 24, false), Sample::new("comm ID", 32, false)];
    for _ in 0..RESTARTS {
        let count = (NUMBERS / RESTARTS).to_string();
        let mut child = Command::new(sibling("actor")?)
            .args(["draw-connections", &local.to_string(), &to, &count])
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut last = Instant::now();
        let status = loop {
            if gather(&mut peer, local, &mut samples)? > 0 {
                last = Instant::now();
            } else if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                break status;
            } else if last.elapsed() > TIME_LIMIT {
                // It may have ended meanwhile; what matters is that it does.
                let _ = child.kill();
            }
        };
        if !status.success() {
            return Err(format!("a process that connects ended: {status}"));
        }
        samples.iter_mut().for_each(Sample::restart);
    }
    check(&samples, NUMBERS)
}

/// Refuses the requests that have come, and takes their numbers down, each once.
fn gather(peer: &mut RawPeer, from: IpAddr, samples: &mut [Sample; 3]) -> Result<usize, String> {
    let mut count = 0;
    let mut within = Duration::from_millis(5);
    while let Some(mad) = peer.receive_mad(within)? {
        within = Duration::ZERO;
        let CmMessage::Req(req) = &mad.message else { continue };
        peer.send_mad(from, &refusal(&mad, req.local_comm_id, RejectReason::INVALID_SERVICE_ID))?;
        if samples[2].is_last(req.local_comm_id) {
            continue;
        }
        let [qpn, psn, comm_id] = samples;
        qpn.add(req.qpn);
        psn.add(req.starting_psn.value());
        comm_id.add(req.local_comm_id);
        count += 1;
    }
    Ok(count)
}

/// A REJ for a REQ.
pub(super) fn refusal(req: &Mad, comm_id: u32, reason: RejectReason) -> Mad {
    let rej = rej(CommIds { local: 0, remote: comm_id }, Answered::Req, reason.0);
    Mad::new(req.tid, CmMessage::Rej(rej))
}
